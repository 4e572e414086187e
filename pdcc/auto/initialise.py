"""Where training sets out from: a partition of the items, chosen by the answers it predicts.

K-means knows nothing of the answers. The answers, in turn, point out the directions in which clusters differ:
for whitened features z, the average of (y - mean y) z_i z_j' has the span of the class means as its leading
eigenvectors, whatever the noise (noise only shrinks the eigenvalues). K-means in a blend of the plain and the
discriminant coordinates starts close to a good optimum. Which of them is used is decided by held-out answers
(of held-out annotators where their ids are known); no label is ever seen.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.special import betaln
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from pdcc.arrays import Float32, Float64, Ints
from pdcc.auto.calibration import (
    BLEND,
    BURDEN,
    COMPONENTS,
    EQUAL_SCALES,
    FOLDS,
    NEGLIGIBLE,
    RELEVANT,
    SHRINK,
    STABLE,
    TRIAL_ITEMS,
)
from pdcc.auto.rules import standard_error
from pdcc.auto.signals import transitive
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler
from pdcc.data.splits import folds as folds_of
from pdcc.partition.kmeans import enough_tries, kmeans


@dataclass(frozen=True)
class Start:
    """A partition and how it was made. ``table``: every setting compared and its held-out nats per answer.

    ``stable``: plain K-means labels (N,) under the same scaling, where resampling does not shake them, the answers are
    largely about them, and may all be wrong together (no annotator contradicts themselves or others, or too few could); else None.
    ``as_annotator``: the partition is to stand beside the answers as one more annotator. It was made without them and
    is stable, and they are transitive, so that M answers weigh less than M independent ones.
    """

    labels: Ints
    scaler: Scaler
    name: str
    reason: str
    as_annotator: bool
    stable: Ints | None
    table: tuple[tuple[str, float], ...]


def answer_counts(labels: Ints, n_labels: int, pairs: PairData) -> Float64:
    """How often two labels were called similar, and different: (2, L, L), symmetric, pairs within a label once."""
    counts = np.zeros((2, n_labels, n_labels))
    np.add.at(counts, (1 - pairs.similar.astype(np.int64), labels[pairs.i], labels[pairs.j]), 1.0)
    both = counts + counts.transpose(0, 2, 1)
    k = np.arange(n_labels)
    both[:, k, k] /= 2
    return both


def answer_nll(labels: Ints, train: PairData, test: PairData) -> Float64:
    """Negative log-likelihood of each test answer (M,) under the agreement matrix B of a partition, learned on train.

    B[k, l] is shrunk, by ``SHRINK`` answers, to one rate within clusters and one across them.
    """
    similar, different = answer_counts(labels, int(labels.max()) + 1, train)
    within = np.eye(len(similar), dtype=bool)
    upper = np.triu(np.ones_like(within))
    pooled = np.empty_like(similar)
    for block in (within, ~within):
        s, d = similar[block & upper].sum(), different[block & upper].sum()
        pooled[block] = (s + 0.5) / (s + d + 1.0)
    agreement = (similar + SHRINK * pooled) / (similar + different + SHRINK)
    p = agreement[labels[test.i], labels[test.j]]
    return np.asarray(-np.where(test.similar, np.log(p), np.log1p(-p)))


def evidence(labels: Ints, n_labels: int, pairs: PairData) -> float:
    """Log marginal likelihood of the answers if the partition is right: a uniform prior on every B[k, l]."""
    similar, different = answer_counts(labels, n_labels, pairs)
    return float(np.triu(betaln(similar + 1.0, different + 1.0)).sum())


class Partitioner:
    """Ways to partition the items under one scaling of their features, and their held-out scores."""

    def __init__(self, features: Float32, kind: str | None, n_clusters: int, seed: int):
        self.scaler = Scaler.fit(features, kind)
        self.X, self.K, self.seed = self.scaler(features).reshape(len(features), -1), n_clusters, seed
        with threadpool_limits(limits=1), np.errstate(invalid="ignore"):  # shares of the variance of constant features
            most = min(COMPONENTS * n_clusters, *self.X.shape)
            found = PCA(most, random_state=seed).fit_transform(self.X.astype(np.float64))
        # Whitening would blow components that are only rounding up to the size of the others.
        deviation = found.std(axis=0)
        self.components = found[:, deviation >= NEGLIGIBLE * deviation.max()]
        items = np.arange(len(features))
        rng = np.random.default_rng(seed)
        self.trial = None if len(items) <= TRIAL_ITEMS else np.sort(rng.choice(items, TRIAL_ITEMS, replace=False))

    def plain(self, *, tries: int, rows: Ints | None = None, seed: int | None = None) -> Ints:
        """K-means of the scaled features, (N,)."""
        tries = enough_tries(len(self.X), tries)
        return kmeans(self.X, self.K, tries=tries, seed=self.seed if seed is None else seed, rows=rows)

    @cached_property
    def unmoved(self) -> Ints:
        """Plain K-means of all items, (N,), at its best."""
        return self.plain(tries=10)

    def embed(self, pairs: PairData) -> Float64:
        """Half principal components, half the K - 1 directions in them along which answers differ most."""
        plain = self.components
        deviation = plain.std(axis=0)
        white = plain / np.where(deviation > 0, deviation, 1.0)
        excess = pairs.similar - pairs.similar.mean()
        moment = (white[pairs.i] * excess[:, None]).T @ white[pairs.j] / len(pairs)
        values, vectors = np.linalg.eigh((moment + moment.T) / 2)
        lead = np.argsort(-values)[: self.K - 1]
        discriminant = white @ vectors[:, lead] * np.sqrt(np.clip(values[lead], 0.0, None))
        return np.hstack([np.sqrt(1 - BLEND) * _unit_power(plain), np.sqrt(BLEND) * _unit_power(discriminant)])

    def guided(self, pairs: PairData, *, tries: int, rows: Ints | None = None) -> Ints:
        """Of ``tries`` K-means runs in the embedding, the labels (N,) whose evidence in ``pairs`` is largest."""
        space = self.embed(pairs)
        found = [kmeans(space, self.K, tries=1, seed=self.seed + t, rows=rows) for t in range(tries)]
        return max(found, key=lambda labels: evidence(labels, self.K, pairs))

    def score_plain(self, folds: list[tuple[PairData, PairData]]) -> Float64:
        """Held-out nats of every answer, fold by fold, under plain K-means."""
        labels = self.plain(tries=3, rows=self.trial)
        return np.concatenate([answer_nll(labels, train, test) for train, test in folds])

    def score_guided(self, folds: list[tuple[PairData, PairData]]) -> Float64:
        """The same under guided K-means, its embedding made from the other folds' answers."""
        scores = [answer_nll(self.guided(train, tries=4, rows=self.trial), train, test) for train, test in folds]
        return np.concatenate(scores)

    def stability(self, draws: int = 5) -> float:
        """Mean adjusted Rand index between plain K-means runs on random halves of the items."""
        rng = np.random.default_rng(self.seed)
        n = min(max(len(self.X) // 2, self.K), TRIAL_ITEMS)
        halves = [np.sort(rng.choice(len(self.X), n, replace=False)) for _ in range(draws)]
        runs = [self.plain(tries=3, rows=rows, seed=self.seed + k) for k, rows in enumerate(halves)]
        return float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(runs, 2)]))


