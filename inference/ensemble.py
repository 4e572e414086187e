"""Many fits at once: the same objective from several starts and reweighted answers, vectorised over members."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from tqdm.auto import tqdm

from pdcc.inference.batches import PairTensors, epoch_order, index_batches
from pdcc.inference.epoch_loop import descend
from pdcc.inference.guides import MapGuide
from pdcc.inference.isolation import isolated
from pdcc.inference.predict import memberships, pair_agreement
from pdcc.inference.training_state import FitConfig
from pdcc.inference.warmstart import SMOOTHING, start_batches
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
    stochastic_agreement,
    taken_for,
    two_rates,
)
from pdcc.models.volume import log_volume

# How many numbers of memberships are computed at once outside training.
CHUNK = 20_000_000

Layers = tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class Ensemble:
    """R fitted members: nets as stacked weights, their confusion, and how well they predict.

    weights: per layer (R, in, out) and (R, 1, out). agreement: (R, K, K). columns: (R, K, K)[true, observed] or None.
    by_annotator: B of each annotator and, last, the shared one, (R, P + 1, K, K), where they are told apart; else None.
    nll: each member's mean negative log-likelihood of the held-out answers (of its own where none are held out), (R,).
    """

    weights: Layers
    agreement: Tensor
    columns: Tensor | None
    nll: Tensor
    by_annotator: Tensor | None = None

    def agreement_for(self, pairs: PairTensors) -> list[Tensor]:
        """Each member's B as it applies to the pairs: (K, K), or one for each, (M, K, K)."""
        if self.by_annotator is None or pairs.annotator is None:
            return list(self.agreement)
        return [own[pairs.annotator] for own in self.by_annotator]

    @torch.no_grad()
    def memberships(self, x: Tensor) -> Tensor:
        """F of every member, (R, n, K), for features x (n, d)."""
        rows = max(1, CHUNK // (len(self.nll) * max(w.shape[-1] for w, _ in self.weights)))
        return torch.cat([torch.softmax(_logits(self.weights, part), -1) for part in x.split(rows)], dim=1)


@dataclass(frozen=True)
class Members:
    """R fitted programs of any kind, one beside the other; what ``Ensemble`` is for stacked perceptrons."""

    models: list[AnnotationModel]
    guides: list[MapGuide]
    agreement: Tensor
    nll: Tensor
    by_annotator: Tensor | None = None
    columns: Tensor | None = None

    def agreement_for(self, pairs: PairTensors) -> list[Tensor]:
        """Each member's B as it applies to the pairs: (K, K), or one for each, (M, K, K)."""
        return [pair_agreement(model, guide, pairs) for model, guide in zip(self.models, self.guides, strict=True)]

    def memberships(self, x: Tensor) -> Tensor:
        """F of every member, (R, n, K), for items x (n, ...)."""
        return torch.stack([memberships(model, x) for model in self.models])


def bootstrap_weights(pairs: PairTensors, reweight: str, generator: torch.Generator | None = None) -> Tensor:
    """Exponential(1) weights of the M answers, or products of their items' ("items"), of mean 1, times their own where they have any: a Bayesian bootstrap, (M,)."""
    n = len(pairs) if reweight == "pairs" else len(pairs.x)
    drawn = torch.empty(n).exponential_(generator=generator).to(pairs.x.device, pairs.x.dtype)
    weight = drawn if reweight == "pairs" else drawn[pairs.i] * drawn[pairs.j]
    if pairs.weight is None:
        return weight / weight.mean()
    weight = weight * pairs.weight
    return weight * (pairs.weight.mean() / weight.mean())


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
        pairs, like, M = self.pairs, self.like, self.pairs.total_weight
        rows = torch.cat([pairs.i[index], pairs.j[index]])
        F = torch.softmax(_logits(self.layers, pairs.x[rows], self.dropout), -1)
        left, right = F.chunk(2, dim=1)
        annotator = None if self.annotators is None or pairs.annotator is None else pairs.annotator[index]
        nll = answer_nll(answer_logits(left, right, self.agreement(), annotator), pairs.similar[index])
        loss = (nll * weight[:, index]).mean(1)
        if like.volume > 0:
            loss = loss - volume * log_volume(F).to(loss)
        if self.stochastic is not None:
            loss = loss - log_dirichlet(self.columns(), self.stochastic.concentration) / M
        if self.pooled is not None:
            apart = (self.raw - two_rates(self.rates, self.identity)) / self.pooled.deviation
            loss = loss + apart.square().sum((1, 2)) / (2 * M)
        if self.annotators is not None:
            loss = loss + (self.shift / self.annotators.deviation).square().sum((1, 2, 3)) / (2 * M)
        if like.partition_weight > 0:
            columns = torch.softmax(self.partition, -1)
            taken = taken_for(F, columns).gather(2, like.partition[rows].expand(self.size, -1)[..., None])
            loss = loss - like.partition_weight * taken.clamp(min=1e-30).log().mean((1, 2))
            loss = loss - log_dirichlet(columns, like.partition_concentration) / M
        return loss

    @torch.no_grad()
    def nll(self, pairs: PairTensors) -> Tensor:
        """Mean negative log-likelihood of the pairs under every member, (R,), without dropout."""
        rows, where = torch.unique(torch.cat([pairs.i, pairs.j]), return_inverse=True)
        F = torch.softmax(_logits(self.layers, pairs.x[rows]), -1)
        i, j = where.chunk(2)
        annotator = None if self.annotators is None else pairs.annotator
        return pairs.mean(answer_nll(answer_logits(F[:, i], F[:, j], self.agreement(), annotator), pairs.similar))


def fit_ensemble(
    nets: Sequence[Membership],
    like: AnnotationModel,
    pairs: PairTensors,
    held_out: PairTensors | None,
    config: FitConfig,
    *,
    labels: Tensor | None = None,
    volume: Tensor | None = None,
    reweight: str | None = "pairs",
    progress: bool = False,
) -> Ensemble:
    """Train every net of ``nets``, perceptrons, by the objective of the model ``like`` (confusion form, volume, partition).

    ``reweight="pairs"`` gives every member its own Exponential(1) weights of the answers, a Bayesian bootstrap: the members then
    spread as estimates do under new answers, on top of how far restarts disagree. "items" weighs an answer by the product of
    two such weights, of its items: for answers that go wrong together where they share an item. With ``labels`` (R, N) every
    member is first fitted to a partition of its own, as ``warm_start`` does; ``volume`` (R,) gives each a weight of its own
    in place of the model's. Each member keeps the epoch that predicts the held-out answers best; all stop when none has
    improved for ``config.patience`` epochs.
    """
    R, M, device = len(nets), len(pairs), pairs.x.device
    with (
        isolated(config.seed, device),
        tqdm(total=config.epochs, desc="ensemble", disable=not progress, leave=False) as bar,
    ):
        stack = Stack(nets, like, pairs)
        if labels is not None:
            _warm_start(stack, labels, config.seed)
        weight = _weights(pairs, R, reweight)
        volumes = pairs.in_memory.new_full((R,), like.volume) if volume is None else volume.to(pairs.in_memory)
        confusions = [t for t in stack.confusions() if t.requires_grad]
        groups = [{"params": [t for layer in stack.layers for t in layer], "lr": config.lr}]
        groups += [{"params": confusions, "lr": config.confusion_lr}] if confusions else []
        # Members do not meet in the sum of their losses, so one Adam is R of them.
        optimizer = torch.optim.Adam(groups, lr=config.lr)
        best = [t.detach().clone() for t in stack.tensors()]
        best_nll, best_epoch = torch.full((R,), math.inf, device=device), 0
        least = 2 * like.membership.n_clusters
        for epoch in range(config.epochs):
            for index in index_batches(epoch_order(M, config.seed, epoch, device), config.batch_size, least=least):
                descend(optimizer, stack.losses(index, weight, volumes).sum())
            now = stack.nll(pairs if held_out is None else held_out)
            better = now < best_nll  # a member that is no longer finite keeps its last good epoch
            best_nll = torch.where(better, now, best_nll)
            for kept, t in zip(best, stack.tensors(), strict=True):
                kept[better] = t.detach()[better]
            best_epoch = epoch if bool(better.any()) else best_epoch
            bar.update(1)
            if config.patience is not None and epoch - best_epoch >= config.patience:
                break
        with torch.no_grad():
            for kept, t in zip(best, stack.tensors(), strict=True):
                t.copy_(kept)
            B = stack.agreement().detach()
            columns = stack.columns().detach() if stack.stochastic else None
            weights = tuple((w.detach(), b.detach()) for w, b in stack.layers)
            return Ensemble(weights, B[:, -1], columns, best_nll, None if stack.annotators is None else B)


def _weights(pairs: PairTensors, n_members: int, reweight: str | None) -> Tensor:
    """Weights of the answers for every member, (R, M), each of mean 1: the loss is per answer, or per unit of their own weights."""
    if reweight is None:
        weight = pairs.in_memory.new_ones(n_members, len(pairs))
    else:
        drawn = (
            torch.empty(n_members, len(pairs) if reweight == "pairs" else len(pairs.x))
            .exponential_()
            .to(pairs.in_memory)
        )
        weight = drawn if reweight == "pairs" else drawn[:, pairs.i] * drawn[:, pairs.j]
    if pairs.weight is not None:
        weight = weight * pairs.weight
    return weight / weight.mean(1, keepdim=True)


def _warm_start(stack: Stack, labels: Tensor, seed: int) -> None:
    x = stack.pairs.x
    optimizer = torch.optim.Adam([t for layer in stack.layers for t in layer], lr=1e-3)
    for rows in start_batches(len(x), seed, x.device):
        scores = _logits(stack.layers, x[rows], stack.dropout)
        loss = cross_entropy(scores.flatten(0, 1), labels[:, rows].flatten(), label_smoothing=SMOOTHING)
        descend(optimizer, len(labels) * loss)


def _logits(layers: Layers, x: Tensor, p_drop: float = 0.0) -> Tensor:
    """Scores (R, n, K) of all members for x (n, d); with dropout where ``p_drop`` is above 0."""
    h = x.expand(layers[0][0].shape[0], *x.shape)
    for k, (w, b) in enumerate(layers):
        h = torch.baddbmm(b, h, w)
        if k + 1 < len(layers):
            h = relu(h)
            h = drop(h, p_drop) if p_drop > 0 else h
    return h
