"""Hamiltonian Monte Carlo of a model's latent sites, many chains side by side: the posterior in its own shape, at a guide's price."""

import math
from collections.abc import Callable

import pyro
import torch
from pyro.nn import PyroModule
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from tqdm.auto import tqdm

from pdcc.inference.isolation import isolated
from pdcc.inference.laplace import Unconstrained, covariance_root, diagonal_scales, find_mode, unconstrain
from pdcc.inference.variational import FULL_RANK, Draws, SampleStatus, widest
from pdcc.models.annotation import PairBatch

# A trajectory of this length in straightened coordinates ends about as far from its start as two draws are from each other.
LENGTH = math.pi / 2
MOST_LEAPS = 40
# Of more latent numbers than a Hessian is made for, so many directions are straightened, found in so many rounds.
STEEPEST, ROUNDS = 100, 3


def hmc_posterior(
    model: PyroModule,
    batch: PairBatch,
    start: dict[str, Tensor],
    *,
    draws: int = 48,
    warmup: int = 20,
    chains: int = 16,
    seed: int = 0,
    progress: bool = False,
) -> Draws:
    """Move ``chains`` chains at once, each from a draw of the Normal that fits the mode near ``start``.

    All begin in the fitted mode and tell about that mode alone. The step size follows the acceptance during the warm-up.
    "converged" means that the mean energy of the second half lies within three standard errors, over chains, of the first half's; the caller
    judges what the draws are worth. Model, batch and start should be float64.
    """
    with isolated(seed, batch.x.device):
        space = unconstrain(model, batch, start)
        mode = find_mode(space)
        energy = side_by_side(space, mode)
        if len(mode) <= FULL_RANK:
            straighten = _by(covariance_root(space, mode, widest(model)))
        else:
            straighten = _steepest(energy, mode, diagonal_scales(space, mode, widest(model)))

        def slope(z: Tensor) -> tuple[Tensor, Tensor]:
            z = z.detach().requires_grad_()
            found = energy(mode + straighten(z))
            (gradient,) = torch.autograd.grad(found.sum(), z)
            return found.detach(), gradient

        z = torch.randn(chains, len(mode)).to(mode)
        at, step = (z, *slope(z)), z.new_tensor(0.3)
        kept, energies, accepted = [], [], []
        for move in tqdm(range(warmup + draws), desc="hmc", disable=not progress, leave=False):
            at, chance = _move(at, step * float(0.8 + 0.4 * torch.rand(())), slope)
            if move < warmup:
                step = step * torch.exp((chance.mean() - 0.8).clamp(min=-0.5))
            else:
                kept.append(at[0])
                energies.append(at[1])
                accepted.append(chance)
        found = space.sites(mode + straighten(torch.stack(kept, 1)))
    levels = torch.stack(energies, 1).double().cpu()
    change, error = _drift(levels)
    steady = bool(torch.isfinite(levels).all()) and (draws < 2 or abs(change) <= 3 * error)
    words = f"HMC, {chains} chains of {draws} draws after {warmup} warm-up moves, acceptance {float(torch.stack(accepted).mean()):.2f}; the energy changed by {change:.3g} +- {error:.2g} between the halves."
    status = SampleStatus.CONVERGED if steady else SampleStatus.NOT_CONVERGED
    return Draws({k: found[k].detach().cpu() for k in start}, status, words, "hmc", {"energy": levels})


def side_by_side(space: Unconstrained, at: Tensor) -> Callable[[Tensor], Tensor]:
    """The potential energy of many vectors (C, D) at once, (C,): Pyro's program traced once, at ``at`` (D,), into plain tensor operations."""
    with pyro.validation_enabled(False):  # checks ask for values, which a trace has none of
        traced = make_fx(lambda flat: space.energy(flat))(at.clone())
    run: Callable[[Tensor], Tensor] = torch.func.vmap(traced)
    return run


def _by(root: Tensor) -> Callable[[Tensor], Tensor]:
    """z (..., D) -> R z for a root R (D, D)."""
    return lambda z: z @ root.mT


def _steepest(energy: Callable[[Tensor], Tensor], mode: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    """z (..., D) -> R z, where R R' follows the inverse Hessian at the mode along its ``STEEPEST`` steepest directions, in units of ``scales`` (D,).

    The directions come from a few rounds of subspace iteration with products of Hessian and vectors, all directions at once.
    """

    gradient: Callable[[Tensor], Tensor] = torch.func.grad(lambda flat: energy(flat[None])[0])
    back: Callable[[Tensor], tuple[Tensor]] = torch.func.vjp(gradient, mode)[1]

    def product(v: Tensor) -> Tensor:
        """Rows (n, D) times the Hessian, which is symmetric."""
        found: Tensor = torch.func.vmap(back)(scales * v)[0]
        return scales * found

    V = torch.linalg.qr(torch.randn(len(mode), STEEPEST).to(mode))[0]
    for _ in range(ROUNDS):
        V = torch.linalg.qr(product(V.mT).mT)[0]
    values, turn = torch.linalg.eigh(V.mT @ product(V.mT).mT)
    V = V @ turn
    shrink = values.clamp(min=1.0).rsqrt() - 1
    return lambda z: scales * (z + ((z @ V) * shrink) @ V.mT)


State = tuple[Tensor, Tensor, Tensor]


def _move(at: State, step: Tensor, slope: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[State, Tensor]:
    """One trajectory of every chain from (z (C, D), energy (C,), gradient (C, D)): where each ends up, and its chance of having moved."""
    z, level, gradient = at
    p = torch.randn_like(z)
    before = level + p.square().sum(1) / 2
    leaps = int((LENGTH / step).round().clamp(1, MOST_LEAPS))
    p = p - step * gradient / 2
    for leap in range(leaps):
        z = z + step * p
        level, gradient = slope(z)
        p = p - (step if leap + 1 < leaps else step / 2) * gradient
    chance = torch.exp((before - level - p.square().sum(1) / 2).clamp(max=0)).nan_to_num(0.0)
    moved = torch.rand_like(chance) < chance
    new = (z, level, gradient)
    z, level, gradient = (
        torch.where(moved if a.ndim == 1 else moved[:, None], a, b) for a, b in zip(new, at, strict=True)
    )
    return (z, level, gradient), chance


def _drift(levels: Tensor) -> tuple[float, float]:
    """How much the mean energy of chains (C, S) changed from the first half of their draws to the second, and its standard error."""
    half = levels.shape[1] // 2
    if half == 0 or len(levels) < 2:
        return 0.0, math.inf
    change = levels[:, half:].mean(1) - levels[:, :half].mean(1)
    return float(change.mean()), float(change.std() / math.sqrt(len(change)))
