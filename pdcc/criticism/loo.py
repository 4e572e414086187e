"""Leave-one-out predictive accuracy by Pareto-smoothed importance sampling (PSIS-LOO), through ArviZ."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pdcc.posterior.arviz_calls import array, effective_draws, leave_one_out
from pdcc.posterior.inference_data import read_posterior

# Stands for an infinite Pareto k.
WORST_K = 10.0
# Fewer draws leave too few in the tail for a shape to be estimated.
FEWEST_DRAWS = 100


@dataclass(frozen=True)
class Loo:
    """PSIS-LOO of M answers from S posterior draws.

    draws: S. elpd, se: expected log predictive density (sum over answers, nats; higher is better) and its standard error.
    p_loo: effective number of parameters. pointwise: (M,) contributions to elpd. pareto_k: (M,) shape of the tail of
    each answer's importance weights (10 where none could be fitted). good_k: the largest k to trust, min(1 - 1 / log10 S, 0.7).
    i, j, similar: (M,) the answers. probability: (M,) leave-one-out P(similar). warnings: what ArviZ warned of.
    """

    draws: int
    elpd: float
    se: float
    p_loo: float
    pointwise: NDArray[np.float64]
    pareto_k: NDArray[np.float64]
    good_k: float
    i: NDArray[np.int64]
    j: NDArray[np.int64]
    similar: NDArray[np.bool_]
    probability: NDArray[np.float64]
    warnings: tuple[str, ...] = ()


def run_loo(idata: Any) -> Loo:
    """PSIS-LOO of an ``arviz.InferenceData`` with log_likelihood ``similar`` (chain, draw, pair).

    One answer is left out at a time, given all others. Answers of one annotator are often consistent with each other,
    so the rest give the left-out one away: this measures prediction of *these* annotators, not of new ones.
    """
    posterior = read_posterior(idata)
    found = leave_one_out(idata, "similar", _efficiency(idata))
    k = np.nan_to_num(found.pareto_k, nan=WORST_K, posinf=WORST_K)
    # Weights that hardly vary have no tail to fit, and ArviZ gives infinity; leaving such an answer out changes nothing.
    k[np.ptp(posterior.log_likelihood, axis=0) < 1e-4] = 0.0
    y = posterior.observed
    probability = np.where(y, np.exp(found.pointwise), -np.expm1(found.pointwise))
    return Loo(
        draws=len(posterior.log_likelihood),
        elpd=found.elpd,
        se=found.se,
        p_loo=found.p_loo,
        pointwise=found.pointwise,
        pareto_k=k,
        good_k=found.good_k,
        i=posterior.i,
        j=posterior.j,
        similar=y,
        probability=np.clip(probability, 0.0, 1.0),
        warnings=found.warnings,
    )


def _efficiency(idata: Any) -> float:
    """Effective over actual draws, averaged over 100 answers' likelihoods, at most 1."""
    # ArviZ would take every membership of every item instead, which is slow and beside the point.
    ll = array(idata, "log_likelihood", "similar")
    if ll.shape[1] < 4:
        return 1.0
    some = ll[..., np.linspace(0, ll.shape[-1] - 1, min(100, ll.shape[-1])).astype(np.int64)]
    sizes = [effective_draws(np.exp(column.astype(np.float64)), method="mean") for column in np.moveaxis(some, -1, 0)]
    good = np.asarray(sizes, dtype=np.float64)
    good = good[np.isfinite(good) & (good > 0)]
    return float(min(1.0, good.mean() / some[..., 0].size)) if len(good) else 1.0


def check_loo(result: Loo, worst: int = 10) -> tuple[str, str, pd.DataFrame]:
    """(verdict, sentence, worst pairs).

    The verdict is "reliable" (at least 100 draws and every k at most good_k), "usable" (under 1 % of the answers above it, none above 1) or
    "unreliable". The table (i, j, similar, probability, elpd, pareto_k) has the answers with the largest k among those above
    good_k, then the worst predicted ones: look there for slips of the annotators, or items in the wrong cluster.
    """
    n = len(result.pareto_k)
    bad, very_bad = int((result.pareto_k > result.good_k).sum()), int((result.pareto_k > 1).sum())
    mean = f"elpd {result.elpd:.1f} (standard error {result.se:.1f}), {result.elpd / n:.3f} nats per answer"
    if result.draws < FEWEST_DRAWS:
        verdict = "unreliable"
        sentence = f"PSIS-LOO is not reliable from {result.draws} draws: {mean}, but the tails of the weights cannot be judged. Draw at least {FEWEST_DRAWS}, better 500."
    elif not bad:
        verdict, sentence = "reliable", f"PSIS-LOO is reliable: {mean}; every Pareto k is at most {result.good_k:.2f}."
    elif bad < 0.01 * n and not very_bad:
        verdict = "usable"
        sentence = f"PSIS-LOO is usable: {mean}; {bad} of {n} answers have Pareto k above {result.good_k:.2f}, too few to matter for comparisons much larger than the standard error."
    else:
        verdict = "unreliable"
        sentence = f"PSIS-LOO is not reliable: {bad} of {n} answers have Pareto k above {result.good_k:.2f} ({very_bad} above 1), each swaying the posterior too much to be left out by reweighting. Compare models by refitting without held-out pairs instead."
    above = np.where(result.pareto_k > result.good_k, result.pareto_k, 0.0)
    rows = np.lexsort((result.pointwise, -above))[:worst]
    table = pd.DataFrame(
        {
            "i": result.i[rows],
            "j": result.j[rows],
            "similar": result.similar[rows],
            "probability": result.probability[rows],
            "elpd": result.pointwise[rows],
            "pareto_k": result.pareto_k[rows],
        }
    )
    return verdict, sentence, table
