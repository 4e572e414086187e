"""From checked pairs to a fit: hold out, compare by answers about new items, train what is chosen, and look at what came of it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from pdcc.arrays import Float64, Ints
from pdcc.auto.calibration import FEWEST_NEW, NEW_FOLDS, WIDE
from pdcc.auto.initialise import Partitioner, Start, make_start, make_ways, scale_name
from pdcc.auto.large import as_items, as_rows, few
from pdcc.auto.outcome import as_fitted, look
from pdcc.auto.rules import Rows, choose, specifications, within_reach
from pdcc.auto.signals import constant_nll, partition_agreement
from pdcc.baselines.kmeans import steadiness
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler
from pdcc.data.splits import HeldOut, Split, hold_out, new_folds
from pdcc.exclusive import one_core
from pdcc.fitted import MOST_WRONG, FitReport, Fitted, Usefulness
from pdcc.inference import memberships
from pdcc.inference.rows import Items
from pdcc.metrics import acc
from pdcc.models import Membership
from pdcc.rows import FeatureRows
from pdcc.together import Job, first_nets, train_all
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


@dataclass(frozen=True)
class Route:
    """One scaling of the items and the partition to set out from: x (N, p) scaled, on the device; start: None for a random one."""

    scaler: Scaler
    x: Items
    start: Start | None

    @property
    def name(self) -> str:
        """For people."""
        return f"{scale_name(self.scaler.kind)}, {'random start' if self.start is None else self.start.name}"


@dataclass(frozen=True)
class Preparation:
    """What does not depend on the specification: the split, the folds to compare by, and the routes.

    compared: what scalings and starts were compared by.
    """

    split: Split
    folds: list[tuple[PairData, PairData]]
    routes: list[Route]
    compared: Rows


@dataclass(frozen=True)
class Plan:
    """What is trained in the end. epochs: how many; None: until held-out answers stop improving. compared: rows of the report.

    by_heart: train for as long as "auto" ever does, and longer; the best state is kept. fell_back: why it is not what was to be trained at first.
    """

    route: Route
    spec: Specification
    epochs: int | None
    compared: Rows
    reason: str
    by_heart: bool = False
    fell_back: str | None = None

    def kept(self, route: Route, why: str) -> "Plan":
        """Plain K-means, in the place of anything trained."""
        start = None if route.start is None else route.start.unguided()
        words = f"{why} Fell back to plain K-means. Ask more pairs, or for fewer clusters."
        return replace(self, route=replace(route, start=start), epochs=0, fell_back=words)


def prepare(data: PairData, config: TrainConfig, device: torch.device, own: OwnParts = OUR_PARTS) -> Preparation:
    """Hold out, and make the routes that ``config`` leaves open, but for those whose start is clearly behind."""
    if config.volume_estimator == "full" and isinstance(data.features, FeatureRows):
        raise ValueError(
            f'volume_estimator: expected "minibatch" for features that are too large to be copied (shape {data.features.shape}), found "full", which looks at all items in every step. Leave it out.'
        )
    split = hold_out(data, config.validation_fraction, config.seed)
    shown = split.train(data)
    folds = new_folds(shown, NEW_FOLDS, config.seed)
    if sum(len(test) for _, test in folds) < FEWEST_NEW:
        folds = []
    kinds: tuple[str | None, ...] = (config.scale,)
    if config.scale == "auto":
        kinds = ("standard", "unit") if data.features[0].size >= WIDE and folds else ("standard",)
    with one_core():
        ways, rows = make_ways(data.features, shown, config.n_clusters, kinds, config.seed, project=own.network is None)
        routes = []
        for scaler, way in ways:
            start = None if config.init == "random" else make_start(way, config.init, shown)
            x = as_items(way.X, scaler.scaled(data.features.shape[1:])).to(device)
            routes.append(Route(scaler, x, start))
            if start is not None:
                if start.before is not None and folds:
                    routes.append(Route(scaler, x, start.before))
                scale = scale_name(scaler.kind)
                rows += tuple(row | {"setting": f"{scale}, {row['setting']}"} for row in start.table)
    return Preparation(split, folds, routes, rows)


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
    at = prepare(data, config, device, own) if prepared is None else prepared
    known = len(data.annotator_names)
    _warn_of_the_useless(config, known)
    run = Runner(config, own, known, progress, checkpoints, oracle)
    options = specifications(config.confusion, config.volume, config.partition_weight, annotators=known > 1)
    plan = _plan(run, at, options)
    shown, held = at.split.train(data), at.split.test(data)
    best = min(run.restarts(plan, shown, held), key=_score)
    best, plan, useful = _useful(run, plan, best, shown, held, at.routes)
    report = FitReport(
        held_out=at.split.by,
        n_held_out=int(at.split.held.sum()),
        held_out_annotators=tuple(held.present()) if held is not None and at.split.by is HeldOut.ANNOTATORS else (),
        n_new=sum(len(test) for _, test in at.folds),
        start=plan.route.name,
        start_kind=None if plan.route.start is None else plan.route.start.kind,
        epochs=best.result.best_epoch + 1,
        compared=plan.compared,
        chosen=plan.spec,
        reason=plan.reason,
        useful=useful,
    )
    logger.debug(str(report))
    x, scaler = plan.route.x, plan.route.scaler
    return as_fitted(best, x, scaler, data, at.split, config.settled(plan.spec, scaler.kind), own, report)


@dataclass(frozen=True)
class Runner:
    """Trains one plan on some answers, judged by others."""

    config: TrainConfig
    own: OwnParts
    n_annotators: int
    progress: bool
    checkpoints: Path | None
    oracle: Oracle | None
    warm: dict[tuple[str | None, bytes, int], Membership] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """The confusion is ours to choose."""
        return self.config.confusion == "auto"

    @property
    def simplest(self) -> Specification:
        """One rate within clusters and one across."""
        volume = self.config.volume
        return Specification("rates", 0.0 if isinstance(volume, str) else float(volume), self.config.partition_weight)

    def steadiest(self, routes: list[Route]) -> Route:
        """Where answers choose nothing: the scaling under which K-means finds the same clusters again and again."""
        K, seed = self.config.n_clusters, self.config.seed
        each = list({r.scaler.kind: r for r in reversed(routes)}.values())[::-1]
        return each[0] if len(each) == 1 else max(each, key=lambda r: steadiness(few(r.x, seed), K, seed))

    def _warm_key(self, route: Route, labels: Ints | None, seed: int) -> tuple[str | None, bytes, int]:
        return route.scaler.kind, b"" if labels is None else labels.tobytes(), seed

    def first_net(self, route: Route, labels: Ints | None, seed: int) -> Membership:
        """f_theta as training finds it; made once for all that set out from the same labels."""
        key = self._warm_key(route, labels, seed)
        if key not in self.warm:
            given = None if labels is None else torch.as_tensor(labels).to(route.x.device)
            self.warm[key] = first_net(self.config, route.x, given, seed, self.own)
        return self.warm[key]

    def train(
        self, plan: Plan, train: PairData, test: PairData | None, title: str, *, comparing: bool = False, seed: int = -1
    ) -> Trial:
        """Fit to ``train`` from the plan's start."""
        return self.job(plan, train, test, title, comparing=comparing, seed=seed).run()

    def restarts(self, plan: Plan, train: PairData, test: PairData | None) -> list[Trial]:
        """``n_init`` fits of the plan, each from a start of its own."""
        n, route = self.config.n_init, plan.route
        seeds = [self.config.seed + RESTART_STRIDE * r for r in range(n)]
        titles = ["fit", *(f"restart {r + 1} of {n}" for r in range(1, n))]
        made = None if route.start is None else route.start.labels
        new = [seed for seed in seeds if self._warm_key(route, made, seed) not in self.warm]
        given = None if made is None else torch.as_tensor(made).to(route.x.device)
        for seed, net in zip(new, first_nets(self.config, route.x, [given] * len(new), new, self.own), strict=True):
            self.warm[self._warm_key(route, made, seed)] = net
        return train_all([self.job(plan, train, test, title, seed=s) for title, s in zip(titles, seeds, strict=True)])

    def job(
        self, plan: Plan, train: PairData, test: PairData | None, title: str, *, comparing: bool = False, seed: int = -1
    ) -> Job:
        """What is to be trained."""
        c, x, start = self.config, plan.route.x, plan.route.start
        seed = c.seed if seed < 0 else seed
        made = labels = agreement = None
        if start is not None:
            made = start.labels
            B = partition_agreement(made, c.n_clusters, train)
            labels, agreement = torch.as_tensor(made).to(x.device), torch.as_tensor(B, dtype=x.dtype).to(x.device)
        judge = None if self.oracle is None else _accuracy_of(self.oracle, plan.route.scaler, x.device)
        judged = None if test is None else tensors(test, x)
        trainer = Trainer(
            c, tensors(train, x), judged, self.n_annotators, self.own, self.progress, self.checkpoints, judge
        )
        net = self.first_net(plan.route, made, seed)
        return Job(
            trainer, plan.spec, net, labels, seed, title,
            agreement=agreement, exactly=plan.epochs, by_heart=plan.by_heart, comparing=comparing,
        )  # fmt: skip


