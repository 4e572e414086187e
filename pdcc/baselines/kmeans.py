"""K-means with the contract of its rivals, and the centroids they share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn import cluster

from pdcc.baselines.base import PairClusterer
from pdcc.baselines.links import members
from pdcc.checks import Floats, Ints
from pdcc.pairs import PairData
from pdcc.partition import enough_tries, steady
from pdcc.settings import check_count

Floats64 = NDArray[np.float64]


def squared_distances(x: NDArray[np.floating], centres: Floats64) -> Floats64:
    """(N, K), in float64 and without the cancellation of |x|^2 - 2 x'c + |c|^2."""
    return np.asarray(cdist(x.astype(np.float64, copy=False), centres, "sqeuclidean"), dtype=np.float64)


def centroids(x: Floats64, labels: Ints, n_clusters: int) -> Floats64:
    """Means (K, d) of the clusters of x (N, d); empty clusters go to the items farthest from their own mean."""
    sizes = np.bincount(labels, minlength=n_clusters)
    centres = np.asarray(members(labels, n_clusters) @ x) / np.maximum(sizes, 1)[:, None]
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        far = ((x - centres[labels]) ** 2).sum(axis=1)
        centres[empty] = x[np.argsort(-far, kind="stable")[: len(empty)]]
    return centres


def spread_out(x: Floats64, n_clusters: int, seed: int) -> Floats64:
    """k-means++ seeds (K, d)."""
    with steady():
        return np.asarray(cluster.kmeans_plusplus(x, n_clusters, random_state=seed)[0], dtype=np.float64)


class CentroidClusterer(PairClusterer):
    """A clustering whose unseen items go to the nearest of ``cluster_centers_`` (K, d), in scaled features."""

    cluster_centers_: Floats64

    def _assign(self, x: Floats) -> NDArray[np.int64]:
        return np.asarray(squared_distances(x, self.cluster_centers_).argmin(axis=1), dtype=np.int64)


class KMeans(CentroidClusterer):
    """scikit-learn's K-means. It checks the answers as its rivals do and ignores them, unless ``scale`` or ``init`` ask.

    Args:
        n_clusters: K.
        scale: None, "unit", "standard" or "auto" (the one whose K-means predicts held-out answers best).
        init: "own" (k-means++), or the centroids of a start of VolMaxDCC: "kmeans" or "pairs".
        n_init: k-means++ starts, the one with the lowest inertia is kept; None: 10, or 30 for up to 4,000 items.
        random_state: seed; an int fixes everything.

    Fitted attributes: labels_ (N,), cluster_centers_ (K, d), inertia_, n_iter_, scaler_, n_features_in_.
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        scale: str | None = None,
        init: str = "own",
        n_init: int | None = None,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.scale = scale
        self.init = init
        self.n_init = n_init
        self.random_state = random_state

    def _check(self) -> None:
        if self.n_init is not None:
            check_count("n_init", self.n_init)

    def _train(self, x: Floats, data: PairData, start: Ints | None, seed: int) -> Ints:
        wide = x.astype(np.float64)
        how: dict[str, Any] = {"init": "k-means++", "n_init": self.n_init or enough_tries(len(x), 10)}
        if start is not None:
            how = {"init": centroids(wide, start, self.n_clusters), "n_init": 1}
        with steady():
            found = cluster.KMeans(self.n_clusters, random_state=seed, **how).fit(wide)
        self.cluster_centers_ = np.asarray(found.cluster_centers_, dtype=np.float64)
        self.inertia_, self.n_iter_ = float(found.inertia_), int(found.n_iter_)
        return np.asarray(found.labels_, dtype=np.int64)
