"""What is measured before anything is decided: whether answers are transitive, and k-NN label agreement."""

import numpy as np
from scipy.sparse import coo_array
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from pdcc.arrays import Float32, Float64, Ints
from pdcc.auto.calibration import AGREEMENT_ERRORS, FEWEST_TRIANGLES, MOST_BROKEN, MOST_NEIGHBOURHOODS, NEIGHBOURS
from pdcc.data.pairs import PairData


def transitive(pairs: PairData, *, pooled: bool = False) -> bool | None:
    """Whether answers are transitive, within each annotator or pooled: as if items were labelled and the labels compared.

    Counts, within each annotator, items j called similar to both i and k, where i and k were asked about too. If answers
    erred one by one, some of those i and k would be called different. None where such triangles are too few to tell.
    With ``pooled`` all answers count as one annotator's: whether annotators share their labels, mistakes included.
    """
    closed = broken = 0.0
    codes = np.zeros(len(pairs), np.int64) if pairs.annotator is None or pooled else pairs.annotator
    for annotator in np.unique(codes):
        mine = pairs.subset(codes == annotator)
        ends = np.concatenate([mine.i, mine.j]), np.concatenate([mine.j, mine.i])
        answer = np.tile(mine.similar, 2)
        shape = (pairs.n_items, pairs.n_items)
        same, other = (
            coo_array((np.ones(m.sum()), (ends[0][m], ends[1][m])), shape).tocsr() for m in (answer, ~answer)
        )
        paths = same @ same
        closed += paths.multiply(same).sum() / 2
        broken += paths.multiply(other).sum() / 2
    if closed + broken < FEWEST_TRIANGLES:
        return None
    return bool(broken <= MOST_BROKEN * (closed + broken))


class Neighbourhood:
    """The nearest neighbours of every item, or of a sample of n, by their scaled features (N, d).

    rows (n,): which items; index (n, NEIGHBOURS): their neighbours, nearest first, without themselves.
    """

    def __init__(self, features: Float32):
        few, n = min(NEIGHBOURS, len(features) - 1), min(len(features), MOST_NEIGHBOURHOODS)
        self.rows = np.sort(np.random.default_rng(0).choice(len(features), n, replace=False))
        with threadpool_limits(limits=1):
            finder = NearestNeighbors(n_neighbors=few + 1).fit(features)
            found = finder.kneighbors(features[self.rows], return_distance=False)
        # An item is not always the nearest to itself: others may coincide with it.
        last = np.argsort(found == self.rows[:, None], axis=1, kind="stable")
        self.index: Ints = np.take_along_axis(found, last, axis=1)[:, :few]

    def agreement(self, labels: Ints) -> Float64:
        """The share of each item's neighbours that have its label, (n,), for labels (N,)."""
        return np.asarray((labels[self.index] == labels[self.rows][:, None]).mean(axis=1))

    def falls_behind(self, labels: Ints, stable: Ints) -> str | None:
        """The sentence that says by how much ``labels`` agree less with their neighbours than ``stable`` do, or None.

        An annotator who answers by labels of their own, right or wrong, is followed by the likelihood into their mistakes, and
        their held-out answers applaud. A stable partition of the features keeps neighbours together; a wrong labelling does so less.
        """
        ours, theirs = self.agreement(labels), self.agreement(stable)
        error = float((ours - theirs).std() / np.sqrt(len(ours)))
        if float((ours - theirs).mean()) >= -AGREEMENT_ERRORS * error:
            return None
        return f"k-NN label agreement is {ours.mean():.3f}, {theirs.mean():.3f} in plain K-means (standard error {error:.3f})"
