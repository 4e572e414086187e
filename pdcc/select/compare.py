"""Candidates and what answers and features say of them, by answers that they were not made from.

Two kinds of folds. A fold of items: candidates are made again from the answers that touch none of its items, so that an
answer is predicted by memberships that nothing about its items went into, and nothing an annotator has in mind about an
item helps. A fold of answers (whole annotators): what an item's own other answers say of it may then be used, and is
judged by annotators who were left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import entr
from torch import Tensor
from tqdm.auto import tqdm

from pdcc.arrays import Bools, Floats, Ints
from pdcc.data.pairs import PairData
from pdcc.data.sampling import among
from pdcc.data.scaling import Scaler, check_scaled
from pdcc.data.splits import FEWEST_ANNOTATORS, fold_numbers
from pdcc.exclusive import one_core
from pdcc.fitted import Fitted
from pdcc.inference import memberships
from pdcc.inference.rows import Items, scaled_items
from pdcc.metrics import align
from pdcc.rows import ROWS_AT_ONCE, FeatureRows, drawn_rows
from pdcc.select import numbers
from pdcc.select.blockmodel import Ends, fit_answers, left_out_nll
from pdcc.select.features import support
from pdcc.select.forms import confusion_start
from pdcc.select.mixture import Shapes
from pdcc.select.rule import Evidence
from pdcc.select.score import contradictions
from pdcc.select.starts import Partitioner, neighbour_graph
from pdcc.together import Job, first_nets, train_all
from pdcc.training import OwnParts, Specification, Start, TrainConfig, Trainer, Trial, tensors


def scale_name(kind: str | None) -> str:
    """One of ``SCALES``, for people."""
    return "features as they are" if kind is None else f"{kind} scale"


@dataclass(frozen=True)
class Sample:
    """The items that choosing looks at: their row numbers (n,), and the answers among them, about items as numbered there."""

    rows: Ints
    answers: PairData

    @classmethod
    def of(cls, data: PairData, seed: int) -> "Sample":
        """All items, or ``SAMPLE`` of them."""
        rows, answers = among(data, numbers.SAMPLE, seed)
        return cls(rows, replace(answers, features=data.features[rows], item_ids=None))


class View:
    """One scaling of the features. sampled (n, ...): the sample's items; way: makes partitions of them."""

    def __init__(
        self,
        sampled: Tensor,
        scaler: Scaler,
        items: Callable[[], Items],
        n_clusters: int,
        seed: int,
        store: Path | None = None,
    ):
        self.sampled, self.scaler, self.items = sampled, scaler, items
        self.way = Partitioner(np.asarray(sampled.flatten(1).cpu().numpy()), n_clusters, seed, store)

    @classmethod
    def of(
        cls,
        features: Floats | FeatureRows,
        rows: Ints,
        scaler: Scaler,
        device: torch.device,
        config: TrainConfig,
        store: Path | None,
    ) -> "View":
        """That of the items numbered ``rows`` (n,). All others are scaled where they are asked for, and not before."""
        sampled = torch.as_tensor(check_scaled(scaler(features[rows]), rows)).to(device)
        return cls(
            sampled, scaler, lambda: scaled_items(features, scaler, device), config.n_clusters, config.seed, store
        )

    @cached_property
    def x(self) -> Items:
        """All items, (N, ...)."""
        return self.items()

    @property
    def name(self) -> str:
        """For people."""
        return scale_name(self.scaler.kind)

    def extended(self, labels: Ints) -> Ints:
        """Labels of all items (N,), for labels (n,) of the sample: others go to the cluster whose Gaussian they fit best."""
        if len(self.x) == len(labels):
            return labels
        Z = self.way.components
        unit = np.maximum(Z.std(axis=0), np.finfo(np.float64).tiny)
        shapes = Shapes.of(Z / unit, unit, np.eye(self.way.K)[labels], own_shapes=False)
        with one_core():
            parts = (part.flatten(1).cpu().numpy() for part in self.x.split(ROWS_AT_ONCE))
            return np.concatenate([shapes.labels(self.way.project(part)) for part in parts])


def start_labels(fitted: Fitted, x: Items, answers: PairData, seed: int, start: Start | None = None) -> Ints:
    """Labels (N,) that the start of a fit makes of other answers about the same items, x (N, ...) as the fit scales them."""
    start = start or fitted.report.start
    if start is None:
        raise ValueError("start: expected a fit that began at a partition, found one that began at a random net.")
    K = fitted.config.n_clusters
    rows, part = among(answers, numbers.SAMPLE, seed)
    view = View(x[torch.as_tensor(rows)], fitted.scaler, lambda: x, K, seed)
    made = view.way.make(start, replace(part, features=view.way.X, item_ids=None))
    if fitted.report.own_answers and made.by_answers is not None:
        return view.extended(made.by_answers.argmax(axis=1))
    return view.extended(made.labels)


