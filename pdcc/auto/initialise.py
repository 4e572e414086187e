"""Where training sets out from: a partition of the items, chosen by the answers about new items that it predicts.

K-means knows nothing of the answers. The answers, in turn, point out the directions in which clusters differ:
for whitened features z, the average of (y - mean y) z_i z_j' has the span of the class means as its leading
eigenvectors, whatever the noise (noise only shrinks the eigenvalues). Compared are plain K-means;
K-means in a blend of the plain and the discriminant coordinates ("guided"); and, in the same coordinates, K-means into several
times as many parts, which the answers between them group into clusters ("grouped"). From each of them, a mixture of Gaussians
whose clusters also explain the answers sets out, with one shape for all clusters or one for each. Where answers say so, clusters of the best one
are then cut and joined (``moves``). No label is ever seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from pdcc.arrays import Float64, Floats, Ints
from pdcc.auto.calibration import BLEND, CLEARLY, COMPONENTS, FOLDS, LEADING, PARTS, TRIAL_ITEMS
from pdcc.auto.large import Scaled, as_rows, blocks, components, constrained, cross_moment, enough, some_answers, take
from pdcc.auto.mixture import mixture
from pdcc.auto.moves import rearranged
from pdcc.auto.rules import Rows, choose, within_reach
from pdcc.auto.signals import answer_counts, constant_nll, cross_validated, evidence, standard_error
from pdcc.baselines.kmeans import centroids, enough_tries, kmeans
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData
from pdcc.data.sampling import drawn_answers, renumbered
from pdcc.data.scaling import SCALES, Scaler, fits_float32
from pdcc.data.splits import folds as folds_of
from pdcc.exclusive import one_core
from pdcc.inference.rows import RowSource, scaled_items
from pdcc.rows import FeatureRows

PARTITIONS, SHAPES, REARRANGED = ("plain", "guided", "grouped"), ("one shape", "own shapes"), "rearranged"
STARTS = tuple(kind for base in PARTITIONS for kind in (base, *(f"{base}, {shape}" for shape in SHAPES)))
# Components with less than this share of the largest deviation are rounding.
NEGLIGIBLE = 1e-6
# Sweeps of single moves between two updates of the rates, and groupings tried.
SWEEPS, GROUPINGS = 50, 20
# What constrained K-means pays for an answer it breaks, as PCKMeans does.
PRICE = 0.5
# Runs of guided K-means, of which the one that makes answers likeliest is kept.
GUIDED = 20
# Where items are many, of so many answers.
GUIDING_ANSWERS = 20_000


class Partitioner:
    """Ways to partition the items by their scaled features (N, d), which may be read as they are needed.

    Many items are labelled by what a sample of them says (``pdcc.auto.large``), and of many answers some are used.
    """

    def __init__(self, scaled: Scaled, n_clusters: int, seed: int):
        self.X: Scaled = scaled if isinstance(scaled, RowSource) else scaled.reshape(len(scaled), -1)
        self.K, self.seed = n_clusters, seed
        items = np.arange(len(scaled))
        rng = np.random.default_rng(seed)
        self.trial = None if len(items) <= TRIAL_ITEMS else np.sort(rng.choice(items, TRIAL_ITEMS, replace=False))
        self._found: dict[bytes, Ints] = {}

    @cached_property
    def components(self) -> Floats:
        """Principal components (N, p) of the features."""
        width = math.prod(self.X.shape[1:])
        found = components(self.X, min(COMPONENTS * self.K, len(self.X), width), self.seed)
        # Whitening would blow components that are only rounding up to the size of the others.
        deviation = found.std(axis=0, dtype=np.float64)
        return np.asarray(found[:, deviation >= NEGLIGIBLE * deviation.max()])

    @cached_property
    def unmoved(self) -> Ints:
        """Plain K-means of all items, (N,)."""
        tries = enough_tries(len(self.X), 10)
        if not isinstance(self.X, RowSource):
            return kmeans(self.X, self.K, tries=tries, seed=self.seed, rows=self.trial)
        some = take(self.X, np.arange(len(self.X)) if self.trial is None else self.trial)
        return kmeans(some, self.K, tries=tries, seed=self.seed, blocks=blocks(self.X))

    def embed(self, pairs: PairData) -> Floats:
        """Half principal components, half the K - 1 directions in them along which answers differ most."""
        plain = self.components
        deviation = plain.std(axis=0, dtype=np.float64)
        white = plain / np.where(deviation > 0, deviation, 1.0).astype(plain.dtype)
        y, weight = degree(pairs), counts(pairs)
        excess = weight * (y - np.average(y, weights=weight))
        moment = cross_moment(white, pairs, excess) / weight.sum()
        values, vectors = np.linalg.eigh((moment + moment.T) / 2)
        lead = np.argsort(-values)[: self.K - 1]
        axes = vectors[:, lead].astype(plain.dtype)
        discriminant = white @ axes * np.sqrt(np.clip(values[lead], 0.0, None)).astype(plain.dtype)
        shares = plain.dtype.type(np.sqrt(1 - BLEND)), plain.dtype.type(np.sqrt(BLEND))
        return np.hstack([shares[0] * _unit_power(plain), shares[1] * _unit_power(discriminant)])

    def about(self, pairs: PairData) -> "tuple[Partitioner, PairData]":
        """Where items are many, only those that these answers are about, and the answers, numbered so: what compares ways need not label all items."""
        if len(self.X) <= enough(self.X):
            return self, pairs
        rows = np.unique(np.concatenate([pairs.i, pairs.j]))
        Z = self.components[rows]
        part = Partitioner(Z.astype(np.float32, copy=False), self.K, self.seed)
        part.components, part.unmoved = Z, self.unmoved[rows]
        return part, replace(renumbered(pairs, rows)[0], features=Z)

    def make(self, kind: str, pairs: PairData) -> Ints:
        """Labels (N,) of one of ``STARTS``, or of one with its clusters ``REARRANGED``, or "constrained": K-means that pays for every answer
        it breaks, soft ones read as plain and all alike."""
        base, shape, moves = _parts_of(kind)
        pairs = some_answers(pairs, self.seed)
        labels = self._mixed(self._partition(base, pairs), shape, pairs)
        return self.rearranged(labels, pairs) if moves else labels

    def rearranged(self, labels: Ints, pairs: PairData) -> Ints:
        """Labels (N,) with clusters cut and joined as answers say."""
        return rearranged(labels, self.components, self.embed(pairs), self.K, pairs, self.seed)

    def make_all(self, pairs: PairData) -> dict[str, Ints]:
        """The labels (N,) of all of ``STARTS``."""
        made = {base: self._partition(base, pairs) for base in PARTITIONS}
        return {f"{b}, {s}" if s else b: self._mixed(made[b], s, pairs) for b in PARTITIONS for s in ("", *SHAPES)}

    def _partition(self, base: str, pairs: PairData) -> Ints:
        if base == "plain":
            return self.unmoved
        with one_core():
            if base == "constrained":
                return constrained(self.X, self.K, pairs, weight=PRICE, seed=self.seed)
            space = self.embed(pairs)
            if base == "grouped":
                return regrouped(*self._parts(space), self.K, pairs, self.seed)
            return self._guided(space, pairs)

    def _guided(self, space: Floats, pairs: PairData) -> Ints:
        """K-means labels (N,) in ``space`` (N, q): of several runs, the one that makes answers likeliest."""
        # Scalings are compared by what starts then begin with, on the same folds: found once.
        known = b"".join(part.tobytes() for part in (pairs.i, pairs.j, degree(pairs), counts(pairs)))
        if known not in self._found:
            self._found[known] = self._likeliest(space, pairs)
        return self._found[known]

    def _likeliest(self, space: Floats, pairs: PairData) -> Ints:
        if self.trial is None or len(space) <= enough(self.X):
            runs = [kmeans(space, self.K, tries=1, seed=self.seed + t, rows=self.trial) for t in range(GUIDED)]
            return max(runs, key=lambda labels: evidence(labels, pairs))
        few = drawn_answers(pairs, GUIDING_ANSWERS, self.seed)
        rows = np.unique(np.concatenate([few.i, few.j]))
        told = renumbered(few, rows)[0]

        def likely(t: int) -> float:
            some = kmeans(space[self.trial], self.K, tries=1, seed=self.seed + t, blocks=[space[rows]])
            return evidence(some, told)

        best = max(range(GUIDED), key=likely)
        return kmeans(space, self.K, tries=1, seed=self.seed + best, rows=self.trial)

    def _mixed(self, labels: Ints, shape: str, pairs: PairData) -> Ints:
        if not shape:
            return labels
        rng = np.random.default_rng(self.seed)
        return mixture(self.components, labels, self.K, pairs, own_shapes=shape == SHAPES[1], rng=rng)

    def parts(self, pairs: PairData) -> tuple[Ints, Float64]:
        """Several parts for each cluster, (N,), and their places (P, p) in the coordinates that answers point out."""
        return self._parts(self.embed(pairs))

    def _parts(self, space: Floats) -> tuple[Ints, Float64]:
        n_parts = max(self.K, min(PARTS * self.K, len(space) // PARTS))
        parts = kmeans(space, n_parts, tries=1, seed=self.seed, rows=self.trial)
        return parts, centroids(space.astype(np.float64, copy=False), parts, n_parts)


def regrouped(parts: Ints, places: Float64, n_groups: int, pairs: PairData, seed: int) -> Ints:
    """Labels (N,) of items in ``parts`` (N,), which lie at ``places`` (P, p) and which answers group into ``n_groups``."""
    starts = [kmeans(places, n_groups, tries=1, seed=seed + t) for t in range(GROUPINGS)]
    counts = answer_counts(parts, len(places), pairs)
    return grouped(counts, starts, n_groups, np.random.default_rng(seed))[parts]


def grouped(counts: Float64, starts: list[Ints], n_groups: int, rng: np.random.Generator) -> Ints:
    """Groups (P,) of the parts whose answers ``counts`` (2, P, P) they explain best by two rates, within groups and across.

    From each of ``starts`` (P,), parts move one by one, in random order, while that makes the answers likelier.
    """
    best, best_score = starts[0], -np.inf
    others = ~np.eye(counts.shape[1], dtype=bool)
    for start in starts:
        groups = start.copy()
        for _ in range(SWEEPS):
            _, within, across = _two_rates(counts, groups)
            if within <= across:  # answers say nothing, or less: do not turn "different" into a reason to join
                break
            worth = counts[0] * np.log(within / across) + counts[1] * np.log((1 - within) / (1 - across))
            worth = worth * others
            moved = False
            for part in rng.permutation(len(groups)):
                gain = np.bincount(groups, weights=worth[part], minlength=n_groups)
                alone = (groups == groups[part]).sum() == 1  # the last part of a group keeps it from being empty
                if not alone and gain.max() > gain[groups[part]] + 1e-9:
                    groups[part] = int(gain.argmax())
                    moved = True
            if not moved:
                break
        score = _two_rates(counts, groups)[0]
        if score > best_score:
            best, best_score = groups, score
    return best


def _two_rates(counts: Float64, groups: Ints) -> tuple[float, float, float]:
    """Log-likelihood of the answers under two rates, and the rates: within groups, and across them."""
    same = groups[:, None] == groups[None]
    upper = np.triu(np.ones_like(same))
    total, rates = 0.0, []
    for block in (same & upper, ~same & upper):
        s, d = counts[0][block].sum(), counts[1][block].sum()
        rate = (s + 0.5) / (s + d + 1.0)
        total += float(s * np.log(rate) + d * np.log1p(-rate))
        rates.append(float(rate))
    return total, rates[0], rates[1]


def _unit_power(Z: Floats) -> Floats:
    power = max(float(np.sqrt((Z**2).sum(axis=1).mean())), np.finfo(np.float64).tiny)
    return np.asarray(Z / Z.dtype.type(power))


@dataclass(frozen=True)
class Start:
    """A way to start and its labels (N,). plain: those of plain K-means. nll (M,): nats of every answer, cross-validated, or None.

    told: it predicts answers clearly better than one rate for all pairs does. table: what was compared. before: the start whose clusters
    were rearranged, where folds cannot tell the two apart.
    """

    kind: str
    labels: Ints
    plain: Ints
    nll: Float64 | None
    told: bool
    table: Rows
    before: "Start | None" = None

    @property
    def name(self) -> str:
        """For people."""
        return name_of(self.kind)

    def unguided(self) -> "Start":
        """Plain K-means in its place."""
        return replace(self, kind="plain", labels=self.plain)


def scale_name(kind: str | None) -> str:
    """One of ``SCALES``, for people."""
    return "features as they are" if kind is None else f"{kind} scale"


def name_of(kind: str) -> str:
    """One of ``STARTS``, rearranged or not, for people."""
    base, shape, moves = _parts_of(kind)
    name = f"mixture ({shape}) from {base} K-means" if shape else f"{base} K-means"
    return f"{name}, {REARRANGED}" if moves else name


def _parts_of(kind: str) -> tuple[str, str, bool]:
    """Its partition, its shape or "", and whether clusters are rearranged."""
    base, *more = kind.split(", ")
    return base, next((part for part in more if part in SHAPES), ""), REARRANGED in more


def make_start(way: Partitioner, init: str, shown: PairData) -> Start:
    """Plain K-means for ``init="kmeans"``; for "pairs" the partition that predicts answers best.

    Cross-validated over answers: a partition into few parts remembers nothing of single items. Of the ways that folds cannot
    tell apart, the one is taken that, made from all answers, makes them likeliest: any way may be unlucky once.
    """
    shown = some_answers(shown, way.seed)
    folds = folds_of(shown, FOLDS, way.seed)
    if init == "kmeans" or not folds:
        return Start("plain", way.unmoved, way.unmoved, None, True, ())
    part, told_of = way.about(shown)
    folds = folds if part is way else folds_of(told_of, FOLDS, way.seed)
    made = [part.make_all(train) for train, _ in folds]
    nll = [cross_validated([labels[kind] for labels in made], folds) for kind in STARTS]
    final = part.make_all(told_of)
    # Rounded: two ways to one partition differ in nothing but rounding, and the first of them is to be taken.
    choice = choose([name_of(kind) for kind in STARTS], nll, [round(evidence(final[k], told_of), 6) for k in STARTS])
    kind = STARTS[choice.index]
    constant = np.concatenate([constant_nll(*fold) for fold in folds])
    told = not within_reach([nll[choice.index], constant], CLEARLY)[1]
    labels = final[kind] if part is way else way.make(kind, shown)
    start = Start(kind, labels, way.unmoved, nll[choice.index], told, choice.table)
    # Every move labels all items again: not where they are many.
    return _rearranged(way, start, shown, folds, [labels[kind] for labels in made]) if part is way else start


def _rearranged(
    way: Partitioner, start: Start, shown: PairData, folds: list[tuple[PairData, PairData]], made: list[Ints]
) -> Start:
    """The start with clusters cut and joined as all answers say, unless that, done in each fold, predicts the answers left out worse, by a standard error.

    Where it does not predict them better by as much either, nets are to tell whether to set out from it.
    made: for each fold, the labels (N,) that the start makes of its answers.
    """
    labels = way.rearranged(start.labels, shown)
    if start.nll is None or (labels == start.labels).all():
        return start
    nll = cross_validated([way.rearranged(old, fold[0]) for old, fold in zip(made, folds, strict=True)], folds)
    gain, kind = start.nll - nll, f"{start.kind}, {REARRANGED}"
    error = standard_error(gain, None)
    behind = float(nll.mean()) - min(row["nll"] for row in start.table)
    row = {"setting": name_of(kind), "nll": float(nll.mean()), "behind_best": behind, "standard_error": error}
    start = replace(start, table=(*start.table, row))
    if gain.mean() < -error:
        return start
    return replace(start, kind=kind, labels=labels, nll=nll, before=start if gain.mean() <= error else None)


def make_ways(
    features: Floats | FeatureRows,
    shown: PairData,
    n_clusters: int,
    kinds: Sequence[str | None],
    seed: int,
    *,
    project: bool = True,
) -> tuple[list[tuple[Scaler, Partitioner]], Rows]:
    """The scalings of ``kinds``, but for those under which guided K-means predicts answers clearly worse than under another.

    And the table of what was compared. project: keep the ``LEADING`` components of unit rows only.
    """
    scalers = [Scaler.fit(features, kind, LEADING if project else None) for kind in kinds]
    scaled = [as_rows(scaled_items(features, scaler, torch.device("cpu"))) for scaler in scalers]
    ways = [(s, Partitioner(x, n_clusters, seed)) for s, x in zip(scalers, scaled, strict=True)]
    shown = some_answers(shown, seed)
    if len(ways) == 1 or not folds_of(shown, FOLDS, seed):
        return ways[:1], ()
    nll = []
    for _, way in ways:
        part, told = way.about(shown)
        folds = folds_of(told, FOLDS, seed)
        nll.append(cross_validated([part.make("guided", train) for train, _ in folds], folds))
    table = choose([f"{scale_name(kind)}, first look" for kind in kinds], nll).table
    return [way for way, near in zip(ways, within_reach(nll, CLEARLY), strict=True) if near], table


def scaled_start(
    features: Floats | FeatureRows, shown: PairData, n_clusters: int, *, scale: str | None, init: str, seed: int
) -> tuple[Scaler, Start]:
    """The scaling and the start of VolMaxDCC for methods that are not trained to compare scalings: partitions compare them."""
    shown = some_answers(shown, seed)
    folds = folds_of(shown, FOLDS, seed)
    found = []
    kinds: tuple[str | None, ...] = (scale,)
    if scale == "auto":  # features as they are only where float32 can hold them
        kinds = SCALES if fits_float32(features).all() else SCALES[:2]
    for scaler, way in make_ways(features, shown, n_clusters, kinds, seed)[0]:
        start = make_start(way, init, shown)
        nll = cross_validated([start.labels] * len(folds), folds) if start.nll is None and folds else start.nll
        found.append((0.0 if nll is None else float(nll.mean()), scaler, start))
    return min(found, key=lambda one: one[0])[1:]
