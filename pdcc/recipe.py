"""From checked pairs to a trained model: hold out, start, train the candidates, choose by held-out answers."""

import copy
import hashlib
import logging
import math
from dataclasses import asdict, dataclass, field, replace
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
from pdcc.neighbours import Neighbourhood
from pdcc.pairs import FEWEST_PEOPLE, PairData
from pdcc.partition import Start, make_start
from pdcc.scaling import SCALES, Scaler
from pdcc.selection import AUTO_PARTITION, FEWEST_HELD_OUT, HOLD_ON, Candidate, Choice, candidates, choose, freed

logger = logging.getLogger(__name__)

# Restarts use seeds this far apart, so that neighbouring random_states do not share restarts.
RESTART_STRIDE = 7919
# "auto" epochs: this many, or up to LONGEST times as many (and as much patience), until they make FEWEST_STEPS steps.
EPOCHS, FEWEST_STEPS, LONGEST = 60, 2500, 5


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
    epochs: int | str
    patience: int | None
    batch_size: int
    lr: float
    confusion_lr: float
    optimizer: str
    volume_estimator: str
    validation_fraction: float
    seed: int

    def lengths(self, n_pairs: int) -> tuple[int, int | None]:
        """(epochs, patience) for so many answers: "auto" sees to it that few of them still make enough steps."""
        if isinstance(self.epochs, int):
            return self.epochs, self.patience
        steps = EPOCHS * math.ceil(n_pairs / self.batch_size)
        longer = min(max(1, math.ceil(FEWEST_STEPS / steps)), LONGEST)
        return EPOCHS * longer, None if self.patience is None else self.patience * longer


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
    by = "annotators" if data.n_people >= FEWEST_PEOPLE else "pairs"
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


def start_of(data: PairData, recipe: Recipe) -> Start | None:
    """The scaling and the partition that training sets out from; None where nothing is left to the answers."""
    if recipe.init == "random" and recipe.scale != "auto":
        return None
    shown = hold_out(data, recipe.validation_fraction, recipe.seed)[0]
    kinds = SCALES if recipe.scale == "auto" else (recipe.scale,)
    init = "kmeans" if recipe.init == "random" else recipe.init  # then only its choice of scale is used
    return make_start(data.features, recipe.n_clusters, shown, scales=kinds, init=init, seed=recipe.seed)


def train(
    data: PairData,
    recipe: Recipe,
    device: torch.device,
    *,
    start: Start | None = None,
    progress: bool = False,
    checkpoints: Path | None = None,
) -> Trained:
    """Run the recipe. With ``checkpoints``, an interrupted run picks up from the files it finds there.

    ``start``: what ``start_of`` returns, where it is known already.
    """
    fitted, held, by = hold_out(data, recipe.validation_fraction, recipe.seed)
    start = start_of(data, recipe) if start is None else start
    if start is not None:
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
    if recipe.partition not in ("auto", 0.0) and labels is None:
        logger.warning('partition: with init="random" there is no partition to count as an annotator')
    own = float(weight) if labels is not None else 0.0
    options = candidates(recipe.confusion, recipe.volume, own, annotators=known > 1, enough=enough)

    test = None if held is None else tensors(held, x)
    shop = _Workshop(recipe, tensors(fitted, x), test, known, progress, checkpoints)
    net = first_net(recipe, x, labels, recipe.seed)
    trials = [
        shop.train(o, net, labels, recipe.seed, f"setting {k + 1} of {len(options)}") for k, o in enumerate(options)
    ]
    choice = _choose("auto" in (recipe.confusion, recipe.volume), options, trials, held)
    best, chosen, reason = trials[choice.index], options[choice.index], choice.reason
    for restart in range(1, recipe.n_init):
        seed = recipe.seed + RESTART_STRIDE * restart
        net = first_net(recipe, x, labels, seed)
        again = shop.train(chosen, net, labels, seed, f"restart {restart + 1} of {recipe.n_init}")
        best = again if again.result.held_out < best.result.held_out else best
    if recipe.partition == "auto" and own == 0 and labels is not None and start is not None:
        best, chosen, told = _hold_on(shop, best, chosen, start)
        reason += told
    logger.info(reason)
    story = {
        "held_out": by,
        "n_held_out": 0 if held is None else len(held),
        "held_out_annotators": [] if held is None or by != "annotators" else held.people(),
        "held_out_sha256": None if held is None else fingerprint(held),
        "start": None
        if start is None
        else {"name": start.name, "reason": start.reason, "table": [list(row) for row in start.table]},
        "choice": {"reason": reason, "table": list(choice.table)},
        "chosen": asdict(chosen),
    }
    return Trained(best.model, best.guide, scaler, best.result, story)


