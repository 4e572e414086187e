"""Posterior draws of a fit's memberships and confusion by one of three engines."""

import logging
from dataclasses import replace

import numpy as np

from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted
from pdcc.inference.nuts import nuts_posterior
from pdcc.inference.variational import SampleStatus, svi_posterior
from pdcc.posterior.draws import SampleConfig, Sampled
from pdcc.posterior.inference_data import import_arviz
from pdcc.posterior.last_layer import double, last_layer_draws, last_layer_of
from pdcc.posterior.refits import ensemble_draws, refit
from pdcc.training import tensors

logger = logging.getLogger(__name__)

CONVERGED = 1.01


def sample(fitted: Fitted, data: PairData, how: SampleConfig, *, progress: bool = False) -> Sampled:
    """Aligned draws from the posterior of ``fitted`` given the answers ``data``."""
    data = fitted.known(data)
    reference = fitted.memberships(data.features)
    x = fitted.scaled(data.features)
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
    found = nuts_posterior(
        layer.model, layer.batch, layer.start,
        draws=how.draws, warmup=how.warmup, chains=how.chains, seed=how.seed, progress=progress,
    )  # fmt: skip
    return _judged(last_layer_draws(layer, found, reference), how.sites)


def _judged(drawn: Sampled, sites: str) -> Sampled:
    """NUTS converges where r_hat < 1.01 for B and the memberships of a hundred items, and nothing diverged."""
    arviz = import_arviz()

    K = drawn.agreement.shape[-1]
    some = np.unique(np.linspace(0, drawn.memberships.shape[2] - 1, 100).astype(int))
    numbers = np.concatenate(
        [
            drawn.agreement.reshape(*drawn.agreement.shape[:2], K * K),
            drawn.memberships[:, :, some].reshape(*drawn.agreement.shape[:2], -1),
        ],
        axis=2,
    )
    moving = numbers[..., numbers.reshape(-1, numbers.shape[-1]).std(axis=0) > 1e-6]
    chains = len(moving)
    worst = (
        max((float(arviz.rhat(moving[..., k])) for k in range(moving.shape[-1])), default=1.0) if chains > 1 else np.nan
    )
    if chains == 1:
        words = drawn.message + " One chain cannot show convergence: ask for four."
        logger.warning("NUTS: %s", words)
        return replace(drawn, status=SampleStatus.NOT_CONVERGED, message=words)
    words = f" Largest r_hat {worst:.3f}."
    good = drawn.status is SampleStatus.CONVERGED and worst < CONVERGED
    if not good:
        words += " Draw more (draws, warmup)" + (", or use sites='confusion'." if sites == "last-layer" else ".")
        logger.warning("NUTS did not converge: %s", drawn.message + words)
    return replace(
        drawn, status=SampleStatus.CONVERGED if good else SampleStatus.NOT_CONVERGED, message=drawn.message + words
    )