def _plan(run: Runner, at: Preparation, options: list[Specification]) -> Plan:
    """Choose by answers about what training never saw: every route with the first option, then the other options on the best."""
    automatic = run.config.epochs == "auto" and run.oracle is None
    plain = Plan(at.routes[0], options[0], None, at.compared, "as asked for")
    if not at.folds or not (automatic or len(at.routes) > 1 or len(options) > 1):
        return plain if at.folds else replace(plain, reason="too few answers to choose by")

    def compared(route: Route, spec: Specification) -> tuple[Float64, int]:
        plan = replace(plain, route=route, spec=spec)
        names = (f"{route.name}, fold {k + 1}" for k in range(len(at.folds)))
        return _pooled(
            train_all([run.job(plan, *fold, name, comparing=True) for fold, name in zip(at.folds, names, strict=True)])
        )

    found = [compared(route, options[0]) for route in at.routes]
    scores = [nll for nll, _ in found]
    names, liked = [route.name for route in at.routes], [-float(nll.mean()) for nll in scores]
    by_route = choose(names, scores, liked, allowed=_shown_better(at.routes, scores))
    route = at.routes[by_route.index]
    found = [found[by_route.index], *(compared(route, option) for option in options[1:])]
    by_option = choose([str(option) for option in options], [nll for nll, _ in found])
    choices = [choice for choice in (by_route, by_option) if len(choice.table) > 1]
    plan = Plan(
        route,
        options[by_option.index],
        found[by_option.index][1] if automatic else None,
        (*at.compared, *(row for choice in choices for row in choice.table)),
        "; ".join(choice.reason for choice in choices) or "as asked for",
    )
    constant = np.concatenate([constant_nll(*fold) for fold in at.folds])
    told = any(r.start is None or r.start.told for r in at.routes)
    if told or not run.free or not within_reach([*(nll for nll, _ in found), constant])[-1]:
        return plan
    why = "No setting predicts answers about new items or annotators better than one rate for all pairs."
    return replace(plan, spec=run.simplest).kept(run.steadiest(at.routes), why)


