"""Many fits at once: the same objective from several starts and reweighted answers, vectorised over members."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, relu
from tqdm.auto import tqdm

from pdcc.inference.batches import PairTensors, epoch_order, index_batches
from pdcc.inference.isolation import isolated
from pdcc.inference.training_state import FitConfig
from pdcc.inference.warmstart import SMOOTHING, START_BATCH, start_epochs
from pdcc.models.annotation import AnnotationModel
from pdcc.models.confusion import AnnotatorConfusion, SigmoidConfusion, StochasticConfusion
from pdcc.models.membership import Membership
from pdcc.models.objective import (
    annotator_columns,
    answer_logits,
    answer_nll,
    log_dirichlet,
    sigmoid_agreement,
    stochastic_agreement,
    taken_for,
)
from pdcc.models.volume import log_volume

# How many numbers of memberships are computed at once outside training.
CHUNK = 20_000_000


@dataclass(frozen=True)
class Ensemble:
    """R fitted members: nets as stacked weights, their confusion, and how well they predict.

    weights: per layer (R, in, out) and (R, 1, out). agreement: (R, K, K). columns: (R, K, K)[true, observed] or None.
    everyone: B of each annotator and, last, the shared one, (R, P + 1, K, K), where they are told apart; else None.
    nll: each member's mean negative log-likelihood of the held-out answers (of its own where none are held out), (R,).
    """

    weights: tuple[tuple[Tensor, Tensor], ...]
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
    """Train every net of ``nets`` by the objective of the model ``like`` (its confusion form, volume and partition).

    ``reweight="pairs"`` gives every member its own Exponential(1) weights of the answers, a Bayesian bootstrap: the members then
    spread as estimates do under new answers, on top of how far restarts disagree. "items" weighs an answer by the product of
    two such weights, of its items: for answers that go wrong together where they share an item. With ``labels`` (R, N) every
    member is first fitted to a partition of its own, as ``warm_start`` does; ``volume`` (R,) gives each a weight of its own
    in place of the model's. Each member keeps the epoch that predicts
    the held-out answers best; all stop when none has improved for ``config.patience`` epochs.
    """
    R, K, M, device = len(nets), like.membership.n_clusters, len(pairs), pairs.x.device
    with (
        isolated(config.seed, device),
        tqdm(total=config.epochs, desc="ensemble", disable=not progress, leave=False) as bar,
    ):
        linears = zip(*([m for m in net.layers if isinstance(m, nn.Linear)] for net in nets), strict=True)
        layers = tuple(
            (
                torch.stack([m.weight.detach().mT for m in same]).clone().requires_grad_(),
                torch.stack([m.bias.detach()[None] for m in same]).clone().requires_grad_(),
            )
            for same in linears
        )
        p_drop = next((m.p for m in nets[0].layers if isinstance(m, nn.Dropout)), 0.0)
        if labels is not None:
            _warm_start(layers, pairs.x, labels, p_drop, config.seed)
        identity = torch.eye(K, dtype=pairs.x.dtype, device=device)
        first = StochasticConfusion(K).initial.to(pairs.x).log()
        sigmoid, stochastic = (
            isinstance(like.confusion, SigmoidConfusion),
            isinstance(like.confusion, StochasticConfusion),
        )
        raw = 2 * identity - 1 if sigmoid else first  # the paper's start, or near the identity
        raw = raw.expand(R, K, K).clone().requires_grad_(sigmoid or stochastic)
        annotators = like.confusion if isinstance(like.confusion, AnnotatorConfusion) else None
        shift = raw.new_zeros(R, 0 if annotators is None else annotators.n_annotators, K, K).requires_grad_(
            annotators is not None
        )
        judge = first.expand(R, K, K).clone().requires_grad_(like.partition_weight > 0)
        weight = pairs.x.new_ones(R, M)
        if reweight is not None:
            drawn = torch.empty(R, M if reweight == "pairs" else len(pairs.x)).exponential_().to(pairs.x)
            weight = drawn if reweight == "pairs" else drawn[:, pairs.i] * drawn[:, pairs.j]
            weight = weight / weight.mean(1, keepdim=True)

        def agreement() -> Tensor:
            """B of every member, (R, 1, K, K), or of its annotators and, last, the shared one, (R, P + 1, K, K)."""
            if isinstance(like.confusion, SigmoidConfusion):
                return sigmoid_agreement(raw, symmetric=like.confusion.symmetric)[:, None]
            columns = (torch.softmax(raw, -1) if stochastic else identity.expand(R, K, K))[:, None]
            return stochastic_agreement(columns if annotators is None else annotator_columns(columns, shift))

        def losses(index: Tensor) -> Tensor:
            rows = torch.cat([pairs.i[index], pairs.j[index]])
            F = torch.softmax(_logits(layers, pairs.x[rows], p_drop), -1)
            left, right = F.chunk(2, dim=1)
            annotator = None if annotators is None or pairs.annotator is None else pairs.annotator[index]
            logits = answer_logits(left, right, agreement(), annotator)
            nll = answer_nll(logits, pairs.similar[index])
            loss = (nll * weight[:, index]).mean(1)
            if like.volume > 0:
                loss = loss - weight_of_volume * log_volume(F).to(loss)
            if stochastic:
                loss = loss - log_dirichlet(torch.softmax(raw, -1), like.confusion.concentration) / M
            if annotators is not None:
                loss = loss + (shift / annotators.deviation).square().sum((1, 2, 3)) / (2 * M)
            if like.partition_weight > 0:
                columns = torch.softmax(judge, -1)
                taken = taken_for(F, columns).gather(2, like.partition[rows].expand(R, -1)[..., None])
                loss = loss - like.partition_weight * taken.clamp(min=1e-30).log().mean((1, 2))
                loss = loss - log_dirichlet(columns, like.partition_concentration) / M
            return loss

        weight_of_volume = pairs.x.new_full((R,), like.volume) if volume is None else volume.to(pairs.x)
        confusions = [t for t in (raw, judge, shift) if t.requires_grad]
        groups = [{"params": [t for layer in layers for t in layer], "lr": config.lr}]
        groups += [{"params": confusions, "lr": config.confusion_lr}] if confusions else []
        # Members do not meet in the sum of their losses, so one Adam is R of them.
        optimizer = torch.optim.Adam(groups, lr=config.lr)
        everything = [t for layer in layers for t in layer] + [raw, judge, shift]
        best = [t.detach().clone() for t in everything]
        best_nll, best_epoch = torch.full((R,), math.inf, device=device), 0
        for epoch in range(config.epochs):
            for index in index_batches(epoch_order(M, config.seed, epoch, device), config.batch_size, least=2 * K):
                optimizer.zero_grad(set_to_none=True)
                losses(index).sum().backward()
                optimizer.step()
            now = _nll(layers, agreement().detach(), pairs if held_out is None else held_out)
            better = now < best_nll  # a member that is no longer finite keeps its last good epoch
            best_nll = torch.where(better, now, best_nll)
            for kept, t in zip(best, everything, strict=True):
                kept[better] = t.detach()[better]
            best_epoch = epoch if bool(better.any()) else best_epoch
            bar.update(1)
            if config.patience is not None and epoch - best_epoch >= config.patience:
                break
        with torch.no_grad():
            for kept, t in zip(best, everything, strict=True):
                t.copy_(kept)
            B = agreement().detach()
            by_annotator, B = (None if annotators is None else B), B[:, -1]
            columns = torch.softmax(raw, -1).detach() if stochastic else None
            stacked = tuple((w.detach(), b.detach()) for w, b in layers)
            return Ensemble(stacked, B, columns, best_nll, by_annotator)


def _warm_start(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor, labels: Tensor, p_drop: float, seed: int) -> None:
    optimizer = torch.optim.Adam([t for layer in layers for t in layer], lr=1e-3)
    for epoch in range(start_epochs(len(x))):
        for rows in epoch_order(len(x), seed, epoch, x.device).split(START_BATCH):
            optimizer.zero_grad(set_to_none=True)
            scores = _logits(layers, x[rows], p_drop)
            loss = cross_entropy(scores.flatten(0, 1), labels[:, rows].flatten(), label_smoothing=SMOOTHING)
            (len(labels) * loss).backward()
            optimizer.step()


def _logits(layers: Sequence[tuple[Tensor, Tensor]], x: Tensor, p_drop: float = 0.0) -> Tensor:
    """Scores (R, n, K) of all members for x (n, d); with dropout where ``p_drop`` is above 0."""
    h = x.expand(layers[0][0].shape[0], *x.shape)
    for k, (w, b) in enumerate(layers):
        h = torch.baddbmm(b, h, w)
        if k + 1 < len(layers):
            h = relu(h)
            h = dropout(h, p_drop) if p_drop > 0 else h
    return h


@torch.no_grad()
def _nll(layers: Sequence[tuple[Tensor, Tensor]], agreement: Tensor, pairs: PairTensors) -> Tensor:
    """Mean negative log-likelihood of the pairs under every member, (R,), without dropout."""
    rows, where = torch.unique(torch.cat([pairs.i, pairs.j]), return_inverse=True)
    F = torch.softmax(_logits(layers, pairs.x[rows]), -1)
    i, j = where.chunk(2)
    logits = answer_logits(F[:, i], F[:, j], agreement, None if agreement.shape[1] == 1 else pairs.annotator)
    return answer_nll(logits, pairs.similar).mean(1)
