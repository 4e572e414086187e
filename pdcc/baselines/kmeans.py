"""K-means: the function, what goes with it (tries, centroids, distances), and the estimator."""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn import cluster
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from pdcc.arrays import Float32, Float64, Floats, Ints
from pdcc.baselines.base import PairClusterer
from pdcc.baselines.links import members
from pdcc.data.pairs import PairData
from pdcc.data.scaling import SCALES, Scaler
from pdcc.exclusive import one_core
from pdcc.validation import check_count, check_one_of

# Up to so many items, K-means is cheap and its optima are few and far apart: so many times more tries.
FEW_ITEMS = 4000
MORE_TRIES = 3
STEADINESS_RUNS = 6


@contextmanager
def steady() -> Iterator[None]:
    """One thread: parallel K-means adds partial sums in a random order, and a seed must fix everything."""
    with one_core(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct items than clusters: some stay empty
        yield


def enough_tries(n_items: int, tries: int) -> int:
    """``tries`` of K-means for many items, more for few."""
    return tries * (MORE_TRIES if n_items <= FEW_ITEMS else 1)


def kmeans(
    Z: Floats,
    n_clusters: int,
    *,
    tries: int,
    seed: int,
    rows: Ints | None = None,
    blocks: Iterable[Floats] | None = None,
) -> Ints:
    """K-means labels (N,) of Z (N, p), the best of ``tries`` by inertia; no answers are used.

    ``rows`` (n,) restricts the fit to those items; the other items go to their nearest centre. ``blocks``, (n, p) each,
    hold all items one after the other; K-means is then fitted to Z, and the items of ``blocks`` are labelled.
    """
    with steady():
        found = cluster.KMeans(n_clusters, n_init=tries, random_state=seed).fit(Z if rows is None else Z[rows])
        parts = [Z] if blocks is None else blocks
        return np.concatenate([np.asarray(found.predict(part), dtype=np.int64) for part in parts])


def steadiness(Z: Floats, n_clusters: int, seed: int) -> float:
    """Mean adjusted Rand index between single runs of K-means on Z (N, p)."""
    runs = [kmeans(Z.reshape(len(Z), -1), n_clusters, tries=1, seed=seed + t) for t in range(STEADINESS_RUNS)]
    return float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(runs, 2)]))


def squared_distances(x: Floats, centres: Float64) -> Float64:
    """(N, K), in float64 and without the cancellation of |x|^2 - 2 x'c + |c|^2."""
    return np.asarray(cdist(x.astype(np.float64, copy=False), centres, "sqeuclidean"), dtype=np.float64)


def centroids(x: Float64, labels: Ints, n_clusters: int) -> Float64:
    """Means (K, d) of the clusters of x (N, d); empty clusters go to the items farthest from their own mean."""
    sizes = np.bincount(labels, minlength=n_clusters)
    centres = np.asarray(members(labels, n_clusters) @ x) / np.maximum(sizes, 1)[:, None]
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        far = ((x - centres[labels]) ** 2).sum(axis=1)
        centres[empty] = x[np.argsort(-far, kind="stable")[: len(empty)]]
    return centres


def spread_out(x: Float64, n_clusters: int, seed: int) -> Float64:
    """k-means++ seeds (K, d)."""
    with steady():
        return np.asarray(cluster.kmeans_plusplus(x, n_clusters, random_state=seed)[0], dtype=np.float64)


class CentroidClusterer(PairClusterer):
    """A clustering whose unseen items go to the nearest of ``cluster_centers_`` (K, d), in scaled features."""

    cluster_centers_: Float64

    def _check(self) -> None:
        check_one_of("scale", self.scale, SCALES)

    def _learn(self, X: Floats, data: PairData, seed: int) -> Ints:
        self.scaler_ = Scaler.fit(X, self.scale)
        return self._train(self.scaler_(X).astype(np.float64), data, seed)

    @abstractmethod
    def _train(self, x: Float64, data: PairData, seed: int) -> Ints:
        """Train on scaled features x (N, d); returns labels (N,)."""

    def _assign(self, x: Float32) -> Ints:
        return np.asarray(squared_distances(x, self.cluster_centers_).argmin(axis=1), dtype=np.int64)


class KMeans(CentroidClusterer):
    """scikit-learn's K-means. It checks the answers as the other baselines do, and ignores them.

    Args:
        n_clusters: K.
        scale: "standard" (columns of one size), "unit" (centred rows of one length) or None (features as they are).
        n_init: k-means++ runs, the one with the lowest inertia is kept; None: 10, or 30 for up to 4,000 items.
        random_state: seed; an int fixes everything.

    Fitted attributes: labels_ (N,), cluster_centers_ (K, d), inertia_, n_iter_, scaler_, n_features_in_.

    Examples:
        >>> import numpy as np
        >>> from pdcc.baselines import KMeans
        >>> X = np.repeat(np.eye(3), 20, axis=0) + 0.01 * np.arange(60)[:, None]
        >>> pairs = np.array([[i, (7 * i + 1) % 60] for i in range(60)])
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> KMeans(3, random_state=0).fit(X, pairs, similar).cluster_centers_.shape
        (3, 3)
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        scale: str | None = "standard",
        n_init: int | None = None,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.scale = scale
        self.n_init = n_init
        self.random_state = random_state

    def _check(self) -> None:
        super()._check()
        if self.n_init is not None:
            check_count("n_init", self.n_init)

    def _train(self, x: Float64, data: PairData, seed: int) -> Ints:
        tries = self.n_init or enough_tries(len(x), 10)
        with steady():
            found = cluster.KMeans(self.n_clusters, n_init=tries, random_state=seed).fit(x)
        self.cluster_centers_ = np.asarray(found.cluster_centers_, dtype=np.float64)
        self.inertia_, self.n_iter_ = float(found.inertia_), int(found.n_iter_)
        return np.asarray(found.labels_, dtype=np.int64)
