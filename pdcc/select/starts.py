"""Partitions of the items: by features alone, in directions that answers point out, and by answers that link items.

K-means knows nothing of the answers (``KMEANS``). The answers point out the directions in which clusters differ: for
whitened features z, the average of (y - mean y) z_i z_j' has the span of the class means as its leading eigenvectors,
whatever the noise (``GUIDED``: K-means with these directions added). Answers also link the items themselves: the
leading eigenvectors of the matrix of answers (``ANSWERS``), or of that matrix added to the graph of nearest neighbours
(``GRAPH``). From each of these a mixture may begin, with one shape for all clusters or one for each.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from scipy.special import betaln
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from pdcc.arrays import Float32, Float64, Floats, Ints
from pdcc.baselines.kmeans import enough_tries, kmeans
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData
from pdcc.exclusive import one_core
from pdcc.select import numbers
from pdcc.select.mixture import mixture
from pdcc.training import Shape, Source, Start

# Components with less than this share of the largest deviation are rounding.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Partition:
    """What a start makes of the items: labels (N,) by features, and by features and their own answers, where it says so."""

    labels: Ints
    by_answers: Float64 | None = None


class Partitioner:
    """Makes partitions of items by their scaled features X (N, d), flat and in memory."""

    def __init__(self, X: Float32, n_clusters: int, seed: int):
        self.X, self.K, self.seed = X.reshape(len(X), -1), n_clusters, seed
        self._sources: dict[tuple[Source, bytes], Ints] = {}

    @cached_property
    def axes(self) -> PCA:
        """Principal components."""
        most = min(numbers.COMPONENTS * self.K, numbers.MOST_COMPONENTS, *self.X.shape)
        with one_core(), np.errstate(invalid="ignore"):  # shares of the variance of constant features
            return PCA(most, random_state=self.seed).fit(self.X.astype(np.float64))

    def project(self, X: Floats) -> Float64:
        """Components (n, p) of scaled features (n, ...), but for those that are only rounding."""
        deviation = np.sqrt(self.axes.explained_variance_)
        kept = deviation >= NEGLIGIBLE * deviation.max()
        return np.asarray(self.axes.transform(X.reshape(len(X), -1).astype(np.float64))[:, kept])

    @cached_property
    def components(self) -> Float64:
        """Those of all items, (N, p)."""
        with one_core():
            return self.project(self.X)

    @cached_property
    def plain(self) -> Ints:
        """K-means of all features, (N,)."""
        return kmeans(self.X, self.K, tries=enough_tries(len(self.X), 10), seed=self.seed)

    @cached_property
    def graph(self) -> "csr_array[np.float64]":
        """Nearest neighbours, weighed by distance, symmetric, (N, N)."""
        return neighbour_graph(self.components, weighed=True)

    def make(self, start: Start, answers: PairData) -> Partition:
        """The partition that a start makes of these answers."""
        labels = self.source(start.source, answers)
        if start.shape is Shape.NONE:
            return Partition(labels)
        found = mixture(self.components, labels, self.K, answers, own_shapes=start.shape is Shape.OWN)
        return Partition(found.by_features.argmax(axis=1), found.beliefs)

    def can_make(self, source: Source) -> bool:
        """Whether items are few enough: the graph and the matrix of answers are made of all items."""
        return source in (Source.KMEANS, Source.GUIDED) or len(self.X) <= numbers.GRAPH_ITEMS

    def source(self, source: Source, answers: PairData) -> Ints:
        """Labels (N,); found once for the same answers."""
        if source is Source.KMEANS:
            return self.plain
        parts = (answers.i, answers.j, degree(answers), counts(answers))
        key = source, b"".join(part.tobytes() for part in parts)
        if key not in self._sources:
            with one_core():
                make = {Source.GUIDED: self._guided, Source.GRAPH: self._joined, Source.ANSWERS: self._linked}[source]
                self._sources[key] = make(answers)
        return self._sources[key]

    def embed(self, answers: PairData) -> Float64:
        """Half principal components, half the K - 1 directions in them along which answers differ most, (N, q)."""
        plain = self.components
        deviation = plain.std(axis=0)
        white = plain / np.where(deviation > 0, deviation, 1.0)
        y, weight = degree(answers), counts(answers)
        excess = weight * (y - np.average(y, weights=weight))
        moment = (white[answers.i] * excess[:, None]).T @ white[answers.j] / weight.sum()
        values, vectors = np.linalg.eigh((moment + moment.T) / 2)
        lead = np.argsort(-values)[: self.K - 1]
        leading = white @ vectors[:, lead] * np.sqrt(np.clip(values[lead], 0.0, None))
        return np.hstack([_unit_power(plain), _unit_power(leading)])

    def _guided(self, answers: PairData) -> Ints:
        """Of several runs of K-means, the one that makes the answers likeliest."""
        space = self.embed(answers)
        runs = (kmeans(space, self.K, tries=1, seed=self.seed + t) for t in range(numbers.GUIDED_RUNS))
        return max(runs, key=lambda labels: two_rate_evidence(labels, answers))

    def _joined(self, answers: PairData) -> Ints:
        space = leading_vectors(_normalised(answer_matrix(answers)) + _normalised(self.graph), self.K)
        return kmeans(space, self.K, tries=10, seed=self.seed)

    def _linked(self, answers: PairData) -> Ints:
        """-1 where nothing was asked."""
        asked = np.unique(np.concatenate([answers.i, answers.j]))
        labels = np.full(len(self.X), -1, dtype=np.int64)
        if len(asked) <= self.K:
            return self.plain
        space = leading_vectors(_normalised(answer_matrix(answers)), max(self.K - 1, 1))
        labels[asked] = kmeans(space[asked], self.K, tries=10, seed=self.seed)
        return labels


def answer_matrix(answers: PairData) -> "csr_array[np.float64]":
    """For every two items, the sum over answers of y - (how often that annotator says "same"), (N, N), symmetric."""
    y, w = degree(answers), counts(answers)
    r = np.zeros(len(answers), np.int64) if answers.annotator is None else answers.annotator
    mean = np.average(y, weights=w)
    rate = (np.bincount(r, w * y) + 2 * mean) / (np.bincount(r, w) + 2)
    excess = w * (y - rate[r])
    ends = np.r_[answers.i, answers.j], np.r_[answers.j, answers.i]
    return csr_array((np.r_[excess, excess], ends), shape=(answers.n_items, answers.n_items))


def neighbour_graph(Z: Floats, *, weighed: bool) -> "csr_array[np.float64]":
    """The nearest neighbours of each item at Z (N, p): 1 for each in the item's row, or, ``weighed``, by distance and symmetric."""
    n = min(numbers.NEIGHBOURS, len(Z) - 1)
    with one_core():
        distance, number = NearestNeighbors(n_neighbors=n + 1).fit(Z).kneighbors(Z)
    # The item itself is not always the first: items may coincide.
    itself = number == np.arange(len(Z))[:, None]
    itself[~itself.any(axis=1), -1] = True
    distance, number = distance[~itself].reshape(-1, n), number[~itself].reshape(-1, n)
    farthest = np.maximum(distance[:, -1:], np.finfo(np.float64).tiny)
    weight = np.exp(-((distance / farthest) ** 2)) if weighed else np.ones_like(distance)
    rows = np.repeat(np.arange(len(Z)), n)
    found = csr_array((weight.ravel(), (rows, number.ravel())), shape=(len(Z), len(Z)))
    return csr_array((found + found.T) / 2) if weighed else found


