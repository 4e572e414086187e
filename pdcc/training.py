"""Train one specification: a confusion, a volume and a weight for the partition, from a given start."""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pdcc.arrays import Float64, Floats
from pdcc.data.pairs import PairData
from pdcc.data.scaling import SCALES
from pdcc.inference import FitConfig, FitResult, PairTensors, fit, map_guide, memberships
from pdcc.inference.guides import MapGuide
from pdcc.inference.isolation import isolated
from pdcc.inference.predict import fitted_nll
from pdcc.inference.rows import Items
from pdcc.inference.warmstart import warm_start
from pdcc.models import CONFUSIONS, AnnotationModel, Membership, NetworkMembership, make_confusion
from pdcc.models.modules import seeded
from pdcc.validation import check_count, check_number, check_one_of

INITS = ("pairs", "kmeans", "random")
# The form of a confusion that was passed as a module.
OWN = "own"
# Restarts use seeds this far apart, so that neighbouring random_states do not share restarts.
RESTART_STRIDE = 7919
# "auto" epochs: this many, or up to LONGEST times as many (and as much patience), until they make FEWEST_STEPS steps.
EPOCHS, FEWEST_STEPS, LONGEST = 60, 2500, 3


# Pyro's parameter store goes by name: every model built here has one of its own, so that two never share parameters.
_NUMBERS = itertools.count()


Network = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class OwnParts:
    """Modules that take the place of ours: a network from items to K logits, or what makes one, and a confusion."""

    network: Network | None = None
    confusion: nn.Module | None = None

    def __post_init__(self) -> None:
        if self.network is not None and not callable(self.network):
            raise TypeError(
                f"network: expected None, a torch module from items to n_clusters logits, or a function that makes one, found {self.network!r}. Pass one of these."
            )


OUR_PARTS = OwnParts()


class Source(StrEnum):
    """Where a partition comes from."""

    KMEANS = "kmeans"
    GUIDED = "guided"
    GRAPH = "graph"
    ANSWERS = "answers"


class Shape(StrEnum):
    """What a mixture that begins there gives its clusters."""

    NONE = "none"  # no mixture: the partition as it is
    SHARED = "shared"
    OWN = "own"


@dataclass(frozen=True)
class Start:
    """A partition to make, see ``select.starts``; moved: clusters of the mixture are split and merged as answers say."""

    source: Source
    shape: Shape = Shape.NONE
    moved: bool = False

    def __str__(self) -> str:
        base = {
            Source.KMEANS: "K-means",
            Source.GUIDED: "K-means in directions that answers point out",
            Source.GRAPH: "neighbours joined with answers",
            Source.ANSWERS: "answers alone",
        }[self.source]
        if self.shape is Shape.NONE:
            return base
        shape = "one shape" if self.shape is Shape.SHARED else "own shapes"
        moved = ", clusters split and merged" if self.moved else ""
        return f"Gaussian mixture ({shape}) begun from {base}{moved}"