@dataclass(frozen=True)
class Neighbours:
    """By which features support a partition: of some items ``rows`` (m,) of the sample, on standardised columns."""

    rows: Ints
    graph: "csr_array[np.float64]"

    @classmethod
    def of(cls, sample: Sample, seed: int) -> "Neighbours":
        """All items of the sample, or ``GRAPH_ITEMS`` of them."""
        n = len(sample.rows)
        rows = np.arange(n) if n <= numbers.GRAPH_ITEMS else drawn_rows(n, numbers.GRAPH_ITEMS, seed)
        X = sample.answers.features[rows]
        way = Partitioner(Scaler.fit(X, "standard")(X), numbers.MOST_COMPONENTS, seed)
        return cls(rows, neighbour_graph(way.components, weighed=False))


@dataclass(frozen=True)
class Candidate:
    """What may be chosen, made from all answers.

    scaled: the features it was made of; None for one rate for all pairs. labels (n,): of the sample's items; begin
    (n,): of the partition. in_folds (F, n): what the start makes of the answers outside each fold of items. ends:
    labels (M,) at the two ends of each answer, by folds without it. own_answers: labels are by an item's own answers
    too. spec: of a net that begins at the start, None for the start as it is. epochs: how long the net is best trained.
    """

    scaled: View | None
    start: Start | None
    labels: Ints
    begin: Ints
    in_folds: list[Ints]
    ends: tuple[Ints, Ints] | None
    evidence: Evidence
    own_answers: bool = False
    spec: Specification | None = None
    epochs: int = 0

    @property
    def view(self) -> View:
        """The features it was made of."""
        if self.scaled is None:
            raise ValueError("candidate: expected one that was made of features, found one rate for all pairs.")
        return self.scaled


