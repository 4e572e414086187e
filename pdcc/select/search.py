"""From checked pairs to a fit: hold answers out, compare candidates, train what is chosen on all that was not held out."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from pdcc.arrays import Floats
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler, fits_float32
from pdcc.data.splits import HeldOut, Split, hold_out
from pdcc.fitted import FitReport, Fitted
from pdcc.inference import memberships
from pdcc.metrics import acc
from pdcc.rows import FeatureRows
from pdcc.select import numbers
from pdcc.select.compare import Candidate, Comparison, Neighbours, Sample, View, scale_name
from pdcc.select.forms import confusion_start, screen
from pdcc.select.outcome import as_fitted, look
from pdcc.select.rule import Rows, better, choose, choose_simplest
from pdcc.together import Job, first_nets, train_all, trained_side_by_side
from pdcc.training import (
    OUR_PARTS,
    RESTART_STRIDE,
    Oracle,
    OwnParts,
    Shape,
    Source,
    Specification,
    Start,
    TrainConfig,
    Trainer,
    Trial,
    tensors,
)

logger = logging.getLogger(__name__)

# What a partition alone is kept as, where nothing says more.
PLAIN = Start(Source.KMEANS)


@dataclass(frozen=True)
class Preparation:
    """What does not depend on the confusion and the volume: what is held out, the sample, and the chosen partition.

    start: None for a random net. compared: what partitions were compared. begin: the best
    partition by features alone, at which a net begins. view: what nets see. leader: what predicts answers best. settled: no net
    is tried, since answers say nothing, or items' own answers say far more than features do.
    """

    split: Split
    comparison: Comparison
    chosen: Candidate
    reason: str
    compared: Rows
    begin: Candidate
    view: View
    leader: Candidate
    settled: bool = False


def prepare(
    data: PairData, config: TrainConfig, device: torch.device, own: OwnParts = OUR_PARTS, *,
    progress: bool = False, checkpoints: Path | None = None,
) -> Preparation:  # fmt: skip
    """Hold answers out, and choose the scaling and the partition that training begins at."""
    if config.volume_estimator == "full" and isinstance(data.features, FeatureRows):
        raise ValueError(
            'volume_estimator: expected "minibatch" for features that are too large to be copied '
            f'(shape {data.features.shape}), found "full", which looks at all items in every step. Leave it out.'
        )
    split = hold_out(data, config.validation_fraction, config.seed)
    sample = Sample.of(split.train(data), config.seed)
    leading = numbers.LEADING if own.network is None else None
    scalers = [
        Scaler.fit(data.features, kind, leading) for kind in scalings(np.asarray(sample.answers.features), config.scale)
    ]
    views = [View.of(data.features, sample.rows, scaler, device, config, checkpoints) for scaler in scalers]
    with tqdm(desc="choose a partition", disable=not progress, leave=False) as bar:
        comparison = Comparison(
            sample,
            config,
            own,
            len(data.annotator_names),
            Neighbours.of(sample, config.seed),
            progress,
            checkpoints,
            bar,
        )
        if config.init == "random":
            return Preparation(
                split, comparison, found := comparison.random(views[0]), "as asked for", (), found, views[0], found
            )
        if not comparison.possible:
            found = comparison.unjudged(views[0], PLAIN)
            return Preparation(
                split, comparison, found, "too few answers to compare partitions by", (), found, views[0], found
            )
        candidates = _partitions(comparison, views, config)
    nothing = comparison.constant()
    candidates = [nothing, *candidates]
    choice = choose([one.evidence for one in candidates], sample.answers)
    found, reason = candidates[choice.index], choice.reason
    informed = better(candidates[choice.best].evidence, nothing.evidence, sample.answers, numbers.INFORMED)
    if found is nothing or (config.confusion == "auto" and not informed):
        found = min((one for one in candidates if one.start == PLAIN), key=_nll)
        reason = (
            "no partition clearly predicts left-out answers better than one rate for all pairs, so K-means is kept: "
            "ask more pairs, or fewer clusters"
        )
        logger.warning("Answers say nothing of the clusters: %s.", reason)
    leader = candidates[choice.best]
    by_features = {one.evidence.name for one in candidates[1:] if not one.own_answers}
    far = found.own_answers and not any(row["near"] for row in choice.table if row["setting"] in by_features)
    settled = not informed or far
    begin = found
    if found.own_answers:
        begin = min((one for one in candidates[1:] if not one.own_answers), key=_nll)
    return Preparation(split, comparison, found, reason, choice.table, begin, views[0], leader, settled)


def scalings(X: Floats, kind: str | None) -> tuple[str | None, ...]:
    """The scalings to compare for items like X (n, d)."""
    if kind != "auto":
        return (kind,)
    if X[0].size < numbers.WIDE:
        return ("standard", "unit") if X[0].size > 2 else ("standard",)
    return ("unit", None) if bool(fits_float32(X).all()) else ("unit", "standard")


def _partitions(comparison: Comparison, views: list[View], config: TrainConfig) -> list[Candidate]:
    """All candidates that are no nets, simplest first."""
    plain = [comparison.partition(view, PLAIN) for view in views]
    found = [*plain]
    if config.init == "kmeans":
        return found
    guided = [comparison.partition(view, Start(Source.GUIDED)) for view in views]
    best = min(guided, key=_nll)
    found += guided
    if best.view.way.few:
        found += _mixtures(comparison, best.view, by_features=config.confusion != "auto")
    return found


def _mixtures(comparison: Comparison, view: View, *, by_features: bool) -> list[Candidate]:
    """Neighbours joined with answers, mixtures from everywhere, and, unless all must go ``by_features``, items' own answers."""
    found = [comparison.partition(view, Start(Source.GRAPH))]
    starts = [Start(source, shape) for shape in (Shape.SHARED, Shape.OWN) for source in Source]
    mixed = {start: comparison.partition(view, start) for start in starts}
    leader = min(starts, key=lambda start: _nll(mixed[start]))
    best_moved = replace(leader, moved=True)
    mixed[best_moved] = comparison.partition(view, best_moved)
    found += mixed.values()
    if by_features:
        return found
    # Own shapes are fitted to what items' answers say too, and rarely gain by it: one shape stands for both.
    some = [one for start, one in mixed.items() if start.shape is Shape.SHARED or start in (leader, best_moved)]
    nothing, best = comparison.constant().evidence, min(found, key=_nll).evidence
    needed = not better(best, nothing, comparison.answers, numbers.INFORMED)
    own = (comparison.with_own_answers(one, needed=needed) for one in some)
    return found + [one for one in own if one is not None]