def _shown_better(routes: Sequence[Route], nll: Sequence[Float64]) -> list[bool]:
    """Which routes may be taken: all but rearranged starts that nets do not find a standard error better than what they were made of.

    Starts are made of all answers, so that the one that was changed to please them has an advantage in every fold.
    """

    def better(route: Route, score: Float64) -> bool:
        before = None if route.start is None else route.start.before
        earlier = [n for r, n in zip(routes, nll, strict=True) if before is not None and r.start is before]
        return not earlier or not within_reach([earlier[0], score])[0]

    return [better(route, score) for route, score in zip(routes, nll, strict=True)]


def _pooled(trials: Sequence[Trial]) -> tuple[Float64, int]:
    """Nats of every fold's answers at the fold's best epoch, and the number of epochs that is best for all folds together."""
    nll = [t.nll for t in trials if t.nll is not None]
    curves = [[t.result.start_held_out, *(epoch["held_out"] for epoch in t.result.history)] for t in trials]
    length = min(len(curve) for curve in curves)
    mean = np.average([curve[:length] for curve in curves], axis=0, weights=[len(n) for n in nll])
    return np.concatenate(nll), int(np.nanargmin(mean))


def _score(trial: Trial) -> float:
    return np.inf if trial.nll is None else float(np.nan_to_num(trial.nll, nan=np.inf).mean())


