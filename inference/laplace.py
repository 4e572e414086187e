"""The mode of a model's latent sites and the curvature there, in unconstrained space."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from pyro.infer.autoguide.initialization import init_to_value
from pyro.infer.mcmc.util import initialize_model
from pyro.nn import PyroModule
from torch import Tensor

from pdcc.models.annotation import PairBatch


@dataclass(frozen=True)
class Unconstrained:
    """All latent sites as one vector: its potential energy (- log joint, Jacobians in), its start, and the way back."""

    potential: Callable[[dict[str, Tensor]], Tensor]
    start: Tensor
    shapes: dict[str, torch.Size]
    transforms: dict[str, Any]

    def energy(self, flat: Tensor) -> Tensor:
        """Potential energy of one vector (D,)."""
        return self.potential(self._parts(flat))

    def sites(self, flat: Tensor) -> dict[str, Tensor]:
        """Constrained sites of vectors (..., D)."""
        return {k: self.transforms[k].inv(v) if k in self.transforms else v for k, v in self._parts(flat).items()}

    def _parts(self, flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split([s.numel() for s in self.shapes.values()], dim=-1)
        return {k: p.reshape(*flat.shape[:-1], *s) for (k, s), p in zip(self.shapes.items(), parts, strict=True)}


def unconstrain(model: PyroModule, batch: PairBatch, start: dict[str, Tensor]) -> Unconstrained:
    """The model's latent sites in unconstrained space, from the constrained values ``start``."""
    first, potential, transforms, _ = initialize_model(
        model, model_args=(batch,), init_strategy=init_to_value(values=start)
    )
    flat = torch.cat([v.detach().flatten() for v in first.values()])
    return Unconstrained(potential, flat, {k: v.shape for k, v in first.items()}, transforms)


def find_mode(space: Unconstrained, steps: int = 200) -> Tensor:
    """The mode (D,) that L-BFGS reaches from the start."""
    at = space.start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([at], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = space.energy(at)
        loss.backward()
        return loss

    optimizer.step(closure)
    return at.detach() if bool(torch.isfinite(at).all()) else space.start


def covariance_root(space: Unconstrained, mode: Tensor, widest: float) -> Tensor:
    """A root R (D, D), R R' = inverse Hessian at the mode: D backward passes.

    Where the mode was not quite reached curvature may be negative: its size counts, and no direction is wider than ``widest``.
    """
    hessian: Tensor = torch.autograd.functional.hessian(space.energy, mode)
    values, vectors = torch.linalg.eigh(((hessian + hessian.mT) / 2).double())
    root: Tensor = vectors * values.abs().clamp(min=widest**-2).rsqrt()
    return root.to(mode)


def diagonal_scales(space: Unconstrained, mode: Tensor, widest: float, probes: int = 20) -> Tensor:
    """1 / sqrt of the Hessian's diagonal (D,), estimated from its products with random signs."""
    total = torch.zeros_like(mode)
    for _ in range(probes):
        signs = torch.sign(torch.rand_like(mode) - 0.5)
        _, product = torch.autograd.functional.hvp(space.energy, mode, signs)
        total += signs * product
    return (total / probes).abs().clamp(min=widest**-2).rsqrt()
