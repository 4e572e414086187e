"""K-means with the contract of the other baselines."""

from typing import Any

import numpy as np
from sklearn import cluster

from pdcc.arrays import Float32, Float64, Ints
from pdcc.baselines.base import PairClusterer
from pdcc.data.pairs import PairData
from pdcc.partition.kmeans import centroids, enough_tries, squared_distances, steady
from pdcc.validation import check_count


class CentroidClusterer(PairClusterer):
    """A clustering whose unseen items go to the nearest of ``cluster_centers_`` (K, d), in scaled features."""

    cluster_centers_: Float64

    def _assign(self, x: Float32) -> Ints:
        return np.asarray(squared_distances(x, self.cluster_centers_).argmin(axis=1), dtype=np.int64)


class KMeans(CentroidClusterer):
    """scikit-learn's K-means. It checks the answers as the other baselines do and ignores them, unless ``scale`` or ``init`` ask.

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

    def _train(self, x: Float32, data: PairData, start: Ints | None, seed: int) -> Ints:
        wide = x.astype(np.float64)
        how: dict[str, Any] = {"init": "k-means++", "n_init": self.n_init or enough_tries(len(x), 10)}
        if start is not None:
            how = {"init": centroids(wide, start, self.n_clusters), "n_init": 1}
        with steady():
            found = cluster.KMeans(self.n_clusters, random_state=seed, **how).fit(wide)
        self.cluster_centers_ = np.asarray(found.cluster_centers_, dtype=np.float64)
        self.inertia_, self.n_iter_ = float(found.inertia_), int(found.n_iter_)
        return np.asarray(found.labels_, dtype=np.int64)
