"""Cut one cluster in two and join two others, while that makes the answers likelier.

K-means and mixtures end in the optimum next to where they set out: two classes in one cluster and a third class in two is one that no
small step leaves. Answers see it at once: they say "different" within the one cluster, and "similar" between the two.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import betaln

from pdcc.arrays import Floats, Ints
from pdcc.auto.calibration import CUT
from pdcc.auto.mixture import mixture
from pdcc.auto.signals import answer_counts, evidence
from pdcc.baselines.kmeans import kmeans
from pdcc.data.pairs import PairData
from pdcc.exclusive import one_core

# Tries of the K-means that cuts a cluster.
TRIES = 3


def rearranged(labels: Ints, Z: Floats, space: Floats, n_clusters: int, pairs: PairData, seed: int) -> Ints:
    """Labels (N,) after moves of the clusters ``labels`` (N,) of items at ``Z`` (N, p), which are cut in ``space`` (N, q).

    A move is taken if it makes the answers likelier, their rates integrated out, by more than the logarithm of the number of moves
    there were to choose from. Mixtures give items their labels by features alone, so that no item's own answers speak for a move.
    """
    likely = evidence(labels, pairs)
    with one_core():
        for _ in range(n_clusters):
            starts = _moves(labels, space, n_clusters, pairs, seed)
            moves = [found for start in starts for found in _settled(start, Z, n_clusters, pairs, seed)]
            gains = [evidence(found, pairs) - likely for found in moves]
            if not moves or max(gains) <= np.log(len(moves)):
                break
            best = int(np.argmax(gains))
            labels, likely = moves[best], likely + gains[best]
    return labels


def _moves(labels: Ints, space: Floats, K: int, pairs: PairData, seed: int) -> Iterator[Ints]:
    """For each cluster that answers contradict most, labels (N,) with it cut in two and the two others joined that answers most say belong together."""
    similar, different = np.diagonal(answer_counts(labels, K, pairs), axis1=1, axis2=2)
    expected = (similar + different) * different.sum() / max(similar.sum() + different.sum(), 1.0)
    for cluster in np.argsort(expected - different, kind="stable")[:CUT]:
        rows = np.flatnonzero(labels == cluster)
        if len(rows) < 2:
            continue
        cut = labels.copy()
        cut[rows[kmeans(space[rows], 2, tries=TRIES, seed=seed) == 1]] = K
        said = answer_counts(cut, K + 1, pairs)
        a, b = np.triu_indices(K + 1, 1)
        other = (a != cluster) | (b != K)  # joining the two halves again is no move
        a, b = a[other], b[other]
        within = np.trace(said, axis1=1, axis2=2)[:, None] + said[:, a, b]
        across = np.triu(said).sum(axis=(1, 2))[:, None] - within
        joined = int((betaln(*(within + 1)) + betaln(*(across + 1))).argmax())
        cut[cut == b[joined]] = a[joined]
        cut[cut == K] = b[joined]
        yield cut


def _settled(start: Ints, Z: Floats, K: int, pairs: PairData, seed: int) -> list[Ints]:
    """Labels (N,) as they are, and as mixtures of either kind that set out from them make them, but for those that leave a cluster empty."""
    mixed = [mixture(Z, start, K, pairs, own_shapes=own, rng=np.random.default_rng(seed)) for own in (False, True)]
    return [start, *(found for found in mixed if len(np.unique(found)) == K)]
