"""From checked pairs to a trained model: hold out, start, train the candidates, choose by held-out answers."""

import copy
import hashlib
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyro.nn import PyroModule

from pdcc.inference import (
    FitConfig,
    FitResult,
    PairTensors,
    fit,
    map_guide,
    memberships,
    pair_nll,
    point_agreement,
    warm_start,
)
from pdcc.models import AnnotationModel, Membership, make_confusion
from pdcc.pairs import PairData
from pdcc.partition import make_start
from pdcc.scaling import SCALES, Scaler
from pdcc.selection import AUTO_PARTITION, FEWEST_HELD_OUT, Candidate, Choice, candidates, choose

logger = logging.getLogger(__name__)

# Restarts use seeds this far apart, so that neighbouring random_states do not share restarts.
RESTART_STRIDE = 7919


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run but the data; checked by ``pdcc.settings`` beforehand."""

    n_clusters: int
    confusion: str
    volume: float | str
    partition: float | str
    hidden: tuple[int, ...]
    dropout: float
    scale: str | None
    init: str
    n_init: int
    epochs: int
    patience: int | None
    batch_size: int
    lr: float
    confusion_lr: float
    optimizer: str
    volume_estimator: str
    validation_fraction: float
    seed: int


@dataclass(frozen=True)
class Trained:
    """A trained model with the story of how it came about (``story`` is plain JSON)."""

    model: PyroModule
    guide: PyroModule
    scaler: Scaler
    result: FitResult
    story: dict[str, Any] = field(default_factory=dict)


def tensors(data: PairData, x: torch.Tensor) -> PairTensors:
    """Pairs as tensors on the device of the features x (N, d)."""
    similar = torch.as_tensor(data.similar, dtype=torch.float32)
    who = [] if data.annotator is None else [torch.as_tensor(data.annotator)]
    parts = (torch.as_tensor(data.i), torch.as_tensor(data.j), similar, *who)
    return PairTensors(x, *(part.to(x.device) for part in parts))


def hold_out(data: PairData, fraction: float, seed: int) -> tuple[PairData, PairData | None, str]:
    """(train, held out or None, how): whole annotators where there are at least ten, else pairs.

    One or two held-out people would tell how *they* answer, with no way to see how much people differ.
    """
    if fraction == 0:
        return data, None, "nothing"
    people = 0 if data.annotator is None else len(np.unique(data.annotator))
    by = "annotators" if people >= 10 else "pairs"
    train, held = data.split(fraction, seed, by=by)
    # An unlucky draw of annotators may leave one kind of answer only, or too few pairs to learn from.
    if by == "annotators" and (len(np.unique(train.similar)) < 2 or len(train) < len(data) / 2):
        by = "pairs"
        train, held = data.split(fraction, seed, by=by)
    return (train, held, by) if len(held) else (data, None, "nothing")


def fingerprint(data: PairData) -> str:
    """SHA-256 of the pairs and their answers, in their order."""
    digest = hashlib.sha256()
    for part in (data.i, data.j, data.similar):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def first_net(recipe: Recipe, x: torch.Tensor, labels: torch.Tensor | None, seed: int) -> Membership:
    """f_theta as training finds it: random, then fitted to ``labels`` (N,) where there are any."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Membership(x.shape[1], recipe.n_clusters, recipe.hidden, recipe.dropout).to(x.device)
    if labels is not None:
        warm_start(net, x, labels, seed=seed)
    return net


def build(
    net: Membership, candidate: Candidate, n_pairs: int, labels: torch.Tensor | None, n_annotators: int = 0
) -> PyroModule:
    """The Pyro model of one candidate around the net, on the net's device."""
    confusion = make_confusion(candidate.confusion, net.n_clusters, n_annotators)
    model = AnnotationModel(
        net, confusion, n_pairs=n_pairs, volume=candidate.volume, partition=labels, partition_weight=candidate.partition
    )
    return model.to(next(net.parameters()).device)


