"""Where training sets out from: a partition of the items, chosen by the answers it predicts.

K-means knows nothing of the answers. The answers, in turn, point out the directions in which clusters differ:
for whitened features z, the average of (y - mean y) z_i z_j' has the class means' span as its leading
eigenvectors, whatever the noise (noise only shrinks the eigenvalues). K-means in a blend of the plain
and the discriminant coordinates starts close to a good optimum. How many principal components and how much
blend are chosen by held-out answers (held-out annotators where their ids are known).
"""

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from pdcc.pairs import Floats, Ints, PairData
from pdcc.scaling import Scaler

logger = logging.getLogger(__name__)

# K-means is tried on at most this many items (drawn at random) while settings are compared.
TRIAL_ITEMS = 4000
FOLDS = 5
BLENDS = (1.0, 0.5, 0.25)
# (principal components, blend) of a discriminant embedding; None: plain K-means.
Setting = tuple[int, float] | None
# A split and merge must gain this many nats: less may be chance, since the best of K^3 / 2 moves is taken.
LEAST_GAIN = 5.0
SHRINK = 10.0


@dataclass(frozen=True)
class Start:
    """A partition and how it was made. ``table`` lists every setting compared: name and held-out score."""

    labels: Ints
    scaler: Scaler
    name: str
    table: tuple[tuple[str, float], ...]


def answer_counts(labels: Ints, n_labels: int, pairs: PairData) -> NDArray[np.float64]:
    """How often two labels were called similar, and different: (2, L, L), symmetric, pairs within a label once."""
    counts = np.zeros((2, n_labels, n_labels))
    np.add.at(counts, (1 - pairs.similar.astype(np.int64), labels[pairs.i], labels[pairs.j]), 1.0)
    both = counts + counts.transpose(0, 2, 1)
    k = np.arange(n_labels)
    both[:, k, k] /= 2
    return both


def answer_nll(labels: Ints, train: PairData, test: PairData) -> NDArray[np.float64]:
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
    return -np.where(test.similar, np.log(p), np.log1p(-p))


@contextmanager
def _steady() -> Iterator[None]:
    """One thread: parallel K-means adds partial sums in a random order, and a seed must fix everything."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct items than clusters: some stay empty
        yield


def plain_kmeans(Z: NDArray[np.floating], n_clusters: int, *, tries: int, seed: int, trial: Ints | None = None) -> Ints:
    """K-means labels (N,) of Z (N, p), the best of ``tries`` by inertia; no answers seen.

    ``trial`` (n,) restricts the fitting to those rows; the rest go to their nearest centre.
    """
    with _steady():
        found = KMeans(n_clusters, n_init=tries, random_state=seed).fit(Z if trial is None else Z[trial])
        return found.predict(Z).astype(np.int64)


def kmeans_by_answers(Z: NDArray[np.floating], n_clusters: int, pairs: PairData, *, tries: int, seed: int, trial: Ints | None = None) -> Ints:
    """Of ``tries`` K-means runs, each mended by ``split_and_merge``, the labels (N,) that predict ``pairs`` best."""
    found = []
    for attempt in range(tries):
        labels = plain_kmeans(Z, n_clusters, tries=1, seed=seed + attempt, trial=trial)
        found.append(split_and_merge(Z, labels, n_clusters, pairs, trial))
    return max(found, key=lambda labels: _evidence(answer_counts(labels, n_clusters, pairs)).sum())


def split_and_merge(Z: NDArray[np.floating], labels: Ints, n_clusters: int, pairs: PairData, trial: Ints | None = None, rounds: int = 10) -> Ints:
    """Leave K-means' local optima: merge two clusters and halve a third wherever the answers like that better.

    K-means often covers one class twice and two classes once. Every cluster is halved across its longest axis;
    merges and halvings are scored by the answers' marginal likelihood (a stochastic block model with a uniform
    prior on every B[k, l]), so merging two clusters that answers tell apart costs, and halving one that
    they do not gains nothing, however confused the annotators are.
    """
    K = n_clusters
    evidence = _evidence(answer_counts(labels, K, pairs)).sum()
    for _ in range(rounds):
        halves = 2 * labels
        for k in range(K):
            mine = np.flatnonzero(labels == k)
            if len(mine) > 1:
                centred = Z[mine] - Z[mine].mean(axis=0)
                halves[mine] += centred @ np.linalg.eigh(centred.T @ centred)[1][:, -1] > 0
        merging = _merge_gains(answer_counts(labels, K, pairs))
        halving = -_merge_gains(answer_counts(halves, 2 * K, pairs))[np.arange(0, 2 * K, 2), np.arange(1, 2 * K, 2)]
        a, b, c = np.ogrid[:K, :K, :K]
        gain = np.where((a < b) & (b != c) & (a != c), merging[:, :, None] + halving[None, None, :], -np.inf)
        into, gone, halved = np.unravel_index(gain.argmax(), gain.shape)
        if gain[into, gone, halved] < LEAST_GAIN:
            return labels
        changed = labels.copy()
        changed[labels == gone] = into
        changed[halves == 2 * halved + 1] = gone
        # An emptied cluster stays where the whole's centre is.
        centres = np.stack([Z[changed == m].mean(axis=0) if (changed == m).any() else Z.mean(axis=0) for m in range(K)])
        with _steady():
            lloyd = KMeans(K, init=centres, n_init=1, max_iter=30).fit(Z if trial is None else Z[trial])
        scored = [(_evidence(answer_counts(new, K, pairs)).sum(), new) for new in (changed, lloyd.predict(Z).astype(np.int64))]
        best, new = max(scored, key=lambda pair: pair[0])
        if best < evidence + LEAST_GAIN:  # merge and halving were scored apart: together they may not pay
            return labels
        evidence, labels = best, new
    return labels


def _evidence(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log marginal likelihood of the answers between each pair of labels (L, L), upper triangle, from (2, L, L) counts."""
    return np.triu(betaln(counts[0] + 1.0, counts[1] + 1.0))


