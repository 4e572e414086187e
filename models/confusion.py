"""What stands between true memberships and answers: the agreement matrix B, in four forms.

``B[k, l]`` is the probability that a pure member of k and a pure member of l are called similar. The
likelihood sees confusion only through B, so every form returns B from ``forward()`` and samples, as Pyro
sites, whatever it holds uncertain.
"""

from typing import cast

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from pdcc.models.modules import LocalModule

CONFUSIONS = ("none", "sigmoid", "stochastic", "per-annotator")


class NoConfusion(LocalModule):
    """A = I: answers follow the memberships directly (VanillaDCC, paper eq. 4)."""

    def __init__(self, n_clusters: int):
        super().__init__()
        self.register_buffer("identity", torch.eye(n_clusters))

    def forward(self) -> Tensor:
        """B = I, (K, K)."""
        return cast(Tensor, self.identity)


class SigmoidConfusion(LocalModule):
    """B = sigmoid(B'), B' free: the paper's own algorithm (section 6), neither symmetric nor PSD.

    B' starts at ``start`` on the diagonal and ``-start`` off it; the paper's start is 1.
    """

    def __init__(self, n_clusters: int, start: float = 1.0):
        super().__init__()
        self.raw = nn.Parameter(start * (2 * torch.eye(n_clusters) - 1))

    def forward(self) -> Tensor:
        """B, (K, K)."""
        return torch.sigmoid(cast(Tensor, self._parameters["raw"]))  # not a param site: the module owns it


class SigmoidPriorConfusion(LocalModule):
    """B = sigmoid(B') with B' ~ Normal around the paper's start: what a posterior of the free form needs.

    A deviation of 2 puts the central 90 % of every entry of B between .09 and .99 (diagonal) or .01 and .91 (off it).
    """

    def __init__(self, n_clusters: int, start: float = 1.0, deviation: float = 2.0):
        super().__init__()
        self.register_buffer("centre", start * (2 * torch.eye(n_clusters) - 1))
        self.deviation = deviation

    def forward(self) -> Tensor:
        """B, (K, K)."""
        raw = pyro.sample("agreement_logits", dist.Normal(self.centre, self.deviation).to_event(2))
        return torch.sigmoid(raw)


class StochasticConfusion(LocalModule):
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

    def forward(self) -> Tensor:
        """B, (K, K)."""
        # Dirichlet draws are rows, so the site holds the columns of A as rows: columns[true, observed].
        columns = pyro.sample("confusion_columns", dist.Dirichlet(self.concentration).to_event(1))
        return cast(Tensor, columns @ columns.mT)


class AnnotatorConfusion(StochasticConfusion):
    """A confusion A_r for every annotator, drawn around a shared A: column by column, softmax(log A + shift_r).

    The shifts are Normal(0, ``deviation``), so that few answers move A_r little, and none not at all. B has R + 1 rows,
    (R + 1, K, K): the last is the shared one, for annotators never seen.
    """

    def __init__(self, n_clusters: int, n_annotators: int, deviation: float = 1.0):
        super().__init__(n_clusters)
        self.n_annotators, self.deviation = n_annotators, deviation
        self.register_buffer("centre", torch.zeros(n_clusters, n_clusters))

    def forward(self) -> Tensor:
        """B of every annotator and, last, the shared one, (R + 1, K, K)."""
        columns = pyro.sample("confusion_columns", dist.Dirichlet(self.concentration).to_event(1))
        with pyro.plate("annotators", self.n_annotators):
            shift = pyro.sample("annotator_shift", dist.Normal(self.centre, self.deviation).to_event(2))
        by_annotator = annotator_columns(columns, shift)
        return by_annotator @ by_annotator.mT


class ShiftedConfusion(StochasticConfusion):
    """``AnnotatorConfusion`` with the shifts held at known values (R, K, K): only the shared A is uncertain."""

    def __init__(self, n_clusters: int, shift: Tensor):
        super().__init__(n_clusters)
        self.register_buffer("shift", shift)

    def forward(self) -> Tensor:
        """B of every annotator and, last, the shared one, (R + 1, K, K)."""
        columns = pyro.sample("confusion_columns", dist.Dirichlet(self.concentration).to_event(1))
        by_annotator = annotator_columns(columns, self.shift)
        return by_annotator @ by_annotator.mT


def annotator_columns(columns: Tensor, shift: Tensor) -> Tensor:
    """Columns of every annotator's A as rows, [r, true, observed], the shared ones last, (..., R + 1, K, K).

    columns: the shared ones, (..., K, K). shift: (..., R, K, K).
    """
    shared = columns.unsqueeze(-3)
    own = torch.softmax(shared.clamp(min=torch.finfo(columns.dtype).tiny).log() + shift, -1)
    return torch.cat([own, shared.expand(*own.shape[:-3], 1, *columns.shape[-2:])], -3)


def make_confusion(form: str, n_clusters: int, n_annotators: int = 0) -> LocalModule:
    """The confusion called ``form``, one of ``CONFUSIONS``; "per-annotator" is "stochastic" where nobody is known."""
    if form == "per-annotator" and n_annotators:
        return AnnotatorConfusion(n_clusters, n_annotators)
    forms: dict[str, type[LocalModule]] = {
        "none": NoConfusion,
        "sigmoid": SigmoidConfusion,
        "stochastic": StochasticConfusion,
        "per-annotator": StochasticConfusion,
    }
    return forms[form](n_clusters)
