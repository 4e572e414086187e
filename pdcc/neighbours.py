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
# Labels may agree with their neighbours less than the stable partition's do by this many standard errors.
ERRORS = 2.0


class Neighbourhood:
    """The nearest neighbours of every item, by its scaled features (N, d)."""

    def __init__(self, features: Floats):
        few = min(NEIGHBOURS, len(features) - 1)
        with threadpool_limits(limits=1):
            finder = NearestNeighbors(n_neighbors=few).fit(features)
            self.index: NDArray[np.int64] = finder.kneighbors(return_distance=False)  # without the items themselves

    def agreement(self, labels: Ints) -> NDArray[np.float64]:
        """The share of each item's neighbours that have its label, (N,)."""
        return np.asarray((labels[self.index] == labels[:, None]).mean(axis=1))

    def torn(self, labels: Ints, stable: Ints) -> str | None:
        """The sentence that says by how much ``labels`` agree less with their neighbours than ``stable`` do, or None."""
        ours, theirs = self.agreement(labels), self.agreement(stable)
        error = float((ours - theirs).std() / np.sqrt(len(ours)))
        if float((ours - theirs).mean()) >= -ERRORS * error:
            return None
        return f"the answers tore items from their neighbours ({ours.mean():.3f} of them agree, {theirs.mean():.3f} in plain K-means, standard error {error:.3f})"