def _useful(
    run: Runner, plan: Plan, best: Trial, shown: PairData, held: PairData | None, routes: list[Route]
) -> tuple[Trial, Plan, Usefulness]:
    """Look at what came of it; where it is of no use, train another way, or else keep plain K-means."""
    was = _look(run, best, plan, shown, held)
    if run.free and held is not None and was.doubtful and min(was.sizes) > 0:
        recalled = _by_heart(run, plan, was.within, shown)
        trial = run.train(recalled, shown, held, "by heart")
        found, rate = _look(run, trial, recalled, shown, held), constant_nll(shown, held)
        # The burden of proof is on clusters that cannot be right; but answers that say nothing prove nothing.
        as_good, told = within_reach([_nll(best), _nll(trial)])[1], not within_reach([_nll(trial), rate])[1]
        if as_good and told and not found.trouble and not found.doubtful:
            best, plan, was = trial, recalled, found
    ways = []
    if was.trouble and plan.fell_back is None:
        simple = replace(plan, spec=run.simplest) if run.free else plan
        if run.free and not was.blind:
            ways.append(replace(simple, fell_back=f"{was.trouble[0]} Trained with {run.simplest} instead."))
        ways += [] if plan.route.start is None else [simple.kept(run.steadiest(routes), was.trouble[0])]
    for number, way in enumerate(ways):
        trial = run.train(way, shown, held, f"another way {number + 1}")
        found = _look(run, trial, way, shown, held)
        if not found.trouble:
            best, plan, was = trial, way, found
            break
    for line in was.trouble or ([] if plan.fell_back is None else [plan.fell_back]):
        logger.warning(line)
    return best, plan, was


def _by_heart(run: Runner, plan: Plan, within: float, shown: PairData) -> Plan:
    """Clusters that follow the features contradict more answers than people get wrong: let every item's own answers speak.

    What predicts answers about new items stops before the net knows single items by heart, as it must where annotators have one label
    of an item in mind. But if at most a share ``MOST_WRONG`` of those is wrong, pairs within clusters that are right are called
    similar more often than this. So set out from K-means that pays for every answer it breaks, and train for long.
    """
    route, K, seed = plan.route, run.config.n_clusters, run.config.seed
    start = route.start
    if start is not None and run.config.init == "pairs":
        labels = Partitioner(as_rows(route.x), K, seed).make("constrained", shown)
        route = replace(route, start=replace(start, kind="constrained", labels=labels))
    words = f"its clusters, where {within:.0%} of the answers say similar, cannot be right if at most {MOST_WRONG:.0%} of the items are taken for others, so the items' own answers were learned by heart"
    return replace(
        plan,
        route=route,
        spec=run.simplest,
        epochs=None,
        by_heart=True,
        fell_back=None,
        reason=f"{plan.reason}; {words}",
    )


def _nll(trial: Trial) -> Float64:
    return np.zeros(1) if trial.nll is None else trial.nll


def _look(run: Runner, trial: Trial, plan: Plan, shown: PairData, held: PairData | None) -> Usefulness:
    """What came of a plan."""
    plain = None if plan.route.start is None else plan.route.start.plain
    return look(trial, plan.route.x, plain, shown, held, run.config.seed, plan.fell_back)


def _accuracy_of(oracle: Oracle, scaler: Scaler, device: torch.device) -> Callable[[nn.Module], float]:
    """Minus the accuracy of a model on items with known classes."""
    x = torch.as_tensor(scaler(oracle.features)).to(device)
    return lambda model: -acc(oracle.classes, memberships(model, x).argmax(1).cpu().numpy())


def _warn_of_the_useless(config: TrainConfig, n_annotators: int) -> None:
    if config.confusion == "per-annotator" and n_annotators < 2:
        logger.warning(
            "confusion='per-annotator': fewer than two annotators are named, so all answers share one confusion. Pass annotators."
        )
    if config.partition_weight > 0 and config.init == "random":
        logger.warning(
            'partition_weight: init="random" has no partition to count as an annotator, so the weight is not used. Use init="kmeans" or "pairs".'
        )
