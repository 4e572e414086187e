"""The generative story of noisy pair answers, as one Pyro program."""

from dataclasses import dataclass
from typing import cast

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pdcc.models.membership import Membership
from pdcc.models.modules import LocalModule
from pdcc.models.volume import log_volume


@dataclass(frozen=True)
class PairBatch:
    """What the model is shown in one step: b pairs, all tensors on one device.

    x: features of the 2b endpoints, (2b, d), the b first endpoints and then the b second ones.
    similar: answers, (b,), 1.0 similar or 0.0 different.
    index: which of the M pairs these are, (b,).
    rows: which of the N items the endpoints are, (2b,).
    x_all: features of all N items where the volume is to be exact, else None (it is then estimated from x).
    annotator: which annotator answered, (b,), where the confusion tells annotators apart; else None.
    """

    x: Tensor
    similar: Tensor
    index: Tensor
    rows: Tensor
    x_all: Tensor | None = None
    annotator: Tensor | None = None


def similar_logits(left: Tensor, right: Tensor, agreement: Tensor) -> Tensor:
    """log p - log(1 - p) for p = <A m_i, A m_j> = m_i' B m_j, memberships (..., b, K) each; finite for p = 0 and 1.

    Memberships sum to one, so 1 - p = m_i' (11' - B) m_j. Computing it that way keeps its relative precision
    (1 - p by subtraction loses all digits, and its gradient, once p rounds to 1).
    """
    both = left @ torch.cat([agreement, 1 - agreement], dim=-1)  # p and 1 - p in one product
    both = both.view(*left.shape[:-1], 2, -1) * right[..., None, :]
    logs = both.sum(-1).clamp(min=torch.finfo(left.dtype).tiny).log()
    return logs[..., 0] - logs[..., 1]


def answer_logits(left: Tensor, right: Tensor, agreement: Tensor, annotator: Tensor | None) -> Tensor:
    """``similar_logits`` where B may be one for all, (..., K, K), or, given ``annotator`` (b,), one each, (..., R, K, K)."""
    if annotator is None:
        return similar_logits(left, right, agreement)
    own = agreement.index_select(-3, annotator)
    return similar_logits(left.unsqueeze(-2), right.unsqueeze(-2), own).squeeze(-1)


class AnnotationModel(LocalModule):
    """y ~ Bernoulli(<A f(x_i), A f(x_j)>) with the volume of the memberships as a factor (paper eqs. 9, 13).

    Args:
        membership: f_theta.
        confusion: a module whose ``forward()`` returns B = A'A, (K, K), or one for each annotator, (R, K, K).
        n_pairs: M, the number of pairs the batches come from.
        volume: lambda, the weight of logdet(F'F).
        partition: optionally, one unsupervised label per item, (N,) integers below K: one more noisy annotator.
        partition_weight: its weight against the pairs; 0 leaves it out.

    For a batch that holds all M pairs, ``log joint = -M objective - M volume K log N + log prior`` where
    objective is the paper's eq. 13 (plus ``partition_weight`` times the mean cross-entropy of the labels).
    """

    def __init__(
        self,
        membership: Membership,
        confusion: LocalModule,
        *,
        n_pairs: int,
        volume: float = 0.0,
        partition: Tensor | None = None,
        partition_weight: float = 0.0,
    ):
        super().__init__()
        self.membership = membership
        self.confusion = confusion
        self.n_pairs = n_pairs
        self.volume = volume
        self.partition_weight = partition_weight if partition is not None else 0.0
        K = membership.n_clusters
        self.register_buffer("partition", partition if partition is not None else torch.zeros(0, dtype=torch.long))
        self.register_buffer("partition_concentration", torch.ones(K, K) + torch.eye(K))

    def forward(self, batch: PairBatch) -> Tensor:
        """Tell the story of one batch; returns the memberships of its endpoints, (2b, K)."""
        # By way of PyroModule's attribute lookup every weight would become a param site, in every step.
        membership = cast(Membership, self._modules["membership"])
        f: Tensor = membership(batch.x)
        self.tell(f, f if batch.x_all is None else membership(batch.x_all), batch)
        return f

    def tell(self, f: Tensor, counted: Tensor, batch: PairBatch) -> None:
        """From memberships on: f (2b, K) of the endpoints, and those whose volume counts, (n, K)."""
        M = self.n_pairs
        left, right = f.chunk(2)
        agreement = cast(LocalModule, self._modules["confusion"])()
        logits = answer_logits(left, right, agreement, batch.annotator if agreement.ndim == 3 else None)

        with pyro.plate("pairs", M, subsample=batch.index):
            pyro.sample("similar", dist.Bernoulli(logits=logits), obs=batch.similar)

        # Outside the plate: a minibatch scales the likelihood by M/b and the volume not at all.
        volume = log_volume(counted) if self.volume > 0 else f.new_zeros(())
        pyro.factor("volume", M * self.volume * volume)

        if self.partition_weight > 0:
            self._unsupervised_annotator(f, batch.rows)

    def _unsupervised_annotator(self, f: Tensor, rows: Tensor) -> None:
        """z_n ~ Categorical(C m_n), C[observed, true] column-stochastic: a partition made without answers.

        Its labels are a function of the features, not independent draws given m_n, so they are tempered:
        together they weigh M * partition_weight, whatever N is.
        """
        columns = pyro.sample("partition_columns", dist.Dirichlet(self.partition_concentration).to_event(1))
        n_items = len(self.partition)
        with (
            pyro.plate("items", n_items, subsample=rows),
            pyro.poutine.scale(scale=self.n_pairs * self.partition_weight / n_items),
        ):
            pyro.sample("partition", dist.Categorical(probs=f @ columns), obs=self.partition[rows])
