"""What stands between true memberships and answers: the agreement matrix B, in five forms.

``B[k, l]`` is the probability that a pure member of k and a pure member of l are called similar. The likelihood sees
confusion only through B, so every form returns B from ``forward(batch)`` and samples, as Pyro sites, whatever it holds uncertain.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from pdcc.models.modules import Module, stacked
from pdcc.models.objective import annotator_columns, sigmoid_agreement, stochastic_agreement

if TYPE_CHECKING:
    from pdcc.models.annotation import PairBatch

CONFUSIONS = ("none", "sigmoid", "sigmoid-paper", "stochastic", "per-annotator")


class Confusion(Module):
    """B for the pairs of a batch: ``agreement()`` by default, one for all.

    One that looks at the batch's items says so with ``uses_items = True``.
    """

    uses_items = False

    @abstractmethod
    def agreement(self) -> Tensor:
        """Every matrix there is: B (K, K), or one per annotator and, last, the shared one, (R + 1, K, K)."""

    def forward(self, batch: "PairBatch | None" = None) -> Tensor:
        """B, (K, K), or one for each of the batch's pairs, (b, K, K)."""
        return self.agreement()


class NoConfusion(Confusion):
    """A = I: answers follow the memberships directly (VanillaDCC, paper eq. 4)."""

    def __init__(self, n_clusters: int):
        super().__init__()
        self.register_buffer("identity", torch.eye(n_clusters))

    def agreement(self) -> Tensor:
        """B = I, (K, K)."""
        identity: Tensor = self.identity
        return identity


class SigmoidConfusion(Confusion):
    """B = sigmoid(B'), B' a free parameter (paper, section 6), made symmetric first; not PSD in general.

    B' starts at ``start`` on the diagonal and ``-start`` off it; the paper's start is 1. The paper's own algorithm leaves
    B' as it is (``symmetric=False``), and then p(i, j) and p(j, i) differ.
    """

    def __init__(self, n_clusters: int, start: float = 1.0, *, symmetric: bool = True):
        super().__init__()
        self.raw = nn.Parameter(start * (2 * torch.eye(n_clusters) - 1))
        self.symmetric = symmetric

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        return sigmoid_agreement(self.raw, symmetric=self.symmetric)


class SigmoidPriorConfusion(Confusion):
    """B = sigmoid(B') with B' ~ Normal around the paper's start: what a posterior of the free form needs.

    A deviation of 2 puts the central 90 % of every entry of B between .09 and .99 (diagonal) or .01 and .91 (off it).
    """

    def __init__(self, n_clusters: int, start: float = 1.0, deviation: float = 2.0, *, symmetric: bool = True):
        super().__init__()
        self.register_buffer("centre", start * (2 * torch.eye(n_clusters) - 1))
        self.deviation, self.symmetric = deviation, symmetric

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        raw = stacked(pyro.sample("agreement_logits", dist.Normal(self.centre, self.deviation).to_event(2)))
        return sigmoid_agreement(raw, symmetric=self.symmetric)


class StochasticConfusion(Confusion):
    """B = A'A with A column-stochastic, ``A[observed, true]``: the generative story (paper eqs. 8-9).

    Column k of A is what a pure member of cluster k is taken for, drawn from a Dirichlet whose concentration
    is 1 plus ``right`` on the diagonal: annotators are believed right more often than wrong, weakly. A is
    identified only through A'A. ``start`` is the diagonal of A that optimisation sets out from.
    """

    def __init__(self, n_clusters: int, right: float = 1.0, start: float = 0.9):
        super().__init__()
        self.register_buffer("concentration", torch.ones(n_clusters, n_clusters) + right * torch.eye(n_clusters))
        off = (1 - start) / (n_clusters - 1)
        self.register_buffer(
            "initial", torch.full((n_clusters, n_clusters), off) + (start - off) * torch.eye(n_clusters)
        )

    def columns(self) -> Tensor:
        """The columns of A as rows, [true, observed], (K, K): Dirichlet draws are rows."""
        return stacked(pyro.sample("confusion_columns", dist.Dirichlet(self.concentration).to_event(1)))

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        return stochastic_agreement(self.columns())


class AnnotatorConfusion(StochasticConfusion):
    """A confusion A_r for every annotator, drawn around a shared A: column by column, softmax(log A + shift_r).

    The shifts are Normal(0, ``deviation``), so that few answers move A_r little, and none not at all. B has R + 1 matrices,
    (R + 1, K, K): the last is the shared one, for annotators never seen.
    """

    def __init__(self, n_clusters: int, n_annotators: int, deviation: float = 1.0):
        super().__init__(n_clusters)
        self.n_annotators, self.deviation = n_annotators, deviation
        self.register_buffer("centre", torch.zeros(n_clusters, n_clusters))

    def shift(self) -> Tensor:
        """How each annotator departs from the shared A, (R, K, K)."""
        with pyro.plate("annotators", self.n_annotators):
            drawn: Tensor = pyro.sample("annotator_shift", dist.Normal(self.centre, self.deviation).to_event(2))
        return drawn

    def agreement(self) -> Tensor:
        """B of every annotator and, last, the shared one, (R + 1, K, K)."""
        columns = self.columns()
        return stochastic_agreement(annotator_columns(columns, self.shift()))

    def forward(self, batch: "PairBatch | None" = None) -> Tensor:
        """B of whoever answered each pair, (b, K, K)."""
        if batch is None or batch.annotator is None:
            raise ValueError(
                f"batch: expected annotator numbers (b,) from 0 to {self.n_annotators}, since every annotator has a confusion of their own, found none. Pass annotator=..., with {self.n_annotators} for those never seen."
            )
        return self.agreement().index_select(-3, batch.annotator)


class ShiftedConfusion(AnnotatorConfusion):
    """``AnnotatorConfusion`` with the shifts held at known values (R, K, K): only the shared A is uncertain."""

    known_shift: Tensor

    def __init__(self, n_clusters: int, shift: Tensor):
        super().__init__(n_clusters, len(shift))
        self.register_buffer("known_shift", shift)

    def shift(self) -> Tensor:
        """The known ones."""
        return self.known_shift


def make_confusion(form: str, n_clusters: int, n_annotators: int = 0) -> Confusion:
    """The confusion called ``form``, one of ``CONFUSIONS``; "per-annotator" is "stochastic" where no annotators are known."""
    if form == "none":
        return NoConfusion(n_clusters)
    if form in ("sigmoid", "sigmoid-paper"):
        return SigmoidConfusion(n_clusters, symmetric=form == "sigmoid")
    if form == "per-annotator" and n_annotators:
        return AnnotatorConfusion(n_clusters, n_annotators)
    return StochasticConfusion(n_clusters)