def train(
    data: PairData, recipe: Recipe, device: torch.device, *, progress: bool = False, checkpoints: Path | None = None
) -> Trained:
    """Run the recipe. With ``checkpoints``, an interrupted run picks up from the files it finds there."""
    fitted, held, by = hold_out(data, recipe.validation_fraction, recipe.seed)
    start = None
    if recipe.init != "random" or recipe.scale == "auto":
        kinds = SCALES if recipe.scale == "auto" else (recipe.scale,)
        init = "kmeans" if recipe.init == "random" else recipe.init  # then only its choice of scale is used
        start = make_start(data.features, recipe.n_clusters, fitted, scales=kinds, init=init, seed=recipe.seed)
        logger.info("start: %s. %s", start.name, start.reason)
    scaler = Scaler.fit(data.features, recipe.scale) if start is None else start.scaler
    x = torch.as_tensor(scaler(data.features)).to(device)
    labels = None if start is None or recipe.init == "random" else torch.as_tensor(start.labels).to(device)

    weight = recipe.partition
    if weight == "auto":
        weight = AUTO_PARTITION if start is not None and start.annotates else 0.0
    known = len(data.annotator_names)
    if recipe.confusion == "per-annotator" and known < 2:
        logger.warning("per-annotator: without two or more annotators by name, all answers share one confusion")
    enough = held is not None and len(held) >= FEWEST_HELD_OUT
    open_question = "auto" in (recipe.confusion, recipe.volume)
    own = float(weight) if labels is not None else 0.0
    options = candidates(recipe.confusion, recipe.volume, own, annotators=known > 1, enough=enough)
    test = None if held is None else tensors(held, x)

    def trial(candidate: Candidate, net: Membership, seed: int, title: str) -> _Trial:
        model = build(copy.deepcopy(net), candidate, len(fitted), labels, known)
        guide = map_guide(model)
        config = FitConfig(
            recipe.epochs,
            recipe.batch_size,
            recipe.lr,
            recipe.confusion_lr,
            recipe.optimizer,
            recipe.volume_estimator == "full",
            recipe.patience,
            seed,
        )
        name = f"{candidate.confusion}-{candidate.volume:g}-{candidate.partition:g}-{seed}.safetensors"
        where = None if checkpoints is None else checkpoints / name
        result = fit(model, guide, tensors(fitted, x), test, config, checkpoint=where, progress=progress, label=title)
        nll = (
            None
            if test is None
            else pair_nll(memberships(model, x), point_agreement(model, guide), test).double().cpu().numpy()
        )
        return _Trial(model, guide, result, nll)

    net = first_net(recipe, x, labels, recipe.seed)
    trials = [trial(o, net, recipe.seed, f"setting {k + 1} of {len(options)}") for k, o in enumerate(options)]
    choice = _choose(open_question, options, trials, held)
    best = trials[choice.index]
    for restart in range(1, recipe.n_init):
        seed = recipe.seed + RESTART_STRIDE * restart
        again = trial(
            options[choice.index], first_net(recipe, x, labels, seed), seed, f"restart {restart + 1} of {recipe.n_init}"
        )
        best = again if again.result.held_out < best.result.held_out else best
    logger.info(choice.reason)
    story = {
        "held_out": by,
        "n_held_out": 0 if held is None else len(held),
        "held_out_sha256": None if held is None else fingerprint(held),
        "start": None
        if start is None
        else {"name": start.name, "reason": start.reason, "table": [list(row) for row in start.table]},
        "choice": {"reason": choice.reason, "table": list(choice.table)},
        "chosen": asdict(options[choice.index]),
    }
    return Trained(best.model, best.guide, scaler, best.result, story)


@dataclass(frozen=True)
class _Trial:
    model: PyroModule
    guide: PyroModule
    result: FitResult
    nll: np.ndarray[Any, np.dtype[np.float64]] | None


def _choose(open_question: bool, options: list[Candidate], trials: list[_Trial], held: PairData | None) -> Choice:
    if len(options) == 1:
        few = f"{0 if held is None else len(held)} held-out answers are fewer than {FEWEST_HELD_OUT}, too few to choose by"
        return Choice(0, f"Used {options[0]}: {few if open_question else 'it was asked for'}.", ())
    sound = [k for k, t in enumerate(trials) if t.result.status != "diverged"] or list(range(len(trials)))
    nll = [n for n in (trials[k].nll for k in sound) if n is not None]
    picked = choose([options[k] for k in sound], nll, None if held is None else held.annotator)
    return Choice(sound[picked.index], picked.reason, picked.table)
