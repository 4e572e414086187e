"""R nets and confusions as stacked tensors, and the objective of each: what trains many fits at once stands on this."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pdcc.inference.batches import PairTensors
from pdcc.models.annotation import AnnotationModel
from pdcc.models.confusion import (
    AnnotatorConfusion,
    PooledConfusion,
    RatesConfusion,
    SigmoidConfusion,
    StochasticConfusion,
)
from pdcc.models.membership import Membership, drop
from pdcc.models.objective import (
    annotator_columns,
    answer_logits,
    answer_nll,
    log_dirichlet,
    sigmoid_agreement,
    similar_logits,
    stochastic_agreement,
    taken_for,
    two_rates,
)
from pdcc.models.volume import log_volume

Layers = tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class Part:
    """The b pairs that every member is shown in a step: the same for all, or each its own.

    rows: items at the endpoints, (2b,) or (R, 2b). similar, annotator: (b,) or (R, b). weight: (R, b). labels: of the partition, (R, 2b).
    share: how much each endpoint counts, (R, 2b), of mean 1 and 0 where a member has fewer than b pairs; None: all the same.
    """

    rows: Tensor
    similar: Tensor
    annotator: Tensor | None
    weight: Tensor
    labels: Tensor | None = None
    share: Tensor | None = None


class Stack:
    """What R members train: stacked nets and, as the form of ``like`` asks for, stacked confusions; and their losses.

    layers: weights (R, in, out) and biases (R, 1, out). raw: B' of a free or pooled B or log columns of A, (R, K, K). rates: logits of
    two rates, (R, 2). shift: annotators' departures, (R, P, K, K). partition: log columns of the partition's confusion, (R, K, K).
    """

    def __init__(self, nets: Sequence[Membership], like: AnnotationModel, pairs: PairTensors):
        R, K = len(nets), like.membership.n_clusters
        self.like, self.pairs, self.size = like, pairs, R
        stacks = zip(*([m for m in net.modules() if isinstance(m, nn.Linear)] for net in nets), strict=True)
        self.layers: Layers = tuple(
            (
                torch.stack([m.weight.detach().mT for m in same]).clone().requires_grad_(),
                torch.stack([m.bias.detach()[None] for m in same]).clone().requires_grad_(),
            )
            for same in stacks
        )
        self.dropout = next((m.p for m in nets[0].modules() if isinstance(m, nn.Dropout)), 0.0)
        confusion = like.confusion
        self.free = confusion if isinstance(confusion, SigmoidConfusion) else None
        self.stochastic = confusion if isinstance(confusion, StochasticConfusion) else None
        self.annotators = confusion if isinstance(confusion, AnnotatorConfusion) else None
        self.two = confusion if isinstance(confusion, RatesConfusion) else None
        self.pooled = confusion if isinstance(confusion, PooledConfusion) else None
        self.identity = torch.eye(K, dtype=pairs.x.dtype, device=pairs.x.device)
        start = StochasticConfusion(K).initial.to(pairs.x).log()
        raw = 2 * self.identity - 1 if self.free else start  # the paper's start, or near the identity
        if self.pooled is not None:
            raw = self.pooled.centre().detach()
        learned = confusion in (self.free, self.stochastic, self.pooled)
        self.raw = raw.expand(R, K, K).clone().requires_grad_(learned)
        rates = raw.new_zeros(2) if self.two is None else self.two.rates.detach()
        self.rates = rates.expand(R, 2).clone().requires_grad_(self.two is not None)
        n_annotators = 0 if self.annotators is None else self.annotators.n_annotators
        self.shift = raw.new_zeros(R, n_annotators, K, K).requires_grad_(self.annotators is not None)
        self.partition = start.expand(R, K, K).clone().requires_grad_(like.partition_weight > 0)

    def tensors(self) -> list[Tensor]:
        """All that training changes."""
        return [t for layer in self.layers for t in layer] + self.confusions()

    def confusions(self) -> list[Tensor]:
        """What is not a net's."""
        return [self.raw, self.rates, self.partition, self.shift]

    def columns(self) -> Tensor:
        """Columns of the members' A as rows, (R, K, K)."""
        return torch.softmax(self.raw, -1)

    def agreement(self) -> Tensor:
        """B of every member, (R, 1, K, K), or of its annotators and, last, the shared one, (R, P + 1, K, K)."""
        if self.free is not None or self.pooled is not None:
            return sigmoid_agreement(self.raw, symmetric=self.free is None or self.free.symmetric)[:, None]
        if self.two is not None:
            return torch.sigmoid(two_rates(self.rates, self.identity))[:, None]
        columns = (self.columns() if self.stochastic else self.identity.expand(self.size, -1, -1))[:, None]
        return stochastic_agreement(columns if self.annotators is None else annotator_columns(columns, self.shift))

    def losses(self, index: Tensor, weight: Tensor, volume: Tensor) -> Tensor:
        """Each member's objective, per answer, on the pairs numbered ``index`` (b,); weight (R, M), volume (R,)."""
        pairs = self.pairs
        rows = torch.cat([pairs.i[index], pairs.j[index]])
        annotator = None if pairs.annotator is None else pairs.annotator[index]
        labels = self.like.partition[rows].expand(self.size, -1) if self.like.partition_weight > 0 else None
        part = Part(rows, pairs.similar[index], annotator, weight[:, index], labels)
        return self.objective(part, volume, pairs.total_weight)

    def objective(self, part: "Part", volume: Tensor, total: float | Tensor) -> Tensor:
        """Each member's objective, per answer, (R,); volume: (R,). total: how much all answers count together, one for all or (R,)."""
        like = self.like
        F = torch.softmax(scores(self.layers, self.pairs.x[part.rows], self.dropout), -1)
        left, right = F.chunk(2, dim=1)
        loss = (answer_nll(self.answer_logits(left, right, part.annotator), part.similar) * part.weight).mean(1)
        if like.volume > 0:
            counted = F if part.share is None else F * part.share[..., None].sqrt()
            loss = loss - volume * log_volume(counted).to(loss)
        if self.stochastic is not None:
            loss = loss - log_dirichlet(self.columns(), self.stochastic.concentration) / total
        if self.pooled is not None:
            apart = (self.raw - two_rates(self.rates, self.identity)) / self.pooled.deviation
            loss = loss + apart.square().sum((1, 2)) / (2 * total)
        if self.annotators is not None:
            loss = loss + (self.shift / self.annotators.deviation).square().sum((1, 2, 3)) / (2 * total)
        if part.labels is not None:
            columns = torch.softmax(self.partition, -1)
            logs = taken_for(F, columns).gather(2, part.labels[..., None]).clamp(min=1e-30).log()
            logs = logs if part.share is None else logs * part.share[..., None]
            loss = loss - like.partition_weight * logs.mean((1, 2))
            loss = loss - log_dirichlet(columns, like.partition_concentration) / total
        return loss

    def answer_logits(self, left: Tensor, right: Tensor, annotator: Tensor | None) -> Tensor:
        """Logits of "similar", (R, b), for memberships (R, b, K) each; annotator: (b,), (R, b) or None."""
        if self.annotators is None or annotator is None or annotator.ndim == 1:
            return answer_logits(left, right, self.agreement(), None if self.annotators is None else annotator)
        member = torch.arange(self.size, device=annotator.device)[:, None]
        return similar_logits(left, right, self.agreement()[member, annotator])

    @torch.no_grad()
    def nll(self, pairs: PairTensors) -> Tensor:
        """Mean negative log-likelihood of the pairs under every member, (R,), without dropout."""
        rows, where = torch.unique(torch.cat([pairs.i, pairs.j]), return_inverse=True)
        F = torch.softmax(scores(self.layers, pairs.x[rows]), -1)
        i, j = where.chunk(2)
        return pairs.mean(answer_nll(self.answer_logits(F[:, i], F[:, j], pairs.annotator), pairs.similar))


def scores(layers: Layers, x: Tensor, p_drop: float = 0.0) -> Tensor:
    """Scores (R, n, K) of all members for x, (n, d) or each its own, (R, n, d); with dropout where ``p_drop`` is above 0."""
    h = x if x.ndim == 3 else x.expand(layers[0][0].shape[0], *x.shape)
    for k, (w, b) in enumerate(layers):
        h = torch.baddbmm(b, h, w)
        if k + 1 < len(layers):
            h = relu(h)
            h = drop(h, p_drop) if p_drop > 0 else h
    return h
