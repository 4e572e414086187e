"""A prior one can draw from, and the posterior engines as simulation-based calibration runs them.

Normal weights on the last layer, everything below it fixed, Dirichlet columns of A, and no volume term: a volume factor tilts the
prior, so that plain prior draws would no longer come from it and calibration would have to fail.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pdcc.arrays import Float64
from pdcc.inference import FitConfig, PairTensors
from pdcc.inference.ensemble import fit_ensemble
from pdcc.inference.isolation import isolated, one_thread
from pdcc.inference.laplace import find_mode, unconstrain
from pdcc.inference.nuts import nuts_posterior
from pdcc.inference.variational import svi_posterior
from pdcc.metrics import align
from pdcc.models import AnnotationModel, Membership, PairBatch, StochasticConfusion
from pdcc.models.last_layer import LastLayerModel
from pdcc.models.modules import seeded
from pdcc.posterior.draws import Sampled
from pdcc.posterior.last_layer import LastLayer, last_layer_draws
from pdcc.posterior.refits import ensemble_draws

STARTS = 5


@dataclass(frozen=True)
class Problem:
    """Answers drawn from the prior. ``truth`` (N, K) serves to name clusters, and for nothing else."""

    layer: LastLayer
    pairs: PairTensors
    truth: Float64


@dataclass(frozen=True)
class Simulator:
    """Draws problems: N items with fixed features of width r, K clusters, M answers.

    spread: standard deviation of the logits under the prior. right: the Dirichlet's extra weight on A's diagonal.
    """

    n_items: int = 100
    n_pairs: int = 1000
    n_clusters: int = 3
    width: int = 4
    spread: float = 3.0
    right: float = 6.0
    features: Tensor = field(init=False)

    def __post_init__(self) -> None:
        rows = np.random.default_rng(0).normal(size=(self.n_items, self.width))  # fixed: the layers below, as it were
        object.__setattr__(self, "features", torch.as_tensor(rows))

    def __call__(self, rng: np.random.Generator) -> tuple[Problem, Mapping[str, ArrayLike]]:
        """(problem, truth): truth holds B and the mean probability of an answer "similar"."""
        N, M, K, r = self.n_items, self.n_pairs, self.n_clusters, self.width
        scale = self.spread / np.sqrt(r)
        G = self.features.numpy()
        F = np.asarray(torch.softmax(torch.as_tensor(G @ rng.normal(0, scale, size=(r, K))), -1))
        confusion = StochasticConfusion(K, right=self.right).double()
        columns = np.stack([rng.dirichlet(a) for a in confusion.concentration.numpy()])
        B = columns @ columns.T
        i, j = np.stack([rng.choice(N, size=2, replace=False) for _ in range(M)]).T
        p = np.einsum("mk,kl,ml->m", F[i], B, F[j])
        similar = torch.as_tensor(rng.random(M) < p).double()
        base = AnnotationModel(Membership(r, K, ()), confusion, n_pairs=M).double()
        model = LastLayerModel(base, r, float(scale), M, confusion).double()
        ends = torch.as_tensor(np.concatenate([i, j]))
        layer = LastLayer(model, PairBatch(self.features, similar, torch.arange(M), ends), {})
        pairs = PairTensors(self.features, ends[:M], ends[M:], similar)
        return Problem(layer, pairs, F), {"B": _upper(B), "rate": float(p.mean())}


def _upper(B: Float64) -> Float64:
    return np.asarray(B[..., *np.triu_indices(B.shape[-1])])


def start_of(problem: Problem, seed: int) -> dict[str, Tensor]:
    """Where a user's fit would be: the best mode of several random starts."""
    model, batch = problem.layer.model, problem.layer.batch
    K = problem.truth.shape[1]
    found = []
    with isolated(seed, batch.x.device):
        for _ in range(STARTS):
            first = {
                "weight": model.scale * torch.randn_like(model.zero),
                "confusion_columns": StochasticConfusion(K).initial.to(model.zero),
            }
            space = unconstrain(model, batch, first)
            mode = find_mode(space)
            found.append((float(space.energy(mode)), space.sites(mode)))
    return min(found, key=lambda one: one[0])[1]


def engine(problem: Problem, seed: int, *, method: str, **options: Any) -> dict[str, Float64]:
    """Posterior draws of B and the mean rate by one of "svi", "normal" (mean-field), "nuts", "ensemble"; clusters named as in the truth."""
    with one_thread():
        drawn = _draw(problem, seed, method, options)
    mean = drawn.memberships.mean(axis=(0, 1), dtype=np.float64)
    order = align(problem.truth, mean)
    F = drawn.memberships.reshape(-1, *drawn.memberships.shape[2:]).astype(np.float64)
    B = drawn.agreement.reshape(-1, *drawn.agreement.shape[2:])
    i, j = problem.pairs.i.numpy(), problem.pairs.j.numpy()
    rate = np.array([np.einsum("mk,kl,ml->m", f[i], b, f[j]).mean() for f, b in zip(F, B, strict=True)])
    return {"B": _upper(B[:, order][:, :, order]), "rate": rate}


def _draw(problem: Problem, seed: int, method: str, options: dict[str, Any]) -> Sampled:
    if method == "ensemble":
        return _ensemble(problem, seed, **options)
    start = start_of(problem, seed)
    layer = LastLayer(problem.layer.model, problem.layer.batch, start)
    reference = torch.softmax(layer.batch.x @ start["weight"], -1).detach().numpy()
    if method == "nuts":
        found = nuts_posterior(layer.model, layer.batch, start, seed=seed, **options)
    else:
        guide = "normal" if method == "normal" else "low-rank"
        found = svi_posterior(layer.model, layer.batch, start, guide=guide, seed=seed, **options)
    return last_layer_draws(layer, found, reference)


def _ensemble(problem: Problem, seed: int, chains: int = 4, draws: int = 25) -> Sampled:
    pairs = problem.pairs
    K, r = problem.truth.shape[1], pairs.x.shape[1]
    nets: list[Membership] = []
    with seeded(seed):
        for _ in range(chains):
            nets += [Membership(r, K, ()).double()] * draws
    M = len(pairs)
    order = torch.randperm(M, generator=torch.Generator().manual_seed(seed))
    train, test = (
        PairTensors(pairs.x, pairs.i[o], pairs.j[o], pairs.similar[o]) for o in (order[M // 10 :], order[: M // 10])
    )
    config = FitConfig(60, 200, 3e-2, 3e-2, "adam", False, 10, seed)
    members = fit_ensemble(nets, problem.layer.model, train, test, config)
    best = int(members.nll.argmin())
    reference = members.memberships(pairs.in_memory)[best].numpy().astype(np.float64)
    return ensemble_draws(members, pairs, chains, draws, reference)
