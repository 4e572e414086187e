"""The same generative story with its last layer uncertain: what the posterior engines infer."""

import copy

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from pdcc.models.annotation import AnnotationModel, PairBatch
from pdcc.models.confusion import (
    AnnotatorConfusion,
    Confusion,
    NoConfusion,
    PooledConfusion,
    PooledPriorConfusion,
    RatesConfusion,
    RatesPriorConfusion,
    ShiftedConfusion,
    SigmoidConfusion,
    SigmoidPriorConfusion,
    StochasticConfusion,
)
from pdcc.models.membership import Membership
from pdcc.models.modules import seeded


class LastLayerModel(AnnotationModel):
    """Memberships softmax(G w) with w ~ Normal(0, scale), everything below the last layer fixed in G.

    Args:
        fitted: the trained model whose confusion form and partition this one has.
        n_basis: width r of the fixed basis G (N, r), see ``basis``.
        scale: standard deviation of the prior of every entry of w (r, K).
        n_pairs, total_weight: M, and how much all answers count together (None: M).
        fixed: w (r, K), to leave the memberships at a known value: then only the confusion is uncertain.
        confusion: what stands in for the fitted one, see ``uncertain_confusion``.
        volume: weight of the volume term; without one this is a posterior, with one a regularised (Gibbs) one.

    Batches hold the basis of *all* items in ``x`` (N, r), and in ``rows`` (2b,) the endpoints of their pairs.
    """

    def __init__(
        self,
        fitted: AnnotationModel,
        n_basis: int,
        scale: float,
        n_pairs: int,
        confusion: Confusion,
        fixed: Tensor | None = None,
        total_weight: float | None = None,
        *,
        volume: float = 0.0,
    ):
        K = fitted.membership.n_clusters
        labels = fitted.partition if len(fitted.partition) else None
        with seeded():
            net = Membership(n_basis, K, ())  # of its kind only: the weights are sampled
        super().__init__(
            net,
            confusion,
            n_pairs=n_pairs,
            volume=volume,
            total_weight=total_weight,
            partition=labels,
            partition_weight=fitted.partition_weight,
        )
        self.register_buffer("zero", torch.zeros(n_basis, K))
        self.register_buffer("fixed", fixed)
        self.scale = scale

    def forward(self, batch: PairBatch) -> Tensor:
        """The generative story; returns the memberships of all items, (N, K)."""
        weight = self.fixed
        if weight is None:
            weight = pyro.sample("weight", dist.Normal(self.zero, self.scale).to_event(2))
        F = torch.softmax(batch.x @ weight, dim=-1)
        self.from_memberships(F.index_select(0, batch.rows), F, batch)
        return F


class KnownConfusion(Confusion):
    """B held at known values: one for all, (K, K), or one for each of the M pairs, (M, K, K)."""

    def __init__(self, agreement: Tensor):
        super().__init__()
        self.register_buffer("known", agreement)

    def agreement(self) -> Tensor:
        """All of it."""
        known: Tensor = self.known
        return known

    def forward(self, batch: PairBatch | None = None) -> Tensor:
        """B, (K, K), or that of the batch's pairs, (b, K, K)."""
        known = self.agreement()
        return known if known.ndim == 2 or batch is None else known[batch.index]


def uncertain_confusion(fitted: nn.Module, n_clusters: int, shift: Tensor | None, known: Tensor) -> Confusion:
    """The prior form of a fitted confusion, for a posterior.

    shift: how the annotators depart from the shared confusion, (R, K, K), held fixed; None where they do not.
    known: B at the point estimate, (K, K) or (M, K, K), for a confusion that is not one of ours: it is held fixed.
    """
    if isinstance(fitted, PooledConfusion):
        return PooledPriorConfusion(n_clusters, fitted.deviation)
    if isinstance(fitted, RatesConfusion):
        return RatesPriorConfusion(n_clusters)
    if isinstance(fitted, SigmoidConfusion):
        return SigmoidPriorConfusion(n_clusters, symmetric=fitted.symmetric)
    if isinstance(fitted, AnnotatorConfusion) and shift is not None:
        return ShiftedConfusion(n_clusters, shift)
    if isinstance(fitted, NoConfusion | StochasticConfusion):
        return copy.deepcopy(fitted)
    return KnownConfusion(known)


def last_linear(net: Membership, x: Tensor) -> tuple[Tensor, nn.Linear]:
    """What the net's last layer sees of x (n, ...), (n, h), and that layer."""
    linear = [m for m in net.modules() if isinstance(m, nn.Linear) and m.out_features == net.n_clusters]
    seen: list[Tensor] = []
    if linear:
        hook = linear[-1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        try:
            with torch.no_grad():
                logits = net.logits(x)
        finally:
            hook.remove()
    if not seen or seen[-1].ndim != 2 or not torch.allclose(linear[-1](seen[-1]), logits, atol=1e-4):
        raise ValueError(
            "network: expected one that ends in nn.Linear(..., n_clusters), whose weights the posterior is about, found another. Use method='ensemble', or end the network so."
        )
    return seen[-1], linear[-1]


def basis(hidden: Tensor, weight: Tensor, scale: float, tolerance: float = 1e-2) -> tuple[Tensor, Tensor]:
    """(G, w): a narrow basis with G w = logits, for last-layer inputs (N, h) and the weight (h + 1, K), bias last.

    An isotropic Normal prior of deviation ``scale`` stays one under rotation, so the rows [hidden, 1] are rotated to their
    principal directions. Left out are directions along which neither the fitted weight nor one prior deviation moves the logits
    by more than ``tolerance`` (root mean square over items): there the posterior is the prior, and it does not matter.
    """
    rows = torch.cat([hidden, hidden.new_ones(len(hidden), 1)], dim=1).double()
    values, V = torch.linalg.eigh(rows.mT @ rows / len(rows))
    w = V.mT @ weight.double()
    keep = values.clamp(min=0).sqrt() * w.abs().amax(1).clamp(min=scale) > tolerance
    return (rows @ V[:, keep].flip(1)).to(hidden), w[keep].flip(0).to(hidden)