def _unit_power(Z: Float64) -> Float64:
    return np.asarray(Z / max(np.sqrt((Z**2).sum(axis=1).mean()), np.finfo(np.float64).tiny))


def _scale_name(kind: str | None) -> str:
    return "raw features" if kind is None else f"{kind} scale"


def make_start(
    features: Float32, n_clusters: int, pairs: PairData, *, scales: tuple[str | None, ...], init: str, seed: int
) -> Start:
    """Choose a scaling and the partition training sets out from, for features (N, d).

    Scalings are compared by how well the partitions made under them predict held-out answers. ``init="kmeans"``: plain
    K-means, which never sees an answer. ``init="pairs"``: plain, or K-means guided by the answers' directions.
    """
    folds = folds_of(pairs, FOLDS, seed)
    groups = None if pairs.annotator is None else np.concatenate([test.annotator for _, test in folds])
    if features[0].size < COMPONENTS * n_clusters:
        # Unit rows lose one dimension of d: nothing among hundreds, much among few. Then they come last among equals.
        scales = tuple(sorted(scales, key=lambda kind: kind == "unit"))
    ways = [Partitioner(features, kind, n_clusters, seed) for kind in scales]
    plain = [way.score_plain(folds) for way in ways]
    guided = [way.score_guided(folds) for way in ways] if init == "pairs" else plain
    best = _first_among_equals(
        [min(pair, key=np.mean) for pair in zip(plain, guided, strict=True)], groups, EQUAL_SCALES
    )
    way, names = ways[best], [_scale_name(way.scaler.kind) for way in ways]
    kinds = [("plain K-means", plain), ("guided K-means", guided)][: 2 if init == "pairs" else 1]
    table = tuple(
        (f"{name}, {kind}", float(s.mean())) for kind, scores in kinds for name, s in zip(names, scores, strict=True)
    )

    stability, consistent = way.stability(), transitive(pairs)
    nothing = np.zeros(len(features), np.int64)
    rate = np.concatenate([answer_nll(nothing, train, test) for train, test in folds]).mean()
    led = guided[best] if init == "pairs" else way.score_guided(folds)
    explained, most = (float(rate - score.mean()) for score in (plain[best], led))
    trusted = stability >= STABLE and explained > 0 and explained >= RELEVANT * most and consistent is not False
    use, reason = False, "Asked for plain K-means."
    if init == "pairs":
        gain = plain[best] - led
        use, reason = _decide(float(gain.mean()), standard_error(gain, groups), stability)
    as_annotator = trusted and not use and consistent is True
    if as_annotator:
        reason += " The answers never contradict each other, as if read off labels: the partition stays as one more annotator."
    labels = way.guided(pairs, tries=10) if use else way.unmoved
    name = f"{names[best]}, {'guided' if use else 'plain'} K-means"
    together = trusted and transitive(pairs, pooled=True) is not False
    return Start(labels, way.scaler, name, reason, as_annotator, way.unmoved if together else None, table)


def _first_among_equals(scores: list[Float64], groups: Ints | None, errors: float) -> int:
    """The first of several held-out scores (M,) that is within so many standard errors of the best."""
    best = min(scores, key=np.mean)
    return next(k for k, s in enumerate(scores) if (s - best).mean() <= errors * standard_error(s - best, groups))


def _decide(gain: float, error: float, stability: float) -> tuple[bool, str]:
    """(let the answers guide the start, why): a stable K-means wins ties."""
    measured = f"guided K-means gains {gain:.4f} +- {error:.4f} nats per held-out answer over plain"
    if gain > BURDEN * error:
        return True, f"Let the answers guide K-means: {measured}."
    if stability >= STABLE:
        return (
            False,
            f"Kept plain K-means: {measured}, too little to leave a stable partition (agreement of reruns {stability:.2f}).",
        )
    unstable = f"plain K-means is unstable (agreement of reruns {stability:.2f} < {STABLE:g})"
    if gain > 0:
        return True, f"Let the answers guide K-means: {measured}, and {unstable}."
    return False, f"Kept plain K-means: {measured}; but {unstable}."
