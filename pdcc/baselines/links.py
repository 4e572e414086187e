"""Answers read as must-links and cannot-links: their closure, what contradicts it, and what a labelling breaks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from pdcc.arrays import Ints
from pdcc.data.pairs import PairData


@dataclass(frozen=True)
class Closure:
    """Items joined by chains of "similar" answers. component: (N,) numbers from 0. size: (C,).

    contradictions: rows, in the pairs, of "different" answers within a component; a pair answered both ways is one.
    """

    component: Ints
    size: Ints
    contradictions: Ints


def close(data: PairData) -> Closure:
    """The transitive closure of the "similar" answers."""
    i, j = data.i[data.similar], data.j[data.similar]
    joined = coo_array((np.ones(len(i)), (i, j)), (data.n_items, data.n_items))
    component = connected_components(joined, directed=False)[1].astype(np.int64)
    inside = ~data.similar & (component[data.i] == component[data.j])
    return Closure(component, np.bincount(component), np.flatnonzero(inside))


def members(group: Ints, n_groups: int) -> "csr_array[np.float64]":
    """The 0/1 matrix (G, N) whose product with (N, p) sums rows by ``group`` (N,)."""
    n = len(group)
    return csr_array(coo_array((np.ones(n), (group, np.arange(n))), (n_groups, n)))


def signed_links(group: Ints, n_groups: int, data: PairData) -> "csr_array[np.float64]":
    """Answers across groups, (G, G) symmetric: how many "different" less how many "similar".

    Row g times a one-hot labelling is, up to a constant, the number of answers that g breaks in each cluster.
    """
    a, b = group[data.i], group[data.j]
    across = a != b
    a, b, sign = a[across], b[across], np.where(data.similar[across], -1.0, 1.0)
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    links = csr_array(coo_array((np.tile(sign, 2), ends), (n_groups, n_groups)))
    links.sum_duplicates()
    links.eliminate_zeros()
    return links


def broken(labels: NDArray[np.integer], data: PairData) -> dict[str, int]:
    """How many answers labels (N,) break: "must_link" (called similar, put apart) and "cannot_link" (the reverse)."""
    together = labels[data.i] == labels[data.j]
    return {
        "must_link": int((data.similar & ~together).sum()),
        "cannot_link": int((~data.similar & together).sum()),
    }
