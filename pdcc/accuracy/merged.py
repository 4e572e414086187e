"""Clusters that hold two classes, as answers divide them along the features, and classes that were cut into two clusters.

Where two classes share a cluster, fits to other answers make the same mistake, and no comparison of fits shows it. But the answers about
pairs within the cluster do: cut in two in the coordinates that answers point out, it is called similar within the parts and different across
them, also by answers that the cut was not made from. A cluster of one class is called similar alike in both.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binom, norm

from pdcc.arrays import Bools, Float64, Floats, Ints
from pdcc.baselines.kmeans import kmeans
from pdcc.data.degrees import nats, weighed
from pdcc.data.pairs import PairData
from pdcc.data.splits import folds as folds_of
from pdcc.exclusive import one_core
from pdcc.inference.rows import Items
from pdcc.select import numbers
from pdcc.select.blockmodel import block_counts
from pdcc.select.score import holm, similar_rates
from pdcc.select.starts import Partitioner

# A cluster is said to hold two classes below this p-value, adjusted for the number of clusters (at 2.4 standard errors,
# unadjusted, on made-up tables: 1 % of right clusters, three in four merged ones); folds of the answers that judge it.
DIVIDED, FOLDS = 0.05, 3
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


def mixed_clusters(scaled: Items, labels: Ints, pairs: PairData, n_clusters: int, seed: int) -> tuple[Mixed, ...]:
    """Clusters of ``labels`` (N,) that answers divide, by answers that the cut was not made from, adjusted for their number; scaled: (N, p).

    None where items are so many that only samples of them are looked at.
    """
    # If clusters hold two classes each, it takes so many directions to tell them apart.
    folds = folds_of(pairs, FOLDS, seed)
    if len(scaled) > numbers.SAMPLE or not folds:
        return ()
    way = Partitioner(scaled[:].flatten(1).cpu().numpy(), 2 * n_clusters, seed)
    with one_core():  # how many threads there are must decide nothing
        spaces = [way.embed(train) for train, _ in folds]
        gains = [
            np.concatenate([_gain(way, labels == k, space, *fold) for space, fold in zip(spaces, folds, strict=True)])
            for k in range(n_clusters)
        ]
        space, tests = way.embed(pairs), holm([_chance(gain) for gain in gains])
        found = [_parted(way, labels, k, space, pairs) for k, p in enumerate(tests) if p is not None and p < DIVIDED]
    return tuple(one for one in found if one.within.any() and one.across.any())


@dataclass(frozen=True)
class Cut:
    """Two clusters that may be one class. across: how often similar and different are said across the two, (2,); inside, apart: how often
    similar is said within them, and across all others, half an answer each way."""

    larger: int
    smaller: int
    across: Float64 = field(repr=False)
    inside: float
    apart: float

    def __str__(self) -> str:
        a, b = sorted((self.larger, self.smaller))
        rate, n = self.across[0] / self.across.sum(), int(self.across.sum())
        return f"Clusters {a} and {b} may be one class, or are often taken for each other: answers say similar of {rate:.0%} of the pairs across them ({n:,} answers), and of {self.apart:.0%} across others."

    @property
    def together(self) -> float:
        """How much of the smaller may be of the class of the larger."""
        share = (self.across[0] / self.across.sum() - self.apart) / max(self.inside - self.apart, 1e-9)
        return float(np.clip(share, 0.0, 1.0))


def cut_classes(labels: Ints, pairs: PairData, n_clusters: int) -> tuple[Cut, ...]:
    """Clusters of ``labels`` (N,) across which similar is said more often than across others, adjusted for the number of pairs of clusters,
    as if they were one rather than as across others, and not clearly less often than within them."""
    said, sizes = block_counts(labels, n_clusters, pairs), np.bincount(labels, minlength=n_clusters)
    a, b = np.triu_indices(n_clusters, 1)
    across, within = said[:, a, b], said[:, a, a] + said[:, b, b]
    n = across.sum(axis=0)
    apart = (across[0].sum() - across[0] + 0.5) / (n.sum() - n + 1.0)
    inside = (within[0] + 0.5) / (within.sum(axis=0) + 1.0)
    more = holm([float(p) for p in binom.sf(np.floor(across[0]) - 1, np.ceil(n), apart)])
    less = binom.cdf(np.floor(across[0]), np.ceil(n), inside)
    like_one = (across * np.log(np.stack([inside / apart, (1 - inside) / (1 - apart)]))).sum(axis=0) > 0
    found = []
    for k in np.flatnonzero(like_one & (inside > apart) & (less >= DIVIDED)):
        p = more[k]
        if p is not None and p < DIVIDED:
            larger, smaller = sorted((int(a[k]), int(b[k])), key=lambda cluster: -sizes[cluster])
            found.append(Cut(larger, smaller, across[:, k], float(inside[k]), float(apart[k])))
    return tuple(found)


def _chance(gain: Float64) -> float | None:
    """How likely nats (n,) as good as these are where the cut is of no use."""
    error = float(gain.std() / np.sqrt(len(gain))) if len(gain) >= FEWEST else 0.0
    return float(norm.sf(gain.mean() / error)) if error > 0 else None


def _gain(way: Partitioner, mine: Bools, space: Floats, train: PairData, test: PairData) -> Float64:
    """Nats that the cut made from ``train`` gains for each answer of ``test`` about two items of the cluster; 0 where it gains none there."""
    known, new = (part.subset(mine[part.i] & mine[part.j]) for part in (train, test))
    if not len(known) or not len(new) or mine.sum() < 2:
        return np.zeros(0)
    parts = _cut(way, mine, space)
    one, two = similar_rates(parts[known.i] == parts[known.j], known)
    if one <= two:
        return np.zeros(len(new))
    whole = similar_rates(np.ones(len(known), dtype=bool), known)[0]
    p = np.where(parts[new.i] == parts[new.j], one, two)
    return weighed(nats(np.full(len(new), whole), new) - nats(p, new), new)


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
    said = block_counts(parts, 2, own)
    return Mixed(k, len(own), np.trace(said, axis1=1, axis2=2), said[:, 0, 1], np.flatnonzero(parts))