def _nll(candidate: Candidate) -> float:
    return float(candidate.evidence.nll.mean())


def search(
    data: PairData,
    config: TrainConfig,
    device: torch.device,
    *,
    own: OwnParts = OUR_PARTS,
    prepared: Preparation | None = None,
    progress: bool = False,
    checkpoints: Path | None = None,
    oracle: Oracle | None = None,
) -> Fitted:
    """Fit ``config`` to ``data``. With ``checkpoints``, an interrupted run picks up from the files it finds there.

    ``prepared``: what ``prepare`` returns, where it is known already. ``own``: modules in the place of ours.
    ``oracle``: labelled items that choose the epoch, where one wants to know what labels would have chosen.
    """
    _warn_of_the_useless(config, len(data.annotator_names))
    at = prepared or prepare(data, config, device, own, progress=progress, checkpoints=checkpoints)
    plan = _plan(at, config, oracle)
    view = at.view if plan.epochs != 0 else plan.chosen.view
    shown, held = at.split.train(data), at.split.test(data)
    trials = _train(plan, view, shown, held, config, own, len(data.annotator_names), progress, checkpoints, oracle)
    best = min(trials, key=_score)
    overruled = config.confusion == "auto" and at.leader is not at.chosen
    if overruled and plan.epochs != 0 and _kept(best, view, at.chosen) < numbers.SURE:
        # Features overruled the answers, and a net is not to undo that.
        plan = replace(plan, chosen=at.chosen, epochs=0, reason=f"{plan.reason}; trained on all answers, it left them")
        view = at.chosen.view
        best = _train(plan, view, shown, held, config, own, len(data.annotator_names), progress, checkpoints, oracle)[0]
    logger.info("fit: %s", best.result.message)
    useful = look(best, view.x, shown, held)
    for line in useful.failures:
        logger.warning(line)
    report = FitReport(
        held_out=at.split.by,
        n_held_out=int(at.split.held.sum()),
        held_out_annotators=tuple(held.present()) if held is not None and at.split.by is HeldOut.ANNOTATORS else (),
        n_compared=len(at.comparison.answers),
        scale=scale_name(view.scaler.kind),
        start=plan.chosen.start,
        own_answers=plan.chosen.own_answers,
        epochs=best.result.best_epoch + 1,
        compared=plan.compared,
        chosen=plan.spec,
        reason=plan.reason,
        useful=useful,
    )
    logger.debug(str(report))
    return as_fitted(
        best, view.x, view.scaler, data, at.split, config.settled(plan.spec, view.scaler.kind), own, report
    )


@dataclass(frozen=True)
class Plan:
    """What is trained in the end. epochs: how many; None: until held-out answers stop improving."""

    chosen: Candidate
    spec: Specification
    epochs: int | None
    reason: str
    compared: Rows


