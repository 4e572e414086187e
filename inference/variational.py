"""A variational posterior of a model's latent sites, and what every posterior engine returns."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import pyro
import torch
from pyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoMultivariateNormal, AutoNormal, init_to_value
from pyro.nn import PyroModule
from torch import Tensor
from tqdm.auto import tqdm

from pdcc.inference.elbo import negative_elbo
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.inference.laplace import covariance_root, diagonal_scales, find_mode, unconstrain
from pdcc.models.annotation import PairBatch
from pdcc.models.modules import Module

GUIDES = ("low-rank", "normal")
# Up to this many latent numbers the low-rank guide has full rank. Either way it sets out from the curvature at the mode.
FULL_RANK = 400
RANK = 20


class SampleStatus(StrEnum):
    """Whether draws can be read as a posterior's."""

    CONVERGED = "converged"
    NOT_CONVERGED = "not converged"


@dataclass(frozen=True)
class Draws:
    """Draws of latent sites, each (chains, draws, ...), with how they came about.

    message: a sentence about the status. engine: what drew them. stats: arrays (chains, draws), if the engine has any.
    """

    sites: dict[str, Tensor]
    status: SampleStatus
    message: str
    engine: str
    stats: dict[str, Tensor] = field(default_factory=dict)


class _FullGuide(Module, AutoMultivariateNormal):  # type: ignore[misc]
    """A Normal with any covariance over all sites at once."""


class _LowRankGuide(Module, AutoLowRankMultivariateNormal):  # type: ignore[misc]
    """A Normal with low-rank plus diagonal covariance over all sites at once."""


class _NormalGuide(Module, AutoNormal):  # type: ignore[misc]
    """An independent Normal for every number."""


def svi_posterior(
    model: PyroModule,
    batch: PairBatch,
    start: dict[str, Tensor],
    *,
    draws: int = 500,
    guide: str = "low-rank",
    steps: int = 2000,
    lr: float = 1e-2,
    seed: int = 0,
    progress: bool = False,
) -> Draws:
    """Fit a Normal guide in unconstrained space to all latent sites, from ``start``, and draw from it (one chain).

    The step size falls to a hundredth over the run. "converged" means that the ELBO of the last fifth lies within three
    standard errors of the fifth before.
    """
    with isolated(seed, batch.x.device):
        q = _make_guide(guide, model, batch, start)
        # The model's own weights (a fitted confusion's, say) are not what is inferred.
        optimizer = torch.optim.Adam(q.parameters(), lr=lr)
        decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.01 ** (1 / steps))
        losses = []
        for _ in tqdm(range(steps), desc="svi", disable=not progress, leave=False):
            losses.append(descend(optimizer, negative_elbo(model, q, batch)))
            decay.step()
        before, last = torch.stack(losses).double().cpu()[-2 * (steps // 5) :].chunk(2)
        with torch.no_grad():
            found = [_sites(q, batch, start) for _ in range(draws)]
    error = float(((before.var() + last.var()) / len(last)).sqrt())
    change = float(before.mean() - last.mean())
    good = bool(torch.isfinite(last).all()) and abs(change) <= 3 * error
    sites = {name: torch.stack([f[name] for f in found])[None].cpu() for name in start}
    words = f"the ELBO changed by {change:.3g} +- {error:.2g} over the last fifth of {steps} steps"
    full = sum(int(v.numel()) for v in start.values()) <= FULL_RANK
    engine = "svi, normal guide" if guide == "normal" else "svi" if full else f"svi, rank {RANK}"
    return Draws(
        sites, SampleStatus.CONVERGED if good else SampleStatus.NOT_CONVERGED, f"{guide} guide: {words}.", engine
    )


def _make_guide(kind: str, model: PyroModule, batch: PairBatch, start: dict[str, Tensor]) -> PyroModule:
    """The guide, laid out on the batch."""
    init = init_to_value(values=start)
    latents = sum(int(v.numel()) for v in start.values())
    if kind == "normal":
        q: PyroModule = _NormalGuide(model, init_loc_fn=init, init_scale=0.05)
        q(batch)
        return q
    space = unconstrain(model, batch, start)
    mode = find_mode(space)
    full = latents <= FULL_RANK
    q = _FullGuide(model, init_loc_fn=init) if full else _LowRankGuide(model, init_loc_fn=init, rank=RANK)
    q(batch)
    with torch.no_grad():
        q.loc.copy_(mode)
    if full:
        root = covariance_root(space, mode, widest(model)).double()
        lower = torch.linalg.cholesky(root @ root.mT).to(mode)
        q.scale = lower.diagonal().clone()
        q.scale_tril = lower / lower.diagonal()[:, None]
    else:
        q.scale = diagonal_scales(space, mode, widest(model))
    return q


def widest(model: PyroModule) -> float:
    """The widest a posterior direction may sensibly be: the prior's deviation, in unconstrained space."""
    return max(float(getattr(model, "scale", 1.0)), 2.0)


def _sites(guide: PyroModule, batch: PairBatch, start: dict[str, Tensor]) -> dict[str, Tensor]:
    drawn = cast(dict[str, Any], pyro.poutine.trace(guide).get_trace(batch).nodes)
    return {name: drawn[name]["value"].detach() for name in start}
