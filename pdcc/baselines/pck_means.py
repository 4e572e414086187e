"""PCK-Means (Basu, Banerjee and Mooney 2004): K-means that pays for every answer it breaks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn import cluster

from pdcc.arrays import Float64, Ints
from pdcc.baselines.kmeans import CentroidClusterer, centroids, spread_out, squared_distances, steady
from pdcc.baselines.links import broken, close, members, signed_links
from pdcc.data.pairs import PairData
from pdcc.validation import check_count, check_number

# Sweeps of single-item moves between two updates of the centroids; a handful is the rule.
SWEEPS = 100
# A move must gain more than rounding.
MARGIN = 1e-9


def settle(
    cost: Float64, links: "csr_array[np.float64]", labels: Ints, weight: float, rng: np.random.Generator
) -> Ints:
    """Iterated conditional modes: items move one by one, in random order, while that lowers the objective.

    cost: (N, K) distances. links: (N, N), as ``signed_links``. labels: (N,) before the moves; returns those after.
    """
    labels = labels.copy()
    items = np.arange(len(cost))
    # votes[i, k], up to a constant of i: how many answers about i would break in cluster k. Whole numbers stay exact.
    votes = np.asarray(links @ members(labels, cost.shape[1]).T.toarray())
    for _ in range(SWEEPS):
        score = cost + weight * votes
        restless = np.flatnonzero(score.min(axis=1) < score[items, labels] - MARGIN)
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


def neighbourhood_seeds(x: Float64, n_clusters: int, data: PairData, seed: int) -> Float64 | None:
    """Seeds (K, d) from groups that "similar" answers join: the largest, then by size times squared distance.

    Random items make up for too few groups. None if a group is larger than 2 N / K and answers contradict it: wrong
    answers have then chained unlike items, and its mean is about that of all items.
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
    centres: Float64
    history: list[float]


def pck_means(
    x: Float64,
    n_clusters: int,
    data: PairData,
    *,
    weight: float,
    tries: int,
    max_iter: int,
    seed: int,
) -> Run:
    """The best of ``tries`` runs on x (N, d): sum_i |x_i - mu(i)|^2 / V + weight * (answers broken).

    V is the variance between the clusters of plain K-means, so that distances and answers are of one size. The first
    run begins with the centroids of groups that "similar" answers join, the others begin with k-means++.
    """
    with steady():
        within = float(cluster.KMeans(n_clusters, n_init=1, random_state=seed).fit(x).inertia_)
    between = (float(((x - x.mean(axis=0)) ** 2).sum()) - within) / len(x)
    unit = between if between > 0 else 1.0  # identical items: every distance is 0
    links = signed_links(np.arange(len(x)), len(x), data)
    runs = []
    for t in range(tries):
        seeds = neighbourhood_seeds(x, n_clusters, data, seed) if t == 0 else None
        centres = spread_out(x, n_clusters, seed + t) if seeds is None else seeds
        cost = squared_distances(x, centres) / unit
        labels: Ints = cost.argmin(axis=1)
        rng = np.random.default_rng([seed, t])
        history: list[float] = []
        while len(history) < max_iter:
            moved = settle(cost, links, labels, weight, rng)
            if history and np.array_equal(labels, moved):
                break
            labels, centres = moved, centroids(x, moved, n_clusters)
            cost = squared_distances(x, centres) / unit
            distance = float(cost[np.arange(len(x)), labels].sum())
            history.append(distance + weight * sum(broken(labels, data).values()))
        runs.append(Run(labels, centres, history))
    return min(runs, key=lambda run: run.history[-1])


class PCKMeans(CentroidClusterer):
    """K-means with a price on every broken answer, so that some wrong answers do little harm.

    Minimises sum_i |x_i - mu(i)|^2 / V + weight * (answers broken), where V is the variance between the clusters of
    plain K-means: squared distances and answers are then of one size, whatever the unit and the number of features.

    Args:
        n_clusters: K.
        scale: "standard" (columns of one size), "unit" (centred rows of one length) or None (features as they are).
        weight: price of a broken answer; 0 ignores answers, and from about 2 they are kept at almost any distance.
        max_iter: at most this many updates of the centroids per run.
        n_init: runs; the lowest objective is kept. The first run begins with groups that "similar" answers join, unless
            answers contradict a large group; the others begin with k-means++.
        random_state: seed; an int fixes everything.

    Fitted attributes:
        labels_ (N,), cluster_centers_ (K, d), objective_history_ (after every update of the centroids, never rising),
        n_iter_, violations_ ({"must_link": ..., "cannot_link": ...}: the given answers that labels_ break), scaler_,
        n_features_in_. ``predict`` uses no answers: it takes the nearest centroid, also for items fitted on.

    Examples:
        >>> import numpy as np
        >>> from pdcc.baselines import PCKMeans
        >>> X = np.repeat(np.eye(3), 20, axis=0) + 0.01 * np.arange(60)[:, None]
        >>> pairs = np.array([[i, (7 * i + 1) % 60] for i in range(60)])
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> PCKMeans(3, random_state=0).fit(X, pairs, similar).violations_
        {'must_link': 0, 'cannot_link': 0}
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        scale: str | None = "standard",
        weight: float = 0.5,
        max_iter: int = 100,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.scale = scale
        self.weight = weight
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    def _check(self) -> None:
        super()._check()
        check_number("weight", self.weight, 0.0)
        check_count("max_iter", self.max_iter)
        check_count("n_init", self.n_init)

    def _train(self, x: Float64, data: PairData, seed: int) -> Ints:
        best = pck_means(
            x, self.n_clusters, data, weight=float(self.weight), tries=self.n_init, max_iter=self.max_iter, seed=seed
        )
        self.cluster_centers_, self.objective_history_ = best.centres, best.history
        self.n_iter_ = len(best.history)
        self.violations_ = broken(best.labels, data)
        return best.labels
