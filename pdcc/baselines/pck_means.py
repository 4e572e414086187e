"""PCK-Means (Basu, Banerjee and Mooney 2004): K-means that pays for every answer it breaks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn import cluster

from pdcc.baselines.kmeans import CentroidClusterer, Floats64, centroids, spread_out, squared_distances
from pdcc.baselines.links import broken, close, members, signed_links
from pdcc.checks import Floats, Ints
from pdcc.pairs import PairData
from pdcc.partition import steady
from pdcc.settings import check_count, check_number

# Sweeps of single-item moves between two updates of the centroids; a handful is the rule.
SWEEPS = 100
# A move must gain more than rounding.
MARGIN = 1e-9


def settle(
    cost: Floats64, links: "csr_array[np.float64]", labels: Ints, weight: float, rng: np.random.Generator
) -> Ints:
    """Iterated conditional modes: items move one by one, in random order, while that lowers the objective.

    cost: (N, K) distances. links: (N, N), as ``signed_links``. labels: (N,) to set out from; returns new ones.
    """
    labels = labels.copy()
    everyone = np.arange(len(cost))
    # votes[i, k], up to a constant of i: how many answers about i would break in cluster k. Whole numbers stay exact.
    votes = np.asarray(links @ members(labels, cost.shape[1]).T.toarray())
    for _ in range(SWEEPS):
        score = cost + weight * votes
        restless = np.flatnonzero(score.min(axis=1) < score[everyone, labels] - MARGIN)
        if not len(restless):
            break
        for i in rng.permutation(restless).tolist():
            row = cost[i] + weight * votes[i]
            old, new = int(labels[i]), int(row.argmin())
            if row[new] < row[old] - MARGIN:  # others have moved since the sweep began
                labels[i] = new
                mine = slice(links.indptr[i], links.indptr[i + 1])
                votes[links.indices[mine], old] -= links.data[mine]
                votes[links.indices[mine], new] += links.data[mine]
    return labels


def neighbourhood_seeds(x: Floats64, n_clusters: int, data: PairData, seed: int) -> Floats64 | None:
    """Seeds (K, d) from groups that "similar" answers join: the largest, then by size times squared distance.

    Random items make up for too few groups. None if a group is larger than 2 N / K and answers contradict it: then wrong
    answers have chained unlike items, and its mean is about that of all items.
    """
    closure = close(data)
    suspect = np.unique(closure.component[data.i[closure.contradictions]])
    if len(suspect) and closure.size[suspect].max() > 2 * len(x) / n_clusters:
        return None
    joined = np.flatnonzero(closure.size > 1)
    size = closure.size[joined]
    means = np.asarray(members(closure.component, len(closure.size)) @ x)[joined] / size[:, None]
    chosen = [int(size.argmax())]
    distance = np.full(len(joined), np.inf)
    while len(chosen) < min(n_clusters, len(joined)):
        distance = np.minimum(distance, squared_distances(means, means[chosen[-1:]])[:, 0])
        chosen.append(int((size * distance).argmax()))
    fill = np.random.default_rng(seed).choice(len(x), n_clusters - len(chosen), replace=False)
    return np.concatenate([means[chosen], x[fill]])


@dataclass(frozen=True)
class Run:
    """One run: labels (N,), centres (K, d), the objective after every update of the centroids."""

    labels: Ints
    centres: Floats64
    history: list[float]


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
        max_iter: at most this many updates of the centroids a run.
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

    def _train(self, x: Floats, data: PairData, start: Ints | None, seed: int) -> Ints:
        wide = x.astype(np.float64)
        with steady():
            within = float(cluster.KMeans(self.n_clusters, n_init=1, random_state=seed).fit(wide).inertia_)
        between = (float(((wide - wide.mean(axis=0)) ** 2).sum()) - within) / len(wide)
        unit = between if between > 0 else 1.0  # identical items: every distance is 0
        links = signed_links(np.arange(len(wide)), len(wide), data)
        runs = [self._run(wide, data, links, unit, start, seed, t) for t in range(self.n_init)]
        best = min(runs, key=lambda run: run.history[-1])
        self.cluster_centers_, self.objective_history_ = best.centres, best.history
        self.n_iter_ = len(best.history)
        self.violations_ = broken(best.labels, data)
        return best.labels

    def _run(
        self,
        x: Floats64,
        data: PairData,
        links: "csr_array[np.float64]",
        unit: float,
        start: Ints | None,
        seed: int,
        t: int,
    ) -> Run:
        """Run number ``t``, distances in units of ``unit``."""
        K, rng = self.n_clusters, np.random.default_rng([seed, t])
        history: list[float] = []
        if start is None:
            seeds = neighbourhood_seeds(x, K, data, seed) if t == 0 else None
            centres = spread_out(x, K, seed + t) if seeds is None else seeds
            cost = squared_distances(x, centres) / unit
            labels = cost.argmin(axis=1)
        else:
            centres, labels = centroids(x, start, K), start
            cost = squared_distances(x, centres) / unit
        while len(history) < self.max_iter:
            moved = settle(cost, links, labels, float(self.weight), rng)
            if history and np.array_equal(labels, moved):
                break
            labels, centres = moved, centroids(x, moved, K)
            cost = squared_distances(x, centres) / unit
            distance = float(cost[np.arange(len(x)), labels].sum())
            history.append(distance + self.weight * sum(broken(labels, data).values()))
        return Run(labels, centres, history)