def _merge_gains(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Change in log evidence (L, L) if labels a and b became one, from (2, L, L) counts."""
    L = counts.shape[1]
    within = counts[:, np.arange(L), np.arange(L)]

    def log_beta(c: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(betaln(c[0] + 1.0, c[1] + 1.0))

    # Against every third label l: rows a and b are pooled. Terms with l in {a, b} are taken out again.
    apart = log_beta(counts)
    pooled = log_beta(counts[:, :, None, :] + counts[:, None, :, :])
    change = pooled - apart[:, None, :] - apart[None, :, :]
    rows = change.sum(axis=2)
    a, b = np.ogrid[:L, :L]
    rows = rows - change[a, b, a] - change[a, b, b]
    joined = log_beta(within[:, :, None] + within[:, None, :] + counts)
    own = log_beta(within)
    return rows + joined - own[:, None] - own[None, :] - apart


class Discriminant:
    """Principal components of X and, per set of pairs, the directions in them along which answers differ."""

    def __init__(self, X: Floats, n_clusters: int, seed: int):
        self.n_clusters = n_clusters
        most = min(4 * n_clusters, *X.shape)
        with threadpool_limits(limits=1):
            self.components = PCA(most, random_state=seed).fit_transform(X.astype(np.float64))

    def embed(self, pairs: PairData, n_components: int, blend: float) -> NDArray[np.float64]:
        """Coordinates (N, .): ``1 - blend`` parts principal components, ``blend`` parts discriminant directions."""
        plain = self.components[:, :n_components]
        white = plain / np.maximum(plain.std(axis=0), np.finfo(np.float64).tiny)
        excess = pairs.similar - pairs.similar.mean()
        moment = (white[pairs.i] * excess[:, None]).T @ white[pairs.j] / len(pairs)
        values, vectors = np.linalg.eigh((moment + moment.T) / 2)
        lead = np.argsort(-values)[: self.n_clusters - 1]
        led = white @ vectors[:, lead] * np.sqrt(np.clip(values[lead], 0.0, None))
        return np.hstack([np.sqrt(1 - blend) * _unit_power(plain), np.sqrt(blend) * _unit_power(led)])


def _unit_power(Z: NDArray[np.float64]) -> NDArray[np.float64]:
    return Z / max(np.sqrt((Z**2).sum(axis=1).mean()), np.finfo(np.float64).tiny)


class _Comparison:
    """Held-out scores of ways to make a partition, on one scaling of the features."""

    def __init__(self, features: Floats, kind: str | None, n_clusters: int, pairs: PairData, seed: int):
        self.scaler = Scaler.fit(features, kind)
        self.X, self.K, self.pairs, self.seed = self.scaler(features), n_clusters, pairs, seed
        self.trial = _trial_items(len(features), seed)
        self.lens = Discriminant(self.X, n_clusters, seed)
        self.scores: dict[Setting, float] = {}

    def score(self, folds: list[tuple[PairData, PairData]], settings: Iterable[Setting]) -> None:
        """Add the cross-validated nats an answer of every setting; None stands for plain K-means."""
        for setting in settings:
            total = 0.0
            plain = plain_kmeans(self.X, self.K, tries=3, seed=self.seed, trial=self.trial) if setting is None else None
            for train, test in folds:
                labels = self.labels(train, setting, tries=2, trial=self.trial) if plain is None else plain
                total += float(answer_nll(labels, train, test).sum())
            self.scores[setting] = total / len(self.pairs)

    def labels(self, pairs: PairData, setting: Setting, *, tries: int, trial: Ints | None = None) -> Ints:
        """The partition (N,) that ``setting`` makes of all items with the help of ``pairs``."""
        if setting is None:
            return plain_kmeans(self.X, self.K, tries=tries, seed=self.seed, trial=trial)
        width, blend = setting
        space = self.lens.embed(pairs, min(width, self.lens.components.shape[1]), blend)
        return kmeans_by_answers(space, self.K, pairs, tries=tries, seed=self.seed, trial=trial)

    def best(self) -> Setting:
        return min(self.scores, key=lambda setting: self.scores[setting])

    def table(self) -> list[tuple[str, float]]:
        return [(f"{_scale_name(self.scaler.kind)}, {_name(setting)}", score) for setting, score in self.scores.items()]


def _name(setting: Setting) -> str:
    return "plain K-means" if setting is None else f"{setting[0]} components, blend {setting[1]:g}"


def _scale_name(kind: str | None) -> str:
    return "raw features" if kind is None else f"{kind} scale"


def make_start(features: Floats, n_clusters: int, pairs: PairData, *, scales: tuple[str | None, ...], init: str, seed: int) -> Start:
    """Choose a scaling and the partition training sets out from, for features (N, d).

    Scalings are compared by how well the partitions made under them predict held-out answers. ``init="kmeans"``:
    plain K-means, which never sees an answer. ``init="pairs"``: also K-means in discriminant coordinates, its
    setting chosen by cross-validation over answers (annotators where known), plain K-means among the rivals.
    """
    folds = pairs.folds(FOLDS, seed)
    first, *rest = product((2 * n_clusters, 4 * n_clusters), BLENDS)
    opening: list[Setting] = [None] if init == "kmeans" else [None, first]
    compared = [_Comparison(features, kind, n_clusters, pairs, seed) for kind in scales]
    for comparison in compared:
        comparison.score(folds, opening)
    chosen = min(compared, key=lambda c: c.scores[c.best()])
    if init == "pairs":
        chosen.score(folds, rest)
    setting = chosen.best()
    table = tuple(row for comparison in compared for row in comparison.table())
    name = f"{_scale_name(chosen.scaler.kind)}, {_name(setting)}"
    logger.info("start: %s (held-out %.4f nats an answer; plain K-means %.4f)", name, chosen.scores[setting], chosen.scores[None])
    return Start(chosen.labels(pairs, setting, tries=10), chosen.scaler, name, table)


def _trial_items(n_items: int, seed: int) -> Ints | None:
    if n_items <= TRIAL_ITEMS:
        return None
    return np.sort(np.random.default_rng(seed).choice(n_items, TRIAL_ITEMS, replace=False))
