"""Draws as ArviZ's InferenceData, and what the checks read from it."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pdcc.arrays import Bools, Float32, Float64, Ints
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData
from pdcc.inference.variational import SampleStatus
from pdcc.models import answer_logits
from pdcc.models.objective import answer_nll
from pdcc.posterior.arviz_calls import array, build, group_names, has
from pdcc.posterior.draws import SampleConfig, Sampled, draw_agreement
from pdcc.posterior.measured import calibration
from pdcc.posterior.squeeze import IdentifiedSet
from pdcc.sampled import Sample
from pdcc.storage.provenance import package_versions
from pdcc.training import TrainConfig

LEAVES_OUT = {
    "hmc": "The layers below the last, and annotators' departures from the shared confusion, stay at their fitted values; chains begin in the fitted mode and tell nothing of others.",
    "svi": "Normal in unconstrained space, over the confusion and the net's last layer; the layers below, and annotators' departures from the shared confusion, stay at their fitted values.",
    "nuts": "The layers below the last, and annotators' departures from the shared confusion, stay at their fitted values; chains begin in the fitted mode and tell nothing of others.",
    "ensemble": "Whole nets refitted from new starts to reweighted answers (Bayesian bootstrap): no prior on the weights.",
}
POSTERIOR = "posterior"
REGULARISED = "regularised (Gibbs) posterior: the volume term weighs as much as so many answers and never washes out, so its intervals are about what the regularised fit would vary by, and too narrow for the truth; without regularised=True this is a posterior"


def to_inference_data(
    drawn: Sampled,
    data: PairData,
    how: SampleConfig,
    config: TrainConfig,
    identified: IdentifiedSet,
    sample: Sample | None = None,
) -> Any:
    """ArviZ's InferenceData: posterior, posterior_predictive, log_likelihood, observed_data, constant_data.

    log_likelihood is what an answer adds to the log density: by its degree and times its weight, which constant_data then holds.

    Everything of the size draws x pairs is int8 or float32 and filled one draw at a time: 500 draws of 10,000 pairs and items
    and ten clusters come to 225 MB. ``identified``: how far other memberships make every answer as likely, beside the posterior.
    sample: what part of the items and answers these are, if not all.
    """
    C, S, _, K = drawn.memberships.shape
    M = len(data)
    rng = np.random.default_rng(how.seed)
    similar = data.similar.astype(np.int8)
    y, weight = torch.as_tensor(degree(data)), torch.as_tensor(counts(data))
    loglik, predicted = np.empty((C, S, M), np.float32), np.empty((C, S, M), np.int8)
    i, j = torch.as_tensor(data.i), torch.as_tensor(data.j)
    for c, s in np.ndindex(C, S):
        F = torch.as_tensor(drawn.memberships[c, s]).double()
        agreement = torch.as_tensor(draw_agreement(drawn, c, s))
        logits = answer_logits(
            F[i], F[j], agreement, None if drawn.by_annotator is None else torch.as_tensor(data.annotator)
        )
        loglik[c, s] = (-weight * answer_nll(logits, y)).float().numpy()
        predicted[c, s] = rng.random(M) < torch.sigmoid(logits).numpy()
    posterior: dict[str, Any] = {"memberships": drawn.memberships, "agreement": drawn.agreement}
    dims = {
        "memberships": ["item", "cluster"],
        "agreement": ["cluster", "cluster_b"],
        "similar": ["pair"],
        "i": ["pair"],
        "j": ["pair"],
    }
    if drawn.confusion is not None:
        posterior["confusion"] = drawn.confusion
        dims["confusion"] = ["observed", "cluster"]
    constant: dict[str, Any] = {"i": data.i, "j": data.j}
    if data.annotator is not None:
        constant["annotator"], dims["annotator"] = data.annotator, ["pair"]
    for name, part in (("soft", data.soft), ("weight", data.weight)):
        if part is not None:
            constant[name], dims[name] = part, ["pair"]
    numbers = list(range(K))
    items = list(range(data.n_items)) if data.item_ids is None else [str(name) for name in data.item_ids]
    coords = {"item": items, "cluster": numbers, "cluster_b": numbers, "observed": numbers, "pair": list(range(M))}
    volume = float(config.volume)
    regularised = volume > 0 and (how.regularised or how.method == "ensemble")  # refits keep the volume of the fit
    known = calibration(drawn.engine, config.confusion, volume, regularised)
    if drawn.status is not SampleStatus.CONVERGED:
        known = f"unknown, since this run did not converge (where runs do: {known})"
    attrs = {
        "method": how.method, "kind": REGULARISED if regularised else POSTERIOR, "status": str(drawn.status), "message": drawn.message, "leaves_out": LEAVES_OUT[how.method], "calibration": known,
        "identified": "A only through B = A'A; cluster numbers are arbitrary and aligned to the fitted memberships",
        "identified_set": str(identified), "sample": "all items and answers" if sample is None else str(sample),
        "seed": how.seed, "settings": json.dumps(asdict(config), default=str), "versions": json.dumps(package_versions()),
    }  # fmt: skip
    groups = {
        "posterior": posterior,
        "posterior_predictive": {"similar": predicted},
        "log_likelihood": {"similar": loglik},
        "sample_stats": drawn.stats or {},
        "observed_data": {"similar": similar},
        "constant_data": constant,
    }
    return build(groups, coords, dims, attrs)


@dataclass(frozen=True)
class Posterior:
    """The answers and how likely each draw finds them, out of an ``arviz.InferenceData``.

    observed: (M,) bool. i, j: (M,) items. annotator: (M,) or None. log_likelihood: (S, M) float32.
    """

    observed: Bools
    i: Ints
    j: Ints
    annotator: Ints | None
    log_likelihood: Float32

    def probability(self) -> Float64:
        """Posterior mean P(similar) of each answered pair, (M,), read off the log-likelihood.

        This holds for every form of confusion, per-annotator ones too, where m_i' B m_j would not.
        """
        total = np.zeros(len(self.observed))
        for chunk in np.array_split(self.log_likelihood, max(1, len(self.log_likelihood) // 50)):
            total += np.exp(chunk.astype(np.float64)).sum(axis=0)
        right = np.clip(total / len(self.log_likelihood), 0.0, 1.0)
        return np.where(self.observed, right, 1 - right)


def read_posterior(idata: Any) -> Posterior:
    """Check and take the answers and their log-likelihood out of an ``arviz.InferenceData``; these checks are for plain answers."""
    groups = {"observed_data": ("similar",), "log_likelihood": ("similar",), "constant_data": ("i", "j")}
    for group, names in groups.items():
        for name in names:
            take(idata, group, name)
    for name in ("soft", "weight"):
        if has(idata, "constant_data", name):
            raise ValueError(
                f"idata: expected plain answers that count alike, found answers with {name}. Draw a posterior of the plain ones to check it."
            )
    y = take(idata, "observed_data", "similar")
    i, j = take(idata, "constant_data", "i").astype(np.int64), take(idata, "constant_data", "j").astype(np.int64)
    ll = take(idata, "log_likelihood", "similar")
    ll = ll.reshape(-1, ll.shape[-1])
    if not len(y) == len(i) == len(j) == ll.shape[1]:
        raise ValueError(
            f"idata: expected one i, j and log-likelihood for each of the {len(y)} answers, found {len(i)}, {len(j)} and {ll.shape[1]}. Use the posterior and the pairs of one fit."
        )
    if not np.isfinite(ll).all():
        row = int(np.flatnonzero(~np.isfinite(ll).all(axis=0))[0])
        raise ValueError(
            f"idata: expected finite log-likelihoods, found {ll[:, row].min()} for pair {row}. Keep probabilities away from 0 and 1, or fit again."
        )
    annotator = (
        take(idata, "constant_data", "annotator").astype(np.int64) if has(idata, "constant_data", "annotator") else None
    )
    return Posterior(y.astype(bool), i, j, annotator, ll)


def take(idata: Any, group: str, name: str) -> NDArray[Any]:
    """The array of one variable, or an error that says what is missing."""
    if not has(idata, group, name):
        raise ValueError(
            f"idata: expected an arviz.InferenceData with the variable {name!r} in group {group!r}, found {group_names(idata)}. Make it with pdcc's posterior."
        )
    return array(idata, group, name)
