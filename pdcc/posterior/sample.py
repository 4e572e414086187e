"""Posterior draws of a fit's memberships and confusion by one of four engines."""

import logging
from dataclasses import replace

import numpy as np

from pdcc.arrays import Float64
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted
from pdcc.inference.hmc import hmc_posterior
from pdcc.inference.nuts import nuts_posterior
from pdcc.inference.variational import SampleStatus, svi_posterior
from pdcc.posterior.arviz_calls import effective_draws, r_hat
from pdcc.posterior.draws import SampleConfig, Sampled
from pdcc.posterior.last_layer import double, last_layer_draws, last_layer_of
from pdcc.posterior.refits import ensemble_draws, refit
from pdcc.rows import whole
from pdcc.training import tensors

logger = logging.getLogger(__name__)

CONVERGED = 1.01
# Draws that are worth fewer than so many independent ones have no 5 % and 95 % quantiles to speak of.
WORTH = 50


def sample(fitted: Fitted, data: PairData, how: SampleConfig, *, progress: bool = False) -> Sampled:
    """Aligned draws from the posterior of ``fitted`` given the answers ``data``."""
    data = fitted.known(data)
    reference = fitted.memberships(data.features)
    x = fitted.scaled(whole(data.features, "a posterior"))
    if how.method == "ensemble":
        members = refit(fitted, data, chains=how.chains, draws=how.draws, seed=how.seed, progress=progress)
        return ensemble_draws(members, tensors(data, x), how.chains, how.draws, reference)
    only_confusion = how.sites == "confusion"
    layer = last_layer_of(
        fitted.model, fitted.guide, data, x,
        prior_scale=how.prior_scale, only_confusion=only_confusion, regularised=how.regularised,
    )  # fmt: skip
    if how.method == "svi":
        found = svi_posterior(
            layer.model, layer.batch, layer.start,
            draws=how.draws, guide=how.guide, steps=how.steps, seed=how.seed, progress=progress,
        )  # fmt: skip
        if found.status is not SampleStatus.CONVERGED:
            logger.warning("svi did not converge: %s Ask for more steps, or compare with method='nuts'.", found.message)
        return last_layer_draws(layer, found, reference)
    layer = double(layer)
    engine, judge = (hmc_posterior, _worth) if how.method == "hmc" else (nuts_posterior, _mixed)
    found = engine(
        layer.model, layer.batch, layer.start,
        draws=how.draws, warmup=how.warmup, chains=how.chains, seed=how.seed, progress=progress,
    )  # fmt: skip
    return judge(last_layer_draws(layer, found, reference), how.sites)


def _numbers(drawn: Sampled) -> Float64:
    """What is looked at for convergence, (C, S, n): B and the memberships of a hundred items, as far as they move."""
    C, S, N, K = drawn.memberships.shape
    some = np.unique(np.linspace(0, N - 1, 100).astype(int))
    parts = drawn.agreement.reshape(C, S, K * K), drawn.memberships[:, :, some].reshape(C, S, -1)
    numbers = np.concatenate(parts, axis=2)
    return np.asarray(numbers[..., numbers.reshape(C * S, -1).std(axis=0) > 1e-6])


def _worth(drawn: Sampled, sites: str) -> Sampled:
    """HMC's short chains converge where the energy is steady and draws of B and memberships are worth ``WORTH`` independent ones (median)."""
    moving = _numbers(drawn)
    enough = moving.shape[1] >= 4  # fewer cannot be halved
    each = [effective_draws(moving[..., k]) for k in range(moving.shape[-1])] if enough else []
    worth = float(np.median(each)) if each else np.nan if moving.shape[-1] else np.inf
    words = f" Draws are worth {worth:.0f} independent ones." if each else ""
    return _said(drawn, drawn.status is SampleStatus.CONVERGED and worth >= WORTH, words, "HMC", sites)


def _mixed(drawn: Sampled, sites: str) -> Sampled:
    """NUTS converges where r_hat < 1.01 for B and the memberships of a hundred items, and nothing diverged."""
    moving = _numbers(drawn)
    if len(moving) == 1:
        return _said(drawn, False, " One chain cannot show convergence: ask for four.", "NUTS", "")
    worst = max((r_hat(moving[..., k]) for k in range(moving.shape[-1])), default=1.0)
    good = drawn.status is SampleStatus.CONVERGED and worst < CONVERGED
    return _said(drawn, good, f" Largest r_hat {worst:.3f}.", "NUTS", sites)


def _said(drawn: Sampled, good: bool, words: str, engine: str, sites: str) -> Sampled:
    """With a status and its sentence; where draws did not converge, logged."""
    status = SampleStatus.CONVERGED if good else SampleStatus.NOT_CONVERGED
    if not good and sites:
        words += " Draw more (draws, warmup)" + (", or use sites='confusion'." if sites == "last-layer" else ".")
    if not good:
        logger.warning("%s did not converge: %s", engine, drawn.message + words)
    return replace(drawn, status=status, message=drawn.message + words)