def leading_vectors(matrix: "csr_array[np.float64]", n: int) -> Float64:
    """The n leading eigenvectors of a symmetric matrix (N, N), times the root of their eigenvalues, (N, n)."""
    N = matrix.shape[0]
    if n >= N - 1:
        values, vectors = np.linalg.eigh(matrix.toarray())
        values, vectors = values[-n:], vectors[:, -n:]
    else:
        values, vectors = eigsh(matrix, k=n, which="LA", v0=np.ones(N))
    return np.asarray(vectors * np.sqrt(np.clip(values, 0.0, None)))


def two_rate_evidence(labels: Ints, answers: PairData) -> float:
    """Log marginal likelihood of answers under a uniform prior on the rate within clusters, and on that across."""
    together = labels[answers.i] == labels[answers.j]
    y, w = degree(answers), counts(answers)
    return float(sum(betaln((w * y)[m].sum() + 1, (w * (1 - y))[m].sum() + 1) for m in (together, ~together)))


def _normalised(matrix: "csr_array[np.float64]") -> "csr_array[np.float64]":
    """Divided by the roots of its rows' and columns' sizes, each with the mean size added: items with few links count less."""
    size: Float64 = np.asarray(abs(matrix).sum(axis=1)).ravel()
    scale = diags_array(1 / np.sqrt(np.maximum(size + size.mean(), np.finfo(np.float64).tiny)))
    return csr_array(scale @ matrix @ scale)


def _unit_power(Z: Float64) -> Float64:
    return np.asarray(Z / max(float(np.sqrt((Z**2).sum(axis=1).mean())), np.finfo(np.float64).tiny))
