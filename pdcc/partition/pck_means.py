"""PCK-Means (Basu, Banerjee and Mooney 2004): K-means that pays for every answer it breaks."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from sklearn import cluster

from pdcc.arrays import Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.partition.kmeans import centroids, spread_out, squared_distances, steady
from pdcc.partition.links import broken, close, members, signed_links

# Sweeps of single-item moves between two updates of the centroids; a handful is the rule.
SWEEPS = 100
# A move must gain more than rounding.
MARGIN = 1e-9


def settle(
    cost: Float64, links: "csr_array[np.float64]", labels: Ints, weight: float, rng: np.random.Generator
) -> Ints:
    """Iterated conditional modes: items move one by one, in random order, while that lowers the objective.

    cost: (N, K) distances. links: (N, N), as ``signed_links``. labels: (N,) to set out from; returns new ones.
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
    start: Ints | None = None,
) -> Run:
    """The best of ``tries`` runs on x (N, d): sum_i |x_i - mu(i)|^2 / V + weight * (answers broken).

    V is the variance between the clusters of plain K-means, so that distances and answers are of one size. Without ``start``
    (N,) labels, the first run sets out from groups joined by "similar" answers and the others from k-means++.
    """
    with steady():
        within = float(cluster.KMeans(n_clusters, n_init=1, random_state=seed).fit(x).inertia_)
    between = (float(((x - x.mean(axis=0)) ** 2).sum()) - within) / len(x)
    unit = between if between > 0 else 1.0  # identical items: every distance is 0
    links = signed_links(np.arange(len(x)), len(x), data)
    runs = []
    for t in range(tries):
        if start is None:
            seeds = neighbourhood_seeds(x, n_clusters, data, seed) if t == 0 else None
            centres = spread_out(x, n_clusters, seed + t) if seeds is None else seeds
        else:
            centres = centroids(x, start, n_clusters)
        cost = squared_distances(x, centres) / unit
        labels = cost.argmin(axis=1) if start is None else start
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
