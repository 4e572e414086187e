"""The generative story of noisy pair answers, as one Pyro program."""

import contextlib
import inspect
from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.distributions import constraints

from pdcc.models.membership import Membership
from pdcc.models.modules import Module, stacked
from pdcc.models.objective import similar_logits, taken_for, volume_factor
from pdcc.models.volume import Pool


class GradedBernoulli(dist.Bernoulli):  # type: ignore[misc]
    """Bernoulli that may be observed in between: a value y of [0, 1] has density y log p + (1 - y) log(1 - p)."""

    support = constraints.unit_interval


@dataclass(frozen=True)
class PairBatch:
    """What the model is shown in one step: b pairs, all tensors on one device.

    x: items at the 2b endpoints, (2b, d) or (2b, ...), the b first endpoints and then the b second ones.
    similar: answers, (b,), 1.0 similar, 0.0 different, or a probability in between; None: not known, the model then draws them.
    index: which of the M pairs these are, (b,).
    rows: which of the N items the endpoints are, (2b,).
    x_all: all N items where the volume is to be exact, else None (it is then estimated from x).
    annotator: which annotator answered, (b,), where the confusion tells annotators apart; else None.
    weight: how much each answer counts, (b,); None: once.
    pool: sums a tensor over the processes that share a batch, of which this is one's part; None: it is all of it.
    """

    x: Tensor
    similar: Tensor | None
    index: Tensor
    rows: Tensor
    x_all: Tensor | None = None
    annotator: Tensor | None = None
    weight: Tensor | None = None
    pool: Pool | None = None


class AnnotationModel(Module):
    """y ~ Bernoulli(<A f(x_i), A f(x_j)>) with the volume of the memberships as a factor (paper eqs. 9, 13).

    An ordinary Pyro program: every weight is a param site, so ``pyro.infer.SVI`` trains it with any guide and optimiser.

    Args:
        membership: f_theta.
        confusion: a module whose ``forward()`` or ``forward(batch)`` returns B = A'A, (K, K), or one for each pair, (b, K, K).
        n_pairs: M, the number of pairs the batches come from.
        volume: lambda, the weight of logdet(F'F).
        total_weight: W, how much all M answers count together; None: M.
        partition: optionally, one unsupervised label per item, (N,) integers below K: one more noisy annotator.
        partition_weight: its weight against the pairs; 0 leaves it out.
        name: put before the names of param sites; two programs with parameters of one name share them in Pyro's store.

    For a batch that holds all M pairs, ``log joint = -W objective - W volume K log N + log prior`` where
    objective is the paper's eq. 13 (plus ``partition_weight`` times the mean cross-entropy of the labels).

    Examples:
        >>> import pyro, torch
        >>> from pdcc.inference import PairTensors
        >>> from pdcc.models import AnnotationModel, Membership, StochasticConfusion
        >>> pairs = PairTensors(torch.randn(6, 2), torch.tensor([0, 2]), torch.tensor([1, 5]), torch.tensor([1.0, 0.0]))
        >>> model = AnnotationModel(Membership(2, 3), StochasticConfusion(3), n_pairs=2, volume=0.01)
        >>> trace = pyro.poutine.trace(model).get_trace(pairs.batch(torch.arange(2)))
        >>> [name for name in ("confusion_columns", "similar", "volume") if name in trace.nodes]
        ['confusion_columns', 'similar', 'volume']
    """

    def __init__(
        self,
        membership: Membership,
        confusion: nn.Module,
        *,
        n_pairs: int,
        volume: float = 0.0,
        total_weight: float | None = None,
        partition: Tensor | None = None,
        partition_weight: float = 0.0,
        name: str = "",
    ):
        super().__init__(name)
        self.membership = membership
        self.confusion = confusion
        self.n_pairs = n_pairs
        self.total_weight = float(n_pairs if total_weight is None else total_weight)
        self.volume = volume
        self.partition_weight = partition_weight if partition is not None else 0.0
        self.confusion_takes_batch = bool(inspect.signature(confusion.forward).parameters)
        K = membership.n_clusters
        self.register_buffer("partition", partition if partition is not None else torch.zeros(0, dtype=torch.long))
        self.register_buffer("partition_concentration", torch.ones(K, K) + torch.eye(K))

    def forward(self, batch: PairBatch) -> Tensor:
        """The generative story of one batch; returns the memberships of its endpoints, (2b, K)."""
        membership = self.membership
        f: Tensor = membership(batch.x)
        self.from_memberships(f, f if batch.x_all is None else membership(batch.x_all), batch)
        return f

    def from_memberships(self, f: Tensor, counted: Tensor, batch: PairBatch) -> None:
        """The story from the memberships on: f (2b, K) of the endpoints, and those whose volume counts, (n, K)."""
        left, right = f.chunk(2)
        logits = similar_logits(left, right, self.agreement(batch))

        counts = contextlib.nullcontext() if batch.weight is None else pyro.poutine.scale(scale=batch.weight)
        with pyro.plate("pairs", self.n_pairs, subsample=batch.index), counts:
            answer = dist.Bernoulli if batch.similar is None else GradedBernoulli  # nobody draws an answer in between
            pyro.sample("similar", answer(logits=logits), obs=batch.similar)

        # Outside the plate: a minibatch scales the likelihood by M/b and the volume not at all.
        pyro.factor("volume", volume_factor(counted, self.total_weight, self.volume, batch.pool))

        if self.partition_weight > 0:
            self._unsupervised_annotator(f, batch.rows)

    def agreement(self, batch: PairBatch) -> Tensor:
        """B for the pairs of a batch, (K, K) or (b, K, K)."""
        confusion = self.confusion
        found: Tensor = confusion(batch) if self.confusion_takes_batch else confusion()
        return found

    def _unsupervised_annotator(self, f: Tensor, rows: Tensor) -> None:
        """z_n ~ Categorical(C m_n), C[observed, true] column-stochastic: a partition made without answers.

        Its labels are a function of the features, not independent draws given m_n, so they are tempered:
        together they weigh W * partition_weight, whatever N is.
        """
        drawn = pyro.sample("partition_columns", dist.Dirichlet(self.partition_concentration).to_event(1))
        columns = drawn if drawn.ndim == 2 else stacked(drawn).squeeze(-3)
        n_items = len(self.partition)
        with (
            pyro.plate("items", n_items, subsample=rows),
            pyro.poutine.scale(scale=self.total_weight * self.partition_weight / n_items),
        ):
            pyro.sample("partition", dist.Categorical(probs=taken_for(f, columns)), obs=self.partition[rows])
