"""Partitions of the items: by features alone, in directions that answers point out, and by answers that link items.

K-means knows nothing of the answers (``KMEANS``). The answers point out the directions in which clusters differ: for
whitened features z, the average of (y - mean y) z_i z_j' has the span of the class means as its leading eigenvectors,
whatever the noise (``GUIDED``: K-means with these directions added). Answers also link the items themselves: the
leading eigenvectors of the matrix of answers (``ANSWERS``), or of that matrix added to the graph of nearest neighbours
(``GRAPH``). From each of these a mixture may begin, with one shape for all clusters or one for each.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
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
from pdcc.rows import drawn_rows
from pdcc.select import numbers
from pdcc.select.blockmodel import Ends, block_counts, left_out_nll
from pdcc.select.mixture import mixture
from pdcc.storage.files import load_state, save_state
from pdcc.training import Shape, Source, Start

# Components with less than this share of the largest deviation are rounding.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Partition:
    """What a start makes of the items: labels (N,) by features, and by features and their own answers, where it says so."""

    labels: Ints
    by_answers: Float64 | None = None

    def save(self, path: Path) -> None:
        """Keep it in a file."""
        beliefs = {} if self.by_answers is None else {"by_answers": torch.as_tensor(self.by_answers)}
        save_state(path, {"labels": torch.as_tensor(self.labels), **beliefs}, {})

    @classmethod
    def load(cls, path: Path) -> "Partition":
        """Undo ``save``."""
        kept, _ = load_state(path)
        return cls(kept["labels"].numpy(), kept["by_answers"].numpy() if "by_answers" in kept else None)


class Partitioner:
    """Makes partitions of items by their scaled features X (N, d), flat and in memory.

    store: a directory in which an interrupted fit finds the partitions that it had made.
    """

    def __init__(self, X: Float32, n_clusters: int, seed: int, store: Path | None = None):
        self.X, self.K, self.seed, self.store = X.reshape(len(X), -1), n_clusters, seed, store
        self._sources: dict[tuple[Source, bytes], Ints] = {}
        self._made: dict[tuple[Start, bytes], Partition] = {}

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
        """K-means of the leading components, (N,)."""
        return kmeans(self.components, self.K, tries=enough_tries(len(self.X), 10), seed=self.seed)

    @cached_property
    def graph(self) -> "csr_array[np.float64]":
        """Nearest neighbours, weighed by distance, symmetric, (N, N)."""
        return neighbour_graph(self.components, weighed=True)

    def make(self, start: Start, answers: PairData) -> Partition:
        """The partition that a start makes of these answers; made once."""
        key = start, _bytes(answers)
        if key not in self._made:
            kept = None if self.store is None else self.store / f"partition-{self._mark(*key)}.safetensors"
            if kept is not None and kept.exists():
                self._made[key] = Partition.load(kept)
            else:
                self._made[key] = self._make(start, answers)
                if kept is not None:
                    self._made[key].save(kept)
        return self._made[key]

    def _mark(self, start: Start, answers: bytes) -> str:
        """What tells this partition from those of other items, answers and settings."""
        digest = hashlib.sha256(f"{start}, {self.K}, {self.seed}, {self.X.shape}".encode())
        digest.update(np.ascontiguousarray(self.X).data)
        digest.update(answers)
        return digest.hexdigest()[:32]

    def _make(self, start: Start, answers: PairData) -> Partition:
        if start.shape is Shape.NONE:
            return Partition(self.source(start.source, answers))
        own = start.shape is Shape.OWN
        if start.moved:
            begin = self.make(replace(start, moved=False), answers)
            with one_core():
                return self._moved(begin, own, answers)
        return self._mixture(self.source(start.source, answers), own, answers)

    def _mixture(self, labels: Ints, own_shapes: bool, answers: PairData) -> Partition:
        found = mixture(self.components, labels, self.K, answers, own_shapes=own_shapes)
        return Partition(found.by_features.argmax(axis=1), found.beliefs)

    def _moved(self, begin: Partition, own_shapes: bool, answers: PairData) -> Partition:
        """Split one cluster and merge two others, again and again, while that makes left-out answers likelier.

        Mixtures end in the optimum next to where they begin: two classes in one cluster and a third class in two is one
        that no small step leaves. Answers see it: they say "different" within the one cluster, "similar" between the two.
        A move must gain more than the logarithm of the number of moves there were to choose from.
        """
        likely = self._log_lik(begin.labels, answers)
        for _ in range(self.K):
            moves = [self._mixture(labels, own_shapes, answers) for labels in self._proposals(begin.labels, answers)]
            gains = [self._log_lik(move.labels, answers) - likely for move in moves]
            if not moves or max(gains) <= np.log(len(moves)):
                break
            best = int(np.argmax(gains))
            begin, likely = moves[best], likely + gains[best]
        return begin

    def _log_lik(self, labels: Ints, answers: PairData) -> float:
        ends = Ends.of_labels(labels[answers.i], labels[answers.j], self.K)
        return -float((left_out_nll(ends, answers) * counts(answers)).sum())

    def _proposals(self, labels: Ints, answers: PairData) -> Iterator[Ints]:
        """For each of the clusters that answers contradict most: labels (N,) with it split, and merged the two others whose merging costs answers least."""
        similar, different = np.diagonal(block_counts(labels, self.K, answers), axis1=1, axis2=2)
        expected = (similar + different) * different.sum() / max(similar.sum() + different.sum(), 1.0)
        space = self.embed(answers)
        for cluster in np.argsort(expected - different, kind="stable")[: numbers.SPLIT]:
            rows = np.flatnonzero(labels == cluster)
            if len(rows) < 2:
                continue
            split = labels.copy()
            split[rows[kmeans(space[rows], 2, tries=1, seed=self.seed) == 1]] = self.K
            said = block_counts(split, self.K + 1, answers)
            a, b = np.triu_indices(self.K + 1, 1)
            other = (a != cluster) | (b != self.K)  # merging the two halves again is no move
            a, b = a[other], b[other]
            if not len(a):
                continue
            within = np.trace(said, axis1=1, axis2=2)[:, None] + said[:, a, b]
            across = np.triu(said).sum(axis=(1, 2))[:, None] - within
            merged = int((betaln(*(within + 1)) + betaln(*(across + 1))).argmax())
            split[split == b[merged]] = a[merged]
            split[split == self.K] = b[merged]
            yield split

    @property
    def few(self) -> bool:
        """Whether items are few enough for graphs and mixtures of all of them."""
        return len(self.X) <= numbers.GRAPH_ITEMS

    def source(self, source: Source, answers: PairData) -> Ints:
        """Labels (N,); found once for the same answers."""
        if source is Source.KMEANS:
            return self.plain
        key = source, _bytes(answers)
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
        some = None if self.few else drawn_rows(len(space), numbers.GRAPH_ITEMS, self.seed)
        runs = (kmeans(space, self.K, tries=1, seed=self.seed + t, rows=some) for t in range(numbers.GUIDED_RUNS))
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


def _bytes(answers: PairData) -> bytes:
    """The same for the same answers alone."""
    return b"".join(part.tobytes() for part in (answers.i, answers.j, degree(answers), counts(answers)))


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