@dataclass(frozen=True)
class Specification:
    """One setting of what "auto" leaves open."""

    confusion: str
    volume: float
    partition_weight: float

    def __str__(self) -> str:
        return f"confusion {self.confusion}, volume {self.volume:g}, partition weight {self.partition_weight:g}"


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a fit but the data; see ``VolMaxDCC`` for what each means. Checked when it is made."""

    n_clusters: int
    confusion: str
    volume: float | str
    partition_weight: float
    hidden: tuple[int, ...]
    dropout: float
    scale: str | None
    init: str
    n_init: int
    epochs: int | str
    patience: int | None
    batch_size: int
    lr: float
    confusion_lr: float
    optimizer: str
    volume_estimator: str
    validation_fraction: float
    seed: int
    mixed_precision: bool = False

    def __post_init__(self) -> None:
        check_one_of("confusion", self.confusion, ("auto", *CONFUSIONS, OWN))
        check_number("volume", self.volume, 0.0, auto=True)
        check_number("partition_weight", self.partition_weight, 0.0)
        if not isinstance(self.hidden, list | tuple):
            raise TypeError(
                f"hidden: expected a tuple of layer widths such as (512, 512), found {self.hidden!r}. Pass a tuple."
            )
        for width in self.hidden:
            check_count("hidden", width)
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        check_number("dropout", self.dropout, 0.0, 1.0)
        check_one_of("scale", self.scale, ("auto", *SCALES))
        check_one_of("init", self.init, INITS)
        check_count("n_init", self.n_init)
        if self.epochs != "auto":
            check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        if 2 * self.batch_size < self.n_clusters:
            raise ValueError(
                f"batch_size: expected at least half of n_clusters={self.n_clusters} (a batch's volume needs K items), found {self.batch_size}. Raise it."
            )
        if self.patience is not None:
            check_count("patience", self.patience)
        check_number("lr", self.lr, 0.0, open_low=True)
        check_number("confusion_lr", self.confusion_lr, 0.0, open_low=True)
        check_one_of("optimizer", self.optimizer, ("adam", "sgd"))
        check_one_of("volume_estimator", self.volume_estimator, ("minibatch", "full"))
        check_number("validation_fraction", self.validation_fraction, 0.0, 1.0)
        check_one_of("mixed_precision", self.mixed_precision, (False, True))

    def settled(self, chosen: Specification, scale: str | None) -> "TrainConfig":
        """The same with what was chosen in place of "auto"."""
        weight = chosen.partition_weight
        return replace(self, scale=scale, confusion=chosen.confusion, volume=chosen.volume, partition_weight=weight)

    def lengths(self, n_pairs: int) -> tuple[int, int | None]:
        """(epochs, patience) for so many answers: "auto" sees to it that few of them still make enough steps."""
        if isinstance(self.epochs, int):
            return self.epochs, self.patience
        steps = EPOCHS * math.ceil(n_pairs / self.batch_size)
        longer = min(max(1, math.ceil(FEWEST_STEPS / steps)), LONGEST)
        return EPOCHS * longer, None if self.patience is None else self.patience * longer


def tensors(data: PairData, x: Items) -> PairTensors:
    """Pairs as tensors on the device of the features x (N, d)."""
    similar = torch.as_tensor(data.similar if data.soft is None else data.soft, dtype=torch.float32)
    parts = {"i": torch.as_tensor(data.i), "j": torch.as_tensor(data.j), "similar": similar}
    more = {"annotator": data.annotator, "weight": data.weight}
    parts |= {name: torch.as_tensor(part) for name, part in more.items() if part is not None}
    return PairTensors(x, **{name: part.to(x.device) for name, part in parts.items()})


def make_net(config: TrainConfig, item_shape: tuple[int, ...], own: OwnParts) -> Membership:
    """f_theta before any training: a perceptron of ``config``, or the user's network (a copy, where it is a module)."""
    if own.network is None:
        net = Membership(math.prod(item_shape), config.n_clusters, config.hidden, config.dropout)
    else:
        network = copy.deepcopy(own.network) if isinstance(own.network, nn.Module) else own.network()
        if not isinstance(network, nn.Module):
            raise TypeError(
                f"network: expected a function that makes a torch module, found one that makes {network!r}."
            )
        net = NetworkMembership(network, config.n_clusters)
    net.mixed = config.mixed_precision
    return net


def first_net(config: TrainConfig, x: Items, labels: Tensor | None, seed: int, own: OwnParts) -> Membership:
    """f_theta as training finds it: random, then fitted to ``labels`` (N,) where there are any."""
    with seeded(seed):
        net = make_net(config, tuple(x.shape[1:]), own).to(x.device)
    if own.network is not None:
        try:
            with torch.no_grad():
                found = tuple(net.eval().logits(x[:2]).shape)
        except RuntimeError as error:
            raise ValueError(
                f"network: expected a module that takes items of shape {tuple(x.shape[1:])}, found one that does not ({error}). Change its first layer, or the shape of X."
            ) from error
        if found != (len(x[:2]), config.n_clusters):
            raise ValueError(
                f"network: expected logits of shape (n, {config.n_clusters}) for n items, found {found} for {len(x[:2])}. End it in nn.Linear(..., {config.n_clusters})."
            )
    if labels is not None:
        warm_start(net, x, labels, seed=seed)
    return net


def build(
    net: Membership,
    chosen: Specification,
    n_pairs: int,
    total_weight: float | None,
    labels: Tensor | None,
    n_annotators: int = 0,
    own: OwnParts | None = None,
    agreement: Tensor | None = None,
) -> AnnotationModel:
    """The Pyro model of one specification around the net, on the net's device. agreement: B (K, K) that it sets out from.

    total_weight: how much the answers count together; None: as many as they are.
    """
    if chosen.confusion == OWN and own is not None and own.confusion is not None:
        confusion: nn.Module = copy.deepcopy(own.confusion)
    else:
        confusion = make_confusion(chosen.confusion, net.n_clusters, n_annotators, agreement)
    model = AnnotationModel(
        net,
        confusion,
        n_pairs=n_pairs,
        volume=chosen.volume,
        total_weight=total_weight,
        partition=labels,
        partition_weight=chosen.partition_weight,
        name=f"pdcc{next(_NUMBERS)}",
    )
    model.to(next(net.parameters()).device)
    return model


