"""Draws of the last layer before any answer: its Normal prior, tilted by the volume factor."""

import torch
from torch import Tensor

from pdcc.models.volume import log_volume

MOVES, LEAPS = 40, 6


def tilted_prior(x: Tensor, scale: float, weight: float, n_clusters: int, *, draws: int, seed: int) -> Tensor:
    """Weights (draws, r, K) of density Normal(0, scale) x exp(weight * log volume of softmax(x w)), for a basis x (N, r).

    Every chain of Hamiltonian Monte Carlo starts at a draw of the Normal, all move at once, and the step size follows their
    acceptance. With ``weight`` 0 the start is the answer; with a heavy one, ``MOVES`` moves go from the prior towards the tilt.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(draws, x.shape[1], n_clusters, generator=generator).to(x)

    u = normal()  # in units of the prior's deviation
    if weight == 0:
        return scale * u

    def energy(u: Tensor) -> Tensor:
        return u.square().sum((1, 2)) / 2 - weight * log_volume(torch.softmax(x @ (scale * u), -1)).to(u)

    def slope(u: Tensor) -> Tensor:
        u = u.detach().requires_grad_()
        (found,) = torch.autograd.grad(energy(u).sum(), u)
        return found

    step = 0.1
    for _ in range(MOVES):
        p, at = normal(), u
        start = energy(u) + p.square().sum((1, 2)) / 2
        p = p - step * slope(at) / 2
        for leap in range(LEAPS):
            at = at + step * p
            p = p - (step if leap + 1 < LEAPS else step / 2) * slope(at)
        chance = torch.exp((start - energy(at) - p.square().sum((1, 2)) / 2).clamp(max=0)).nan_to_num(0.0)
        taken = torch.rand(draws, generator=generator).to(x) < chance
        u = torch.where(taken[:, None, None], at, u)
        step = min(max(step * (1.2 if float(chance.mean()) > 0.7 else 0.7), 1e-4), 0.5)
    return scale * u
