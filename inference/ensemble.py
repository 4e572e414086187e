"""Many fits at once: the same objective from several starts and reweighted answers, vectorised over members."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

from pdcc.inference.batches import PairTensors, epoch_order, index_batches
from pdcc.inference.epoch_loop import descend
from pdcc.inference.guides import MapGuide
from pdcc.inference.isolation import isolated
from pdcc.inference.predict import memberships, pair_agreement
from pdcc.inference.stack import Layers, Stack, scores
from pdcc.inference.training_state import FitConfig
from pdcc.inference.warmstart import SMOOTHING, start_batches
from pdcc.models.annotation import AnnotationModel
from pdcc.models.membership import Membership

# How many numbers of memberships are computed at once outside training.
CHUNK = 20_000_000


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
        return torch.cat([torch.softmax(scores(self.weights, part), -1) for part in x.split(rows)], dim=1)


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
        found = scores(stack.layers, x[rows], stack.dropout)
        loss = cross_entropy(found.flatten(0, 1), labels[:, rows].flatten(), label_smoothing=SMOOTHING)
        descend(optimizer, len(labels) * loss)
