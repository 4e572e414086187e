"""K-means and what goes with it: tries, centroids, distances."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn import cluster
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from pdcc.arrays import Float64, Floats, Ints
from pdcc.exclusive import one_core
from pdcc.partition.links import members

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
    """K-means labels (N,) of Z (N, p), the best of ``tries`` by inertia; no answers seen.

    ``rows`` (n,) restricts the fitting to those items; the rest go to their nearest centre. With ``blocks``, (n, p) each, which hold
    all items one after the other, Z are only those to fit to.
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