def _plan(at: Preparation, config: TrainConfig, oracle: Oracle | None) -> Plan:
    """Choose the confusion, the volume, and whether a net is trained at all."""
    comparison, chosen, begin = at.comparison, at.chosen, at.begin
    answers, K = comparison.answers, config.n_clusters
    free = config.confusion == "auto"
    volumes = numbers.VOLUMES if config.volume == "auto" else (float(config.volume),)
    if not trained_side_by_side(config, tuple(at.view.sampled.shape[1:]), comparison.own):
        volumes = volumes[:1]  # one training for each fold, and one more
    form = config.confusion
    if form == "per-annotator" and comparison.n_annotators < 2:
        form = "stochastic"
    reasons, compared = [at.reason], at.compared
    if free and chosen.ends is None:
        form = "stochastic"
    elif free and chosen.ends is not None:
        form, choice = screen(chosen.ends, K, answers)
        compared += choice.table
        reasons.append(choice.reason)
    specs = [Specification(form, volume, config.partition_weight) for volume in volumes]
    plan = Plan(chosen if free else begin, specs[0], None, "; ".join(reasons), compared)
    automatic = config.epochs == "auto" and oracle is None
    if not comparison.possible:
        return replace(plan, epochs=0 if free and begin.start is not None else None)
    if free and at.settled:
        return replace(plan, epochs=0)
    if not (automatic or len(specs) > 1):
        return plan
    nets = [comparison.net(at.view, begin, spec) for spec in specs]
    if len(nets) > 1:
        choice = choose_simplest([net.evidence for net in nets], answers)
        compared += choice.table
        reasons.append(choice.reason)
        net = nets[choice.index]
    else:
        net = nets[0]
    plan = replace(plan, chosen=net, spec=net.spec or plan.spec, epochs=net.epochs if automatic else None)
    if free and begin.start is not None:
        if at.leader is chosen:
            choice = choose_simplest([chosen.evidence, net.evidence], answers)
        else:  # features overrule answers
            choice = choose([chosen.evidence, net.evidence, at.leader.evidence], answers)
        compared += choice.table
        reasons.append(choice.reason)
        if choice.index != 1:
            plan = replace(plan, chosen=chosen, epochs=0)
    return replace(plan, reason="; ".join(reasons), compared=compared)


def _train(
    plan: Plan, view: View, shown: PairData, held: PairData | None, config: TrainConfig, own: OwnParts, n_annotators: int,
    progress: bool, checkpoints: Path | None, oracle: Oracle | None,
) -> list[Trial]:  # fmt: skip
    """``n_init`` fits of the plan, each from a net of its own."""
    n, x, K = config.n_init, view.x, config.n_clusters
    seeds = [config.seed + RESTART_STRIDE * r for r in range(n)]
    titles = ["fit", *(f"restart {r + 1} of {n}" for r in range(1, n))]
    labels = agreement = None
    if plan.chosen.start is not None:
        begin = plan.chosen.labels if plan.epochs == 0 else plan.chosen.begin
        made = view.extended(begin)
        labels = torch.as_tensor(made).to(x.device)
        agreement = confusion_start(plan.spec.confusion, made, shown, K, x.device)
    judge = None if oracle is None else _accuracy_of(oracle, view.scaler, x.device)
    judged = None if held is None else tensors(held, x)
    trainer = Trainer(config, tensors(shown, x), judged, n_annotators, own, progress, checkpoints, judge)
    nets = first_nets(config, x, [labels] * n, seeds, own)
    return train_all(
        [
            Job(trainer, plan.spec, net, labels, seed, title, agreement=agreement, exactly=plan.epochs)
            for net, seed, title in zip(nets, seeds, titles, strict=True)
        ]
    )


def _kept(trial: Trial, view: View, chosen: Candidate) -> float:
    """The share of the sample's items that a net leaves in their clusters."""
    labels = memberships(trial.model, view.sampled).argmax(1).cpu().numpy()
    return float(acc(chosen.labels, labels))


def _score(trial: Trial) -> float:
    return np.inf if trial.nll is None else float(np.nan_to_num(trial.nll, nan=np.inf).mean())


def _accuracy_of(oracle: Oracle, scaler: Scaler, device: torch.device) -> Callable[[nn.Module], float]:
    """Minus the accuracy of a model on items with known classes."""
    x = torch.as_tensor(scaler(oracle.features)).to(device)
    return lambda model: -acc(oracle.classes, memberships(model, x).argmax(1).cpu().numpy())


def _warn_of_the_useless(config: TrainConfig, n_annotators: int) -> None:
    if config.confusion == "per-annotator" and n_annotators < 2:
        logger.warning(
            "confusion='per-annotator': fewer than two annotators are named, so all answers share one confusion. "
            "Pass annotators."
        )
    if config.partition_weight > 0 and config.init == "random":
        logger.warning(
            'partition_weight: init="random" has no partition to count as an annotator, so the weight is not used. '
            'Use init="kmeans" or "pairs".'
        )
