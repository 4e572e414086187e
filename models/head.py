"""The same generative story with its last layer uncertain: what the posterior engines infer."""

import copy

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pdcc.models.annotation import AnnotationModel, PairBatch
from pdcc.models.confusion import SigmoidConfusion, SigmoidPriorConfusion
from pdcc.models.membership import Membership
from pdcc.models.volume import log_volume


class HeadModel(AnnotationModel):
    """Memberships softmax(G w) with w ~ Normal(0, scale), everything below the last layer fixed in G.

    Args:
        fitted: the trained model whose confusion form, volume and partition this one has.
        n_basis: width r of the fixed basis G (N, r), see ``basis``.
        scale: standard deviation of the prior of every entry of w (r, K).
        n_pairs: M.
        fixed: w (r, K), to leave the memberships at a known value: then only the confusion is uncertain.

    With ``blind`` set, no answers are told: what remains is the prior, tilted by the volume factor.
    Batches hold the basis of *all* items in ``x`` (N, r), and in ``rows`` (2b,) the endpoints of their pairs.
    """

    def __init__(self, fitted: AnnotationModel, n_basis: int, scale: float, n_pairs: int, fixed: Tensor | None = None):
        confusion = copy.deepcopy(fitted.confusion)
        K = fitted.membership.n_clusters
        if isinstance(confusion, SigmoidConfusion):
            confusion = SigmoidPriorConfusion(K)
        labels = fitted.partition if len(fitted.partition) else None
        super().__init__(
            Membership(n_basis, K, ()),
            confusion,
            n_pairs=n_pairs,
            volume=fitted.volume,
            partition=labels,
            partition_weight=fitted.partition_weight,
        )
        self.register_buffer("zero", torch.zeros(n_basis, K))
        self.register_buffer("fixed", fixed)
        self.scale = scale
        self.blind = False

    def forward(self, batch: PairBatch) -> Tensor:
        """Tell the story; returns the memberships of all items, (N, K)."""
        weight = self.fixed
        if weight is None:
            weight = pyro.sample("weight", dist.Normal(self.zero, self.scale).to_event(2))
        F = torch.softmax(batch.x @ weight, dim=-1)
        if self.blind:
            pyro.factor("volume", self.n_pairs * self.volume * log_volume(F))
        else:
            self.tell(F.index_select(0, batch.rows), F, batch)
        return F


def basis(hidden: Tensor, weight: Tensor, tolerance: float = 1e-4) -> tuple[Tensor, Tensor]:
    """(G, w): a narrow basis with G w = logits, for last-layer inputs (N, h) and the weight (h + 1, K), bias last.

    An isotropic Normal prior on the weight stays one under rotation, so the rows [hidden, 1] are rotated to their
    principal directions, and directions that carry less than ``tolerance`` of the total variation are left out:
    there the posterior is the prior, and it moves no logit.
    """
    rows = torch.cat([hidden, hidden.new_ones(len(hidden), 1)], dim=1).double()
    values, vectors = torch.linalg.eigh(rows.mT @ rows)
    # Smallest first: drop the longest run whose share of the trace stays below the tolerance.
    keep = values.clamp(min=0).cumsum(0) > tolerance * values.sum()
    V = vectors[:, keep].flip(1)
    return (rows @ V).to(hidden), (V.mT @ weight.double()).to(hidden)