@dataclass(frozen=True)
class _Trial:
    model: PyroModule
    guide: PyroModule
    result: FitResult
    nll: np.ndarray[Any, np.dtype[np.float64]] | None


@dataclass(frozen=True)
class _Workshop:
    """What all trials of a recipe share."""

    recipe: Recipe
    pairs: PairTensors
    test: PairTensors | None
    n_annotators: int
    progress: bool
    checkpoints: Path | None

    def train(
        self, candidate: Candidate, net: Membership, labels: torch.Tensor | None, seed: int, title: str
    ) -> _Trial:
        """Fit one candidate from a copy of ``net``; ``labels`` (N,): the partition that may stand as an annotator."""
        r = self.recipe
        model = build(copy.deepcopy(net), candidate, len(self.pairs), labels, self.n_annotators)
        guide = map_guide(model)
        full = r.volume_estimator == "full"
        epochs, patience = r.lengths(len(self.pairs))
        config = FitConfig(epochs, r.batch_size, r.lr, r.confusion_lr, r.optimizer, full, patience, seed)
        name = f"{candidate.confusion}-{candidate.volume:g}-{candidate.partition:g}-{seed}.safetensors"
        where = None if self.checkpoints is None else self.checkpoints / name
        result = fit(model, guide, self.pairs, self.test, config, checkpoint=where, progress=self.progress, label=title)
        if self.test is None:
            return _Trial(model, guide, result, None)
        nll = pair_nll(memberships(model, self.pairs.x), point_agreement(model, guide), self.test)
        return _Trial(model, guide, result, nll.double().cpu().numpy())


def _choose(open_question: bool, options: list[Candidate], trials: list[_Trial], held: PairData | None) -> Choice:
    if len(options) == 1:
        few = f"{0 if held is None else len(held)} held-out answers are fewer than {FEWEST_HELD_OUT}, too few to choose by"
        return Choice(0, f"Used {options[0]}: {few if open_question else 'it was asked for'}.", ())
    sound = [k for k, t in enumerate(trials) if t.result.status != "diverged"] or list(range(len(trials)))
    nll = [n for n in (trials[k].nll for k in sound) if n is not None]
    picked = choose([options[k] for k in sound], nll, None if held is None else held.annotator)
    return Choice(sound[picked.index], picked.reason, picked.table)


def _hold_on(shop: _Workshop, best: _Trial, chosen: Candidate, start: Start) -> tuple[_Trial, Candidate, str]:
    """Where the answers tear items from their neighbours: train again from the stable partition, and with it as an annotator.

    What the answers say against it must go somewhere: into the free B, where we are free to and there was no confusion.
    Returns what was trained last and did not diverge, its candidate, and what is to be said.
    """
    told, x = "", shop.pairs.x
    if start.stable is None:
        return best, chosen, told
    stable, near = torch.as_tensor(start.stable).to(x.device), Neighbourhood(x.cpu().numpy())
    for weight in HOLD_ON:
        torn = near.torn(memberships(best.model, x).argmax(1).cpu().numpy(), start.stable)
        if torn is None:
            break
        held_on = replace(freed(chosen, shop.recipe.confusion, shop.recipe.volume), partition=weight)
        net = first_net(shop.recipe, x, stable, shop.recipe.seed)
        again = shop.train(held_on, net, stable, shop.recipe.seed, f"holding on, {weight:g}")
        if again.result.status == "diverged":
            return best, chosen, told + f" Holding on to plain K-means with weight {weight:g} diverged, and was left."
        best, chosen = again, held_on
        told += f" Trained again, holding on to plain K-means: {torn}. Used {held_on}."
    return best, chosen, told
