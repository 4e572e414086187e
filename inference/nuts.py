"""Hamiltonian Monte Carlo (NUTS) of a model's latent sites, in coordinates that the mode's curvature straightens."""

from typing import Any

import torch
from pyro.infer import MCMC, NUTS
from pyro.nn import PyroModule
from torch import Tensor

from pdcc.inference.isolation import isolated
from pdcc.inference.laplace import covariance_root, find_mode, unconstrain
from pdcc.inference.variational import Draws, SampleStatus, widest
from pdcc.models.annotation import PairBatch

# A Hessian of this many rows takes as many backward passes; above it NUTS adapts a diagonal mass only.
MOST_WHITENED = 1200


def nuts_posterior(
    model: PyroModule,
    batch: PairBatch,
    start: dict[str, Tensor],
    *,
    draws: int = 500,
    warmup: int = 500,
    chains: int = 4,
    max_tree_depth: int = 8,
    seed: int = 0,
    progress: bool = False,
) -> Draws:
    """Run ``chains`` chains of NUTS one after the other, each from a draw of the Normal that fits the mode near ``start``.

    All chains thus begin in the fitted mode and tell about that mode alone. Divergences make the status "not converged"; the
    caller judges r_hat, once clusters are aligned. Model, batch and start should be float64.
    """
    found: list[dict[str, Tensor]] = []
    diverging = torch.zeros(chains, draws, dtype=torch.bool)
    with isolated(seed, batch.x.device):
        space = unconstrain(model, batch, start)
        mode = find_mode(space)
        root = (
            covariance_root(space, mode, widest(model)) if len(mode) <= MOST_WHITENED else torch.eye(len(mode)).to(mode)
        )

        def straightened(z: dict[str, Tensor]) -> Tensor:
            return space.energy(mode + root @ z["z"])

        for chain in range(chains):
            torch.manual_seed((seed * 1_000_003 + chain) % (1 << 63))
            kernel = NUTS(potential_fn=straightened, max_tree_depth=max_tree_depth, target_accept_prob=0.85)
            run: Any = MCMC(
                kernel,
                num_samples=draws,
                warmup_steps=warmup,
                initial_params={"z": torch.randn_like(mode)},
                disable_progbar=not progress,
            )
            run.run()
            z = run.get_samples()["z"]
            found.append({k: v.detach().cpu() for k, v in space.sites(mode + z @ root.mT).items()})
            diverging[chain, run.diagnostics()["divergences"]["chain 0"]] = True
    sites = {name: torch.stack([f[name] for f in found]) for name in start}
    bad = int(diverging.sum())
    words = f"NUTS, {chains} chains of {draws} draws after {warmup} warm-up steps each, {bad} of them divergent"
    return Draws(
        sites,
        SampleStatus.NOT_CONVERGED if bad else SampleStatus.CONVERGED,
        words + ".",
        "nuts",
        {"diverging": diverging},
    )