@dataclass(frozen=True)
class Oracle:
    """Items (n, ...) with known classes (n,), by which the authors of the paper choose; never part of a default."""

    features: Floats
    classes: NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """A trained specification; ``nll``: negative log-likelihood of every held-out answer, or None where there are none.

    Where answers have weights, times the answer's weight over the mean weight: its mean is the weighted mean.
    """

    model: AnnotationModel
    guide: MapGuide
    result: FitResult
    nll: Float64 | None


@dataclass(frozen=True)
class Trainer:
    """What all trials of a fit share: answers to train on and to judge by, as tensors with the scaled features.

    ``judge``: see ``pdcc.inference.fit``; it is an oracle's.
    """

    config: TrainConfig
    pairs: PairTensors
    held_out: PairTensors | None
    n_annotators: int
    own: OwnParts
    progress: bool = False
    checkpoints: Path | None = None
    judge: Callable[[nn.Module], float] | None = None

    def train(
        self,
        chosen: Specification,
        net: Membership,
        labels: Tensor | None,
        seed: int,
        title: str,
        *,
        agreement: Tensor | None = None,
        exactly: int | None = None,
        begin: Callable[[AnnotationModel, MapGuide], None] | None = None,
    ) -> Trial:
        """Fit one specification from a copy of ``net``; ``labels`` (N,): the partition that may stand as an annotator.

        agreement: what the confusion begins with, see ``make_confusion``. exactly: train so many epochs, and let held-out answers stop nothing.
        begin: puts values into the new model and its guide, laid out, before the first step.
        """
        model, guide = self.program(chosen, net, labels, agreement)
        if begin is not None:
            with isolated(seed, self.pairs.x.device):
                some = torch.arange(min(2, len(self.pairs)), device=self.pairs.x.device)
                guide(self.pairs.batch(some))  # lays out its parameters
                begin(model, guide)
        how = self.how(seed, exactly)
        result = fit(
            model, guide, self.pairs, self.held_out, how,
            checkpoint=self.checkpoint(chosen, seed, title), progress=self.progress, label=title, judge=self.judge,
        )  # fmt: skip
        return self.judged(model, guide, result)

    def checkpoint(self, chosen: Specification, seed: int, title: str) -> Path | None:
        """Where the state of such a trial is kept, if anywhere."""
        name = f"{title.replace(' ', '-')}-{chosen.confusion}-{chosen.volume:g}-{chosen.partition_weight:g}-{seed}.safetensors"
        return None if self.checkpoints is None else self.checkpoints / name

    def program(
        self, chosen: Specification, net: Membership, labels: Tensor | None, agreement: Tensor | None
    ) -> tuple[AnnotationModel, MapGuide]:
        """The model of a specification around a copy of ``net``, and its guide; arguments are those of ``train``."""
        partition = labels if chosen.partition_weight > 0 else None
        M, W = len(self.pairs), self.pairs.total_weight
        model = build(copy.deepcopy(net), chosen, M, W, partition, self.n_annotators, self.own, agreement)
        if chosen.confusion == OWN:
            self._check_agreement(model)
        return model, map_guide(model)

    def how(self, seed: int, exactly: int | None) -> FitConfig:
        """How ``train`` trains, by the same arguments."""
        c = self.config
        epochs, patience = c.lengths(len(self.pairs)) if exactly is None else (exactly, None)
        full, last = c.volume_estimator == "full", exactly is not None
        return FitConfig(epochs, c.batch_size, c.lr, c.confusion_lr, c.optimizer, full, patience, seed, last)

    def judged(self, model: AnnotationModel, guide: MapGuide, result: FitResult) -> Trial:
        """What training came to, with how well it predicts the held-out answers."""
        if self.held_out is None:
            return Trial(model, guide, result, None)
        nll = fitted_nll(model, guide, memberships(model, self.pairs.x), self.held_out)
        weight = self.held_out.weight
        scaled = nll if weight is None else nll * (weight / weight.mean())
        return Trial(model, guide, result, scaled.double().cpu().numpy())

    def _check_agreement(self, model: AnnotationModel) -> None:
        """Raise unless a confusion of the user's gives B for the first pairs, in a shape that the likelihood can use."""
        batch, K = (
            self.pairs.batch(torch.arange(min(2, len(self.pairs)), device=self.pairs.x.device)),
            model.membership.n_clusters,
        )
        with isolated(self.config.seed, self.pairs.x.device), torch.no_grad():
            B = model.agreement(batch)
        if B.shape not in ((K, K), (len(batch.index), K, K)) or not bool(((B >= 0) & (B <= 1)).all()):
            raise ValueError(
                f"confusion: expected a module that returns probabilities B, ({K}, {K}), or one for each of b pairs, (b, {K}, {K}), found shape {tuple(B.shape)} with entries from {B.min():.3g} to {B.max():.3g} for {len(batch.index)} pairs. Return B from its forward."
            )
