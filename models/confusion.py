"""What stands between true memberships and answers: the agreement matrix B, in seven forms.

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
from pdcc.models.objective import annotator_columns, sigmoid_agreement, stochastic_agreement, two_rates

if TYPE_CHECKING:
    from pdcc.models.annotation import PairBatch

CONFUSIONS = ("none", "rates", "pooled", "sigmoid", "sigmoid-paper", "stochastic", "per-annotator")


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


class RatesConfusion(Confusion):
    """Two rates of "similar", one within clusters and one across them, whichever the clusters: B = b 11' + (a - b) I.

    start: B, (K, K), to set out from (its mean logits on and off the diagonal); None: the paper's start, logits of +-1.
    """

    def __init__(self, n_clusters: int, start: Tensor | None = None):
        super().__init__()
        identity = torch.eye(n_clusters)
        logits = (2 * identity - 1) if start is None else start.logit()
        within = identity.to(logits) > 0
        self.rates = nn.Parameter(torch.stack([logits[within].mean(), logits[~within].mean()]))
        self.register_buffer("identity", identity.to(logits))

    def centre(self) -> Tensor:
        """Logits of the two rates as a matrix, (K, K)."""
        return two_rates(self.rates, self.identity)

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        return torch.sigmoid(self.centre())


class RatesPriorConfusion(Confusion):
    """The two rates with a prior, logits ~ Normal around the paper's start: what a posterior of them needs."""

    def __init__(self, n_clusters: int, deviation: float = 2.0):
        super().__init__()
        self.register_buffer("identity", torch.eye(n_clusters))
        self.register_buffer("mean", torch.tensor([1.0, -1.0]))
        self.deviation = deviation

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        return torch.sigmoid(stacked(self.centre()))

    def centre(self) -> Tensor:
        """Logits of the two rates as a matrix, (K, K)."""
        rates = pyro.sample("rate_logits", dist.Normal(self.mean, self.deviation).to_event(1))
        return two_rates(rates, self.identity)


class PooledConfusion(RatesConfusion):
    """Every two clusters have a rate of their own, drawn around two shared ones: logit B[k, l] ~ Normal(logit a or b, deviation).

    Few answers about two clusters leave them at the shared rate; many tell what is confused with what.
    """

    def __init__(self, n_clusters: int, start: Tensor | None = None, deviation: float = 0.5):
        super().__init__(n_clusters, start)
        self.register_buffer("initial", self.centre().detach() if start is None else start.logit())
        self.deviation = deviation

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        raw = stacked(pyro.sample("agreement_logits", dist.Normal(self.centre(), self.deviation).to_event(2)))
        return sigmoid_agreement(raw, symmetric=True)


class PooledPriorConfusion(RatesPriorConfusion):
    """A rate for every two clusters around two shared ones that have a prior themselves: what a posterior of the pooled form needs."""

    symmetric = True

    def __init__(self, n_clusters: int, spread: float = 0.5):
        super().__init__(n_clusters)
        self.spread = spread

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        raw = stacked(pyro.sample("agreement_logits", dist.Normal(self.centre(), self.spread).to_event(2)))
        return sigmoid_agreement(raw, symmetric=True)


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

    def __init__(self, n_clusters: int, deviation: float = 2.0, *, symmetric: bool = True):
        super().__init__()
        self.register_buffer("centre", 2 * torch.eye(n_clusters) - 1)
        self.deviation, self.symmetric = deviation, symmetric

    def agreement(self) -> Tensor:
        """B, (K, K)."""
        raw = stacked(pyro.sample("agreement_logits", dist.Normal(self.centre, self.deviation).to_event(2)))
        return sigmoid_agreement(raw, symmetric=self.symmetric)


class StochasticConfusion(Confusion):
    """B = A'A with A column-stochastic, ``A[observed, true]``: the generative story (paper eqs. 8-9).

    Column k of A is what a pure member of cluster k is taken for, drawn from a Dirichlet whose concentration
    is 1 plus ``right`` on the diagonal: annotators are believed right more often than wrong, weakly. A is
    identified only through A'A. Optimisation begins with ``columns``, those of A as rows (K, K), or with ``start`` on
    the diagonal of A and the same value everywhere else.
    """

    def __init__(self, n_clusters: int, right: float = 1.0, start: float = 0.9, columns: Tensor | None = None):
        super().__init__()
        self.register_buffer("concentration", torch.ones(n_clusters, n_clusters) + right * torch.eye(n_clusters))
        if columns is None:
            off = (1 - start) / (n_clusters - 1)
            columns = torch.full((n_clusters, n_clusters), off) + (start - off) * torch.eye(n_clusters)
        self.register_buffer("initial", columns)

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


def make_confusion(form: str, n_clusters: int, n_annotators: int = 0, start: Tensor | None = None) -> Confusion:
    """The confusion called ``form``, one of ``CONFUSIONS``; "per-annotator" is "stochastic" where no annotators are known.

    start: what optimisation begins with: B, (K, K), for "rates" and "pooled", the columns of A as rows for "stochastic".
    """
    if form == "none":
        return NoConfusion(n_clusters)
    if form in ("rates", "pooled"):
        return (RatesConfusion if form == "rates" else PooledConfusion)(n_clusters, start)
    if form in ("sigmoid", "sigmoid-paper"):
        return SigmoidConfusion(n_clusters, symmetric=form == "sigmoid")
    if form == "per-annotator" and n_annotators:
        return AnnotatorConfusion(n_clusters, n_annotators)
    return StochasticConfusion(n_clusters, columns=start)
