"""What a diagnosis rests on: posterior draws, prior draws, scatter certificates, alternative optima and predictive checks."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from pdcc.arrays import Bools, Float32, Float64
from pdcc.criticism.predictive import Predictive, run_predictive
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted
from pdcc.identifiability import conditions as c
from pdcc.identifiability.ssc import SSCResult, check_ssc
from pdcc.inference.ensemble import Ensemble, Members
from pdcc.inference.predict import pair_nll
from pdcc.inference.variational import Draws, svi_posterior
from pdcc.metrics import membership_mse
from pdcc.posterior.draws import SampleConfig
from pdcc.posterior.inference_data import to_inference_data
from pdcc.posterior.last_layer import last_layer_draws, last_layer_of, prior_memberships
from pdcc.posterior.refits import refit
from pdcc.training import tensors

# How the work for scatter checks is shared: draws, prior draws, and each of the two point estimates.
SHARES = (0.7, 0.15, 0.075)
STEPS = 300
# Predictive p-values below the level asked for take this many replicates, however few draws are checked for scatter.
REPLICATES = 200
# The weight of the volume term is a choice: solutions for other weights that predict as well are alternatives too.
VOLUMES = (1.0, 1 / 3, 3.0)


@dataclass(frozen=True)
class Evidence:
    """Everything ``diagnose`` looks at; none of it knows the truth.

    draws: memberships (S, N, K) and agreement (S, K, K) of SVI draws; mean: their mean memberships, (N, K).
    spread: mean distance (membership MSE) of the draws from the fitted memberships.
    of_draws, of_prior, of_mean, of_averaged: scatter checks. alternatives: refits that predict as well.
    held_out: probability and answer of every held-out pair, (H,) each. asked: fitted probability of every pair, (M,).
    """

    draws: Float32
    agreement: Float64
    mean: Float64
    spread: float
    of_draws: c.Scattered
    of_prior: c.Scattered
    of_mean: SSCResult
    of_averaged: SSCResult
    predictive: Predictive
    alternatives: c.Alternatives
    held_out: tuple[Float64, Bools]
    asked: Float64
    free: bool
    posterior: Draws


def gather(
    fitted: Fitted,
    data: PairData,
    *,
    draws: int,
    n_restarts: int,
    eps: float,
    work: float,
    seed: int,
    progress: bool = False,
) -> Evidence:
    """Draw, check, refit and replicate for a fit; arguments are those of ``diagnose``."""
    if not fitted.holds(data):
        raise ValueError(
            "pairs, similar: expected the answers that were fitted, in their order, found others. Pass what fit was given: answers that were fitted cannot serve as held out."
        )
    held = fitted.split.test(data)
    data = fitted.known(data)
    held = None if held is None else fitted.known(held)
    x, point = fitted.scaled(data.features), fitted.memberships(data.features)

    layer = last_layer_of(fitted.model, fitted.guide, data, x, prior_scale=None)
    many = max(draws, REPLICATES)
    found = svi_posterior(layer.model, layer.batch, layer.start, draws=many, steps=STEPS, seed=seed, progress=progress)
    drawn = last_layer_draws(layer, found, point)
    F, B = drawn.memberships[0, :draws], drawn.agreement[0, :draws]
    mean = F.mean(axis=0, dtype=np.float64)
    mean /= mean.sum(axis=1, keepdims=True)
    of_prior = c.scattered(prior_memberships(layer, max(draws // 4, 2), seed), eps, SHARES[1] * work)
    of_draws = c.scattered(F, eps, SHARES[0] * work)
    averaged = c.neighbour_average(mean, x.flatten(1).cpu().numpy())
    of_mean, of_averaged = (check_ssc(one, eps=eps, work_limit=SHARES[2] * work) for one in (mean, averaged))

    idata = to_inference_data(drawn, data, SampleConfig("svi", 1, many, seed), fitted.config)
    predictive = run_predictive(idata, draws=many, twins=20, seed=seed)
    # Where an item's answers go wrong together, items and not answers are what a bootstrap must draw.
    errors = c.independence_condition(predictive).evidence.get("errors")
    reweight = "items" if errors == "consistent" else "pairs"
    members = refit(
        fitted,
        data,
        chains=n_restarts,
        draws=1,
        seed=seed + fitted.config.seed,
        reweight=reweight,
        volumes=VOLUMES,
        progress=progress,
    )
    alternatives, held_out, asked = _predictions(fitted, data, held, x, point, members)
    return Evidence(
        draws=F,
        agreement=B,
        mean=mean,
        spread=float(np.mean([membership_mse(point, one) for one in F])),
        of_draws=of_draws,
        of_prior=of_prior,
        of_mean=of_mean,
        of_averaged=of_averaged,
        predictive=predictive,
        alternatives=alternatives,
        held_out=held_out,
        asked=asked,
        free=fitted.free_confusion,
        posterior=found,
    )


def _predictions(
    fitted: Fitted, data: PairData, held: PairData | None, x: Tensor, point: Float64, members: Ensemble | Members
) -> tuple[c.Alternatives, tuple[Float64, Bools], Float64]:
    """Refits that predict as well as the fit, its probabilities of the held-out answers, and of every asked pair."""
    tested = tensors(data if held is None else held, x)
    others = members.memberships(x)
    theirs = members.agreement_for(tested)
    solutions = [(x.new_tensor(point), fitted.pair_agreement(tested)), *zip(others, theirs, strict=True)]
    nll = np.stack([pair_nll(F_r, B_r, tested).double().cpu().numpy() for F_r, B_r in solutions])
    similar = tested.similar.cpu().numpy() > 0.5
    rate = float(similar.mean().clip(1e-6, 1 - 1e-6))
    base = float(-np.mean(np.where(similar, np.log(rate), np.log1p(-rate))))
    likelihood = np.exp(-nll[0])
    compared_on = "held-out answers" if held is not None else "fitted answers, since none were held out"
    n_held = 0 if held is None else len(held)  # answers that were fitted to show no calibration
    yes = replace(tensors(data, x), similar=x.new_ones(len(data)))
    asked = np.exp(-pair_nll(solutions[0][0], fitted.pair_agreement(yes), yes).double().cpu().numpy())
    alternatives = c.find_alternatives(point, nll[0], others.cpu().numpy(), nll[1:], base, compared_on)
    probability = np.where(similar, likelihood, 1 - likelihood).clip(0, 1)
    return alternatives, (probability[:n_held], similar[:n_held]), asked
