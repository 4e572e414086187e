"""Whether answers have torn items from their neighbours: what held-out answers cannot see, and the features can.

Someone who answers by labels of their own, right or wrong, is followed by the likelihood into their mistakes, and held-out answers of
theirs applaud. A stable partition of the features keeps neighbours together; a wrong labelling does so less.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from pdcc.checks import Floats, Ints

NEIGHBOURS = 5
# The neighbours of so many items, drawn at random, tell enough.
MOST_ITEMS = 5000
# Labels may agree with their neighbours less than the stable partition's do by this many standard errors.
ERRORS = 2.0


class Neighbourhood:
    """The nearest neighbours of every item, or of a sample of n, by their scaled features (N, d).

    rows (n,): which items; index (n, NEIGHBOURS): their neighbours, nearest first, without themselves.
    """

    def __init__(self, features: Floats):
        few, n = min(NEIGHBOURS, len(features) - 1), min(len(features), MOST_ITEMS)
        self.rows = np.sort(np.random.default_rng(0).choice(len(features), n, replace=False))
        with threadpool_limits(limits=1):
            finder = NearestNeighbors(n_neighbors=few + 1).fit(features)
            found = finder.kneighbors(features[self.rows], return_distance=False)
        # An item is not always the nearest to itself: others may coincide with it.
        last = np.argsort(found == self.rows[:, None], axis=1, kind="stable")
        self.index: NDArray[np.int64] = np.take_along_axis(found, last, axis=1)[:, :few]

    def agreement(self, labels: Ints) -> NDArray[np.float64]:
        """The share of each item's neighbours that have its label, (n,), for labels (N,)."""
        return np.asarray((labels[self.index] == labels[self.rows][:, None]).mean(axis=1))

    def torn(self, labels: Ints, stable: Ints) -> str | None:
        """The sentence that says by how much ``labels`` agree less with their neighbours than ``stable`` do, or None."""
        ours, theirs = self.agreement(labels), self.agreement(stable)
        error = float((ours - theirs).std() / np.sqrt(len(ours)))
        if float((ours - theirs).mean()) >= -ERRORS * error:
            return None
        return f"the answers tore items from their neighbours ({ours.mean():.3f} of them agree, {theirs.mean():.3f} in plain K-means, standard error {error:.3f})"
