"""PCK-Means with the contract of the other baselines."""

from typing import Any

import numpy as np

from pdcc.arrays import Float32, Ints
from pdcc.baselines.kmeans import CentroidClusterer
from pdcc.data.pairs import PairData
from pdcc.partition.links import broken
from pdcc.partition.pck_means import pck_means
from pdcc.validation import check_count, check_number


class PCKMeans(CentroidClusterer):
    """K-means with a price on every broken answer, so that it bears some wrong ones.

    Minimises sum_i |x_i - mu(i)|^2 / V + weight * (answers broken), where V is the variance between the clusters of plain
    K-means: squared distances and answers are then of one size, whatever the unit and the number of features.

    Args:
        n_clusters: K.
        scale: None, "unit", "standard" or "auto".
        init: "own" (the first run from groups joined by "similar" answers, further ones, and the first too if a large
            group contradicts itself, by k-means++), or a start of VolMaxDCC: "kmeans" or "pairs".
        weight: price of a broken answer; 0 ignores answers, and from about 2 they are kept at almost any distance.
        max_iter: at most this many updates of the centroids per run.
        n_init: runs; the lowest objective is kept. After a start of VolMaxDCC they differ by the order of moves alone.
        random_state: seed; an int fixes everything.

    Fitted attributes:
        labels_ (N,), cluster_centers_ (K, d), objective_history_ (after every update of the centroids, never rising),
        n_iter_, violations_ ({"must_link": ..., "cannot_link": ...}: the given answers that labels_ break), scaler_,
        n_features_in_. ``predict`` knows no answers: it takes the nearest centroid, also for items fitted on.
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        scale: str | None = None,
        init: str = "own",
        weight: float = 0.5,
        max_iter: int = 100,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.scale = scale
        self.init = init
        self.weight = weight
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    def _check(self) -> None:
        check_number("weight", self.weight, 0.0)
        check_count("max_iter", self.max_iter)
        check_count("n_init", self.n_init)

    def _train(self, x: Float32, data: PairData, start: Ints | None, seed: int) -> Ints:
        best = pck_means(
            x.astype(np.float64), self.n_clusters, data,
            weight=float(self.weight), tries=self.n_init, max_iter=self.max_iter, seed=seed, start=start,
        )  # fmt: skip
        self.cluster_centers_, self.objective_history_ = best.centres, best.history
        self.n_iter_ = len(best.history)
        self.violations_ = broken(best.labels, data)
        return best.labels
