"""From checked pairs to a fit: hold out, start, train the specifications compared, choose by held-out answers."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from pdcc.auto.calibration import AUTO_PARTITION_WEIGHT, FEWEST_HELD_OUT, PARTITION_WEIGHTS
from pdcc.auto.initialise import Start, make_start
from pdcc.auto.rules import Choice, choose, specifications, with_free_b
from pdcc.auto.signals import Neighbourhood
from pdcc.data.pairs import PairData
from pdcc.data.scaling import SCALES, Scaler
from pdcc.data.splits import HeldOut, Split, hold_out
from pdcc.fitted import FitReport, Fitted, StartReport
from pdcc.inference import FitStatus, memberships, point_agreement
from pdcc.metrics import acc
from pdcc.training import (
    OUR_PARTS,
    RESTART_STRIDE,
    Oracle,
    OwnParts,
    Specification,
    TrainConfig,
    Trainer,
    Trial,
    first_net,
    tensors,
)

logger = logging.getLogger(__name__)


def start_of(data: PairData, config: TrainConfig, split: Split | None = None) -> Start | None:
    """The scaling and the partition that training sets out from; None where nothing is left to the answers."""
    if config.init == "random" and config.scale != "auto":
        return None
    split = hold_out(data, config.validation_fraction, config.seed) if split is None else split
    kinds = SCALES if config.scale == "auto" else (config.scale,)
    init = "kmeans" if config.init == "random" else config.init  # then only its choice of scale is used
    shown = split.train(data)
    return make_start(data.features, config.n_clusters, shown, scales=kinds, init=init, seed=config.seed)


def search(
    data: PairData,
    config: TrainConfig,
    device: torch.device,
    *,
    own: OwnParts = OUR_PARTS,
    start: Start | None = None,
    progress: bool = False,
    checkpoints: Path | None = None,
    oracle: Oracle | None = None,
) -> Fitted:
    """Fit ``config`` to ``data``. With ``checkpoints``, an interrupted run picks up from the files it finds there.

    ``start``: what ``start_of`` returns, where it is known already. ``own``: modules in the place of ours.
    ``oracle``: labelled items that choose the epoch, where one wants to know what labels would have chosen.
    """
    split = hold_out(data, config.validation_fraction, config.seed)
    shown, held = split.train(data), split.test(data)
    start = start_of(data, config, split) if start is None else start
    if start is not None:
        logger.info("start: %s. %s", start.name, start.reason)
    scaler = Scaler.fit(data.features, config.scale) if start is None else start.scaler
    x = torch.as_tensor(scaler(data.features)).to(device)
    labels = None if start is None or config.init == "random" else torch.as_tensor(start.labels).to(device)

    known = len(data.annotator_names)
    weight = _partition_weight(config, start if labels is not None else None)
    _warn_of_the_useless(config, known, labels is not None)
    enough = held is not None and len(held) >= FEWEST_HELD_OUT
    options = specifications(config.confusion, config.volume, weight, annotators=known > 1, enough=enough)

    test = None if held is None else tensors(held, x)
    judge = None if oracle is None else _accuracy_of(oracle, scaler, device)
    trainer = Trainer(config, tensors(shown, x), test, known, own, progress, checkpoints, judge)
    net = first_net(config, x, labels, config.seed, own)
    trials = [
        trainer.train(o, net, labels, config.seed, f"setting {k + 1} of {len(options)}") for k, o in enumerate(options)
    ]
    choice = _choose("auto" in (config.confusion, config.volume), options, trials, held)
    best, chosen, reason = trials[choice.index], options[choice.index], choice.reason
    for restart in range(1, config.n_init):
        seed = config.seed + RESTART_STRIDE * restart
        net = first_net(config, x, labels, seed, own)
        again = trainer.train(chosen, net, labels, seed, f"restart {restart + 1} of {config.n_init}")
        best = again if again.result.held_out < best.result.held_out else best
    if config.partition_weight == "auto" and weight == 0 and labels is not None and start is not None:
        best, chosen, words = _keep_neighbours_together(trainer, best, chosen, start)
        reason += words
    logger.info(reason)
    report = FitReport(
        held_out=split.by,
        n_held_out=int(split.held.sum()),
        held_out_annotators=tuple(held.present()) if held is not None and split.by is HeldOut.ANNOTATORS else (),
        start=None if start is None else StartReport(start.name, start.reason, start.table),
        compared=choice.table,
        chosen=chosen,
        reason=reason,
    )
    return _fitted(data, trainer, best, scaler, split, report)


def _fitted(data: PairData, trainer: Trainer, best: Trial, scaler: Scaler, split: Split, report: FitReport) -> Fitted:
    return Fitted(
        model=best.model.eval(),
        guide=best.guide,
        agreement=point_agreement(best.model, best.guide, trainer.pairs),
        scaler=scaler,
        config=trainer.config.settled(report.chosen),
        split=split,
        answers=data.fingerprint(),
        annotators=data.annotator_names,
        item_shape=tuple(data.features.shape[1:]),
        status=best.result.status,
        message=best.result.message,
        history=best.result.history,
        report=report,
        own=trainer.own,
    )


def _accuracy_of(oracle: Oracle, scaler: Scaler, device: torch.device) -> Callable[[nn.Module], float]:
    """Minus the accuracy of a model on items with known classes."""
    x = torch.as_tensor(scaler(oracle.features)).to(device)
    return lambda model: -acc(oracle.classes, memberships(model, x).argmax(1).cpu().numpy())


def _partition_weight(config: TrainConfig, start: Start | None) -> float:
    """The weight of the partition ``start`` beside the answers; None: there is none."""
    if start is None:
        return 0.0
    if config.partition_weight == "auto":
        return AUTO_PARTITION_WEIGHT if start.as_annotator else 0.0
    return float(config.partition_weight)


def _warn_of_the_useless(config: TrainConfig, n_annotators: int, partitioned: bool) -> None:
    if config.confusion == "per-annotator" and n_annotators < 2:
        logger.warning(
            "confusion='per-annotator': fewer than two annotators are named, so all answers share one confusion. Pass annotators."
        )
    if config.partition_weight not in ("auto", 0.0) and not partitioned:
        logger.warning(
            'partition_weight: init="random" has no partition to count as an annotator, so the weight is not used. Use init="kmeans" or "pairs".'
        )


def _choose(open_question: bool, options: list[Specification], trials: list[Trial], held: PairData | None) -> Choice:
    if len(options) == 1:
        few = f"{0 if held is None else len(held)} held-out answers are fewer than {FEWEST_HELD_OUT}, too few to choose by"
        return Choice(0, f"Used {options[0]}: {few if open_question else 'it was asked for'}.", ())
    sound = [k for k, t in enumerate(trials) if t.result.status is not FitStatus.DIVERGED] or list(range(len(trials)))
    nll = [n for n in (trials[k].nll for k in sound) if n is not None]
    picked = choose([options[k] for k in sound], nll, None if held is None else held.annotator)
    return Choice(sound[picked.index], picked.reason, picked.table)


def _keep_neighbours_together(
    trainer: Trainer, best: Trial, chosen: Specification, start: Start
) -> tuple[Trial, Specification, str]:
    """Where k-NN label agreement falls behind the stable partition's: train again from it, and with it as an annotator.

    What the answers say against it must go somewhere: into the free B, where we are free to and there was no confusion.
    Returns what was trained last and did not diverge, its specification, and what is to be said.
    """
    words, x = "", trainer.pairs.x
    if start.stable is None:
        return best, chosen, words
    stable, near = torch.as_tensor(start.stable).to(x.device), Neighbourhood(x.flatten(1).cpu().numpy())
    config = trainer.config
    for weight in PARTITION_WEIGHTS:
        behind = near.falls_behind(memberships(best.model, x).argmax(1).cpu().numpy(), start.stable)
        if behind is None:
            break
        weighted = replace(with_free_b(chosen, config.confusion, config.volume), partition_weight=weight)
        net = first_net(config, x, stable, config.seed, trainer.own)
        again = trainer.train(weighted, net, stable, config.seed, f"partition weight {weight:g}")
        if again.result.status is FitStatus.DIVERGED:
            return best, chosen, words + f" With plain K-means as an annotator of weight {weight:g} training diverged."
        best, chosen = again, weighted
        words += f" Trained again with plain K-means as an annotator, since {behind}. Used {weighted}."
    return best, chosen, words
