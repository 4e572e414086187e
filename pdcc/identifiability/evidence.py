"""What the question of soft memberships rests on: posterior draws, prior draws, scatter certificates and restarts."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from pdcc.accuracy.folds import fit_again, seed_again
from pdcc.arrays import Bools, Float32, Float64
from pdcc.data.degrees import weighed
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted
from pdcc.identifiability import conditions as c
from pdcc.identifiability.ssc import SSCResult, check_ssc
from pdcc.inference.predict import memberships, pair_agreement, pair_nll
from pdcc.inference.variational import Draws, svi_posterior
from pdcc.metrics import membership_mse
from pdcc.models import log_volume
from pdcc.posterior.last_layer import last_layer_draws, last_layer_of, prior_memberships
from pdcc.posterior.squeeze import IdentifiedSet, identified_set
from pdcc.rows import whole
from pdcc.training import tensors

# How the work for scatter checks is shared: draws, prior draws, and each of the two point estimates.
SHARES = (0.7, 0.15, 0.075)
STEPS = 300
# Keeps the seeds of restarts apart from those of fold fits.
RESTARTS = 500


@dataclass(frozen=True)
class Evidence:
    """None of it knows the truth.

    draws: memberships (S, N, K) and agreement (S, K, K) of SVI draws; mean: their mean memberships, (N, K).
    spread: mean distance (membership MSE) of the draws from the fitted memberships.
    of_draws, of_prior, of_mean, of_averaged: scatter checks. alternatives: restarts that reach the objective.
    held_out: probability and answer of every held-out pair that was drawn at random, (H,) each. asked: fitted probability of every pair, (M,).
    """

    draws: Float32
    agreement: Float64
    mean: Float64
    spread: float
    of_draws: c.Scattered
    of_prior: c.Scattered
    of_mean: SSCResult
    of_averaged: SSCResult
    alternatives: c.Alternatives
    identified: IdentifiedSet
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
    """Draw, check and restart for a fit; arguments are those of ``diagnose``."""
    data = fitted.known(data)
    held = fitted.split.test(data)
    held = None if held is None else held.subset(held.at_random())  # suggested ones are where a fit was least sure
    x = fitted.scaled(whole(data.features, "a diagnosis"))
    point = fitted.memberships(data.features)

    layer = last_layer_of(fitted.model, fitted.guide, data, x, prior_scale=None, regularised=True)
    found = svi_posterior(layer.model, layer.batch, layer.start, draws=draws, steps=STEPS, seed=seed, progress=progress)
    drawn = last_layer_draws(layer, found, point)
    F, B = drawn.memberships[0], drawn.agreement[0]
    mean = F.mean(axis=0, dtype=np.float64)
    mean /= mean.sum(axis=1, keepdims=True)
    of_prior = c.scattered(prior_memberships(layer, max(draws // 4, 2), seed), eps, SHARES[1] * work)
    of_draws = c.scattered(F, eps, SHARES[0] * work)
    averaged = c.neighbour_average(mean, x.flatten(1).cpu().numpy())
    of_mean, of_averaged = (check_ssc(one, eps=eps, work_limit=SHARES[2] * work) for one in (mean, averaged))
    every = fitted.agreement.double().cpu().numpy()
    return Evidence(
        draws=F,
        agreement=B,
        mean=mean,
        spread=float(np.mean([membership_mse(point, one) for one in F])),
        of_draws=of_draws,
        of_prior=of_prior,
        of_mean=of_mean,
        of_averaged=of_averaged,
        alternatives=_restarts(fitted, data, x, point, n_restarts, seed, progress),
        identified=identified_set(point, every, fitted.free_confusion),
        held_out=(np.zeros(0), np.zeros(0, dtype=bool)) if held is None else (_similar(fitted, held, x), held.similar),
        asked=_similar(fitted, data, x),
        free=fitted.free_confusion,
        posterior=found,
    )


def _restarts(
    fitted: Fitted, data: PairData, x: Tensor, point: Float64, n: int, seed: int, progress: bool
) -> c.Alternatives:
    """The same answers fitted again from other starts, compared by the objective that all of them were to make small."""
    shown = fitted.split.train(data)
    pairs = tensors(shown, x)

    def terms(F: Tensor, agreement: Tensor) -> tuple[Float64, float]:
        volume = fitted.model.volume * float(log_volume(F)) if fitted.model.volume > 0 else 0.0
        return weighed(pair_nll(F, agreement, pairs).double().cpu().numpy(), shown), -volume

    own = terms(x.new_tensor(point), fitted.pair_agreement(pairs))
    others, found = [], []
    seeds = [seed_again(fitted, seed) + RESTARTS + k for k in range(n)]
    with tqdm(total=n, desc="restarts", disable=not progress, leave=False) as bar:
        trials = fit_again(fitted, x, [shown] * n, seeds, "restart", bar.update)
    for trial in trials:
        F = memberships(trial.model, x)
        others.append(F.double().cpu().numpy())
        found.append(terms(F, pair_agreement(trial.model, trial.guide, pairs)))
    penalties = np.array([penalty for _, penalty in found])
    return c.find_alternatives(point, *own, np.stack(others), np.stack([nll for nll, _ in found]), penalties)


def _similar(fitted: Fitted, data: PairData, x: Tensor) -> Float64:
    """Fitted probability of "similar" for every pair, (M,)."""
    pairs = tensors(data, x)
    F = torch.as_tensor(fitted.memberships(data.features)).to(x)
    left, right, B = F[pairs.i], F[pairs.j], fitted.pair_agreement(pairs)
    p = torch.einsum("mk,mkl,ml->m", left, B, right) if B.ndim == 3 else ((left @ B) * right).sum(1)
    return np.asarray(p.double().cpu().numpy().clip(0, 1))
