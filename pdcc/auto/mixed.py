"""Clusters that hold two classes: answers divide them along the features.

Where two classes share a cluster, fits to other answers make the same mistake, and no comparison of fits shows it. But the answers about
pairs within the cluster do: cut in two in the coordinates that answers point out, it is called similar within the parts and different across
them, also by answers that the cut was not made from. A cluster of one class is called similar alike in both.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from pdcc.arrays import Bools, Float64, Floats, Ints
from pdcc.auto.calibration import DIVIDED, FOLDS
from pdcc.auto.initialise import Partitioner
from pdcc.auto.large import Scaled, enough, some_answers
from pdcc.auto.signals import answer_counts, constant_nll, holm, said_similar, standard_error, two_rate_nll
from pdcc.data.pairs import PairData
from pdcc.data.splits import folds as folds_of
from pdcc.exclusive import one_core
from pdcc.partition.kmeans import kmeans

# Tries of the K-means that cuts a cluster; clusters with fewer answers within them are not judged.
TRIES, FEWEST = 3, 10


@dataclass(frozen=True)
class Mixed:
    """A cluster that answers divide: of how many answers about pairs within it, and how often similar is said within its parts and across
    them: counts of similar and different, (2,) each. rows: the items of the smaller part."""

    cluster: int
    n_answers: int
    within: Float64 = field(repr=False)
    across: Float64 = field(repr=False)
    rows: Ints = field(repr=False)

    def __str__(self) -> str:
        one, two = (said[0] / said.sum() for said in (self.within, self.across))
        return f"Cluster {self.cluster} may hold two classes or more: cut in two along the features, answers say similar of {one:.0%} of the pairs within its parts, and of {two:.0%} across them ({self.n_answers:,} answers)."


def mixed_clusters(scaled: Scaled, labels: Ints, pairs: PairData, n_clusters: int, seed: int) -> tuple[Mixed, ...]:
    """Clusters of ``labels`` (N,) that answers divide, by answers that the cut was not made from, adjusted for their number; scaled: (N, p).

    None where items are so many that only samples of them are looked at.
    """
    # If clusters hold two classes each, it takes so many directions to tell them apart.
    way = Partitioner(scaled, 2 * n_clusters, seed)
    pairs = some_answers(pairs, way.seed)
    folds = folds_of(pairs, FOLDS, way.seed)
    if len(way.X) > enough(way.X) or not folds:
        return ()
    with one_core():  # how many threads there are must decide nothing
        spaces = [way.embed(train) for train, _ in folds]
        gains = [
            np.concatenate([_gain(way, labels == k, space, *fold) for space, fold in zip(spaces, folds, strict=True)])
            for k in range(n_clusters)
        ]
        space, tests = way.embed(pairs), holm([_chance(gain) for gain in gains])
        found = [_parted(way, labels, k, space, pairs) for k, p in enumerate(tests) if p is not None and p < DIVIDED]
    return tuple(one for one in found if one.within.any() and one.across.any())


def _chance(gain: Float64) -> float | None:
    """How likely nats (n,) as good as these are where the cut is of no use."""
    error = standard_error(gain, None) if len(gain) >= FEWEST else 0.0
    return float(norm.sf(gain.mean() / error)) if error > 0 else None


def _gain(way: Partitioner, mine: Bools, space: Floats, train: PairData, test: PairData) -> Float64:
    """Nats that the cut made from ``train`` gains for each answer of ``test`` about two items of the cluster; 0 where it gains none there."""
    known, new = (part.subset(mine[part.i] & mine[part.j]) for part in (train, test))
    if not len(known) or not len(new) or mine.sum() < 2:
        return np.zeros(0)
    parts = _cut(way, mine, space)
    one, two = said_similar(parts[known.i] == parts[known.j], known)
    return constant_nll(known, new) - two_rate_nll(parts, known, new) if one > two else np.zeros(len(new))


def _cut(way: Partitioner, mine: Bools, space: Floats) -> Ints:
    """(N,): 1 for items of the smaller part, 0 for all others."""
    parts = np.zeros(len(mine), dtype=np.int64)
    half = kmeans(space[mine], 2, tries=TRIES, seed=way.seed)
    parts[mine] = half == np.bincount(half, minlength=2).argmin()
    return parts


def _parted(way: Partitioner, labels: Ints, k: int, space: Floats, pairs: PairData) -> Mixed:
    mine = labels == k
    own = pairs.subset(mine[pairs.i] & mine[pairs.j])
    parts = _cut(way, mine, space)
    said = answer_counts(parts, 2, own)
    return Mixed(k, len(own), np.trace(said, axis1=1, axis2=2), said[:, 0, 1], np.flatnonzero(parts))