@dataclass(frozen=True)
class Comparison:
    """Makes candidates and judges them on the same folds."""

    sample: Sample
    config: TrainConfig
    own: OwnParts
    n_annotators: int
    neighbours: "Neighbours"
    progress: bool = False
    checkpoints: Path | None = None
    bar: "tqdm[NoReturn] | None" = None

    @property
    def answers(self) -> PairData:
        """The answers that candidates are made from and judged by."""
        return self.sample.answers

    @property
    def n_folds(self) -> int:
        """A network of the user's may take long: it is trained at most four times in all."""
        return numbers.FOLDS if self.own.network is None else numbers.FOLDS - 1

    @cached_property
    def fold_of_item(self) -> Ints:
        """The fold of each item of the sample, (n,)."""
        n = len(self.sample.rows)
        return np.random.default_rng(self.config.seed).permutation(np.arange(n) % self.n_folds)

    def touched(self, fold: int) -> Bools:
        """Which answers are about an item of the fold, (M,)."""
        fold_of = self.fold_of_item
        return np.asarray((fold_of[self.answers.i] == fold) | (fold_of[self.answers.j] == fold))

    @cached_property
    def parts(self) -> list[PairData]:
        """The answers outside each fold of items."""
        return [self.answers.subset(~self.touched(fold)) for fold in range(self.n_folds)]

    @property
    def possible(self) -> bool:
        """Whether every fold leaves answers of both kinds."""
        return all(len(np.unique(part.similar)) == 2 for part in self.parts)

    def step(self, n: int = 1) -> None:
        """So many candidates more are made."""
        if self.bar is not None:
            self.bar.update(n)

    def evidence(self, name: str, ends: Ends, labels: Ints) -> Evidence:
        """What is known of labels (n,), whose answers are predicted by the clusters at their ends."""
        labels = labels[self.neighbours.rows]
        share = np.bincount(labels) / len(labels)
        supported = float(support(self.neighbours.graph, labels, self.config.n_clusters).mean())
        return Evidence(name, left_out_nll(ends, self.answers), supported, float(entr(share).sum()))

    def constant(self) -> Candidate:
        """One rate for all pairs."""
        nothing = np.zeros(len(self.answers), np.int64)
        labels = np.zeros(len(self.sample.rows), np.int64)
        nll = left_out_nll(Ends.of_labels(nothing, nothing, 1), self.answers)
        return Candidate(None, None, labels, labels, [], None, Evidence("one rate for all pairs", nll, 0.0, 0.0))

    def partition(self, view: View, start: Start) -> Candidate:
        """A start as it is, by features."""
        made = view.way.make(start, self.answers)
        self.step()
        in_folds = []
        for part in self.parts:
            in_folds.append(self._like(made.labels, view.way.make(start, part).labels))
            self.step()
        left_out = np.stack(in_folds)[self.fold_of_item, np.arange(len(made.labels))]
        ends = left_out[self.answers.i], left_out[self.answers.j]
        name = f"{view.name}, {start}"
        evidence = self.evidence(name, Ends.of_labels(*ends, self.config.n_clusters), made.labels)
        return Candidate(view, start, made.labels, made.labels, in_folds, ends, evidence)

    def unjudged(self, view: View, start: Start) -> Candidate:
        """A start as it is, where answers are too few to judge it by."""
        labels = view.way.make(start, self.answers).labels
        nothing = Evidence(f"{view.name}, {start}", np.zeros(0), 0.0, 0.0)
        return Candidate(view, start, labels, labels, [], None, nothing)

    def random(self, view: View) -> Candidate:
        """No partition: nets begin at random."""
        labels = np.zeros(len(self.sample.rows), np.int64)
        return Candidate(
            view, None, labels, labels, [], None, Evidence(f"{view.name}, random start", np.zeros(0), 0.0, 0.0)
        )

    def _independent(self, labels: Ints) -> bool:
        """Whether answers contradict each other about as often as independent ones would, if items had these labels (n,).

        Where annotators are not known, nothing else tells whether an item's own answers may be judged by further ones.
        An annotator who has one label of every item in mind never contradicts it, and predicts by the same mistakes.
        """
        ends = labels[self.answers.i], labels[self.answers.j]
        expected = fit_answers(Ends.of_labels(*ends, self.config.n_clusters), self.answers).agreement[ends]
        observed, independent = contradictions(expected, self.answers)
        return observed >= numbers.CONTRADICTED * independent > 0

    def with_own_answers(self, found: Candidate, *, needed: bool = False) -> Candidate | None:
        """The same, where an item's own answers speak too. None where the start has nothing to
        add, or nobody could judge it: annotators who are left out judge, or answers that contradict each other. needed:
        features alone say nothing, so that own answers are all there is."""
        view, start = found.view, found.start
        whole = None if start is None else view.way.make(start, self.answers).by_answers
        if start is None or whole is None:
            return None
        labels = whole.argmax(axis=1)
        if not needed and self.answers.n_annotators < FEWEST_ANNOTATORS and not self._independent(labels):
            return None
        left, right = np.empty((len(self.answers), whole.shape[1])), np.empty((len(self.answers), whole.shape[1]))
        fold_of = fold_numbers(self.answers, self.n_folds, self.config.seed)
        for fold in range(self.n_folds):
            rows = fold_of == fold
            part = view.way.make(start, self.answers.subset(~rows)).by_answers
            if part is None:
                return None
            part = part[:, align(whole, part)]
            left[rows], right[rows] = part[self.answers.i[rows]], part[self.answers.j[rows]]
            self.step()
        name = f"{found.evidence.name}, items by their own answers too"
        evidence = self.evidence(name, Ends.of_memberships(left, right), labels)
        ends = left.argmax(axis=1), right.argmax(axis=1)
        return replace(found, labels=labels, ends=ends, evidence=evidence, own_answers=True)

    def net(self, view: View, begin: Candidate, spec: Specification) -> Candidate:
        """A net that begins at a partition (or, with a candidate that has no start, at random), trained under ``spec``."""
        K = self.config.n_clusters
        seeds = [self.config.seed] * len(self.parts)
        labels = [None if begin.start is None else torch.as_tensor(one).to(view.x.device) for one in begin.in_folds]
        labels = labels or [None] * len(self.parts)
        nets = first_nets(self.config, view.sampled, labels, seeds, self.own)
        jobs = []
        for fold, (part, made, net) in enumerate(zip(self.parts, labels, nets, strict=True)):
            test = self.answers.subset(self.touched(fold))
            trainer = Trainer(
                self.config, tensors(part, view.sampled), tensors(test, view.sampled), self.n_annotators, self.own,
                self.progress, self.checkpoints,
            )  # fmt: skip
            title = f"fold {fold + 1}"
            at = None
            if begin.start is not None:
                at = confusion_start(spec.confusion, begin.in_folds[fold], part, K, view.x.device)
            jobs.append(Job(trainer, spec, net, made, self.config.seed, title, agreement=at))
        trials = train_all(jobs, self.step)
        F = [memberships(trial.model, view.sampled).double().cpu().numpy() for trial in trials]
        F = [one[:, align(F[0], one)] for one in F]
        left_out = np.stack(F)[self.fold_of_item, np.arange(len(self.sample.rows))]
        mean = np.mean(F, axis=0)
        ends = Ends.of_memberships(left_out[self.answers.i], left_out[self.answers.j])
        evidence = self.evidence(f"net from {begin.evidence.name}, {spec}", ends, mean.argmax(axis=1))
        return replace(
            begin, scaled=view, labels=mean.argmax(axis=1), evidence=evidence, spec=spec, epochs=_best_epoch(trials)
        )

    def _like(self, labels: Ints, other: Ints) -> Ints:
        """Labels with the cluster numbers of others."""
        K = self.config.n_clusters
        return np.asarray(np.argsort(align(np.eye(K)[labels], np.eye(K)[other]))[other], dtype=np.int64)


def _best_epoch(trials: list[Trial]) -> int:
    """How many epochs are best for all folds together."""
    curves = [[t.result.start_held_out, *(epoch["held_out"] for epoch in t.result.history)] for t in trials]
    length = min(len(curve) for curve in curves)
    weights = [0 if t.nll is None else len(t.nll) for t in trials]
    return int(np.nanargmin(np.average([curve[:length] for curve in curves], axis=0, weights=weights)))
