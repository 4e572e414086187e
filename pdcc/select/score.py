"""Paired comparisons of answers that nothing was fitted to, with errors that allow for shared items and annotators."""

import numpy as np
from scipy.sparse import csr_array

from pdcc.arrays import Bools, Float64
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData


def standard_error(difference: Float64, data: PairData) -> float:
    """Standard error of the mean of per-answer differences (M,), which may depend on each other where answers share an item,
    or an annotator: the larger of two cluster-robust errors. An answer has two items, so those are dyadic."""
    centred = difference - difference.mean()
    alone = float((centred**2).sum())
    by_item = np.bincount(data.i, centred, data.n_items) + np.bincount(data.j, centred, data.n_items)
    found = [alone, float((by_item**2).sum()) - alone]
    if data.annotator is not None and data.n_annotators > 1:
        sums = np.bincount(data.annotator, centred)
        found.append(float((sums**2).sum()) * data.n_annotators / (data.n_annotators - 1))
    return float(np.sqrt(max(found)) / len(centred))


def contradictions(expected: Float64, data: PairData) -> tuple[float, float]:
    """How many triangles of answers have two "similar" and one "different", and how many would if answers with the
    probabilities ``expected`` (M,) of "similar" were independent. One label of every item in mind contradicts itself never.
    """
    found = []
    for same in (degree(data), expected):
        similar, different = (_matrix(part, data) for part in (same, 1 - same))
        found.append(float(((similar @ similar) * different).sum()))
    return found[0], found[1]


def _matrix(values: Float64, data: PairData) -> "csr_array[np.float64]":
    ends = np.r_[data.i, data.j], np.r_[data.j, data.i]
    return csr_array((np.r_[values, values], ends), shape=(data.n_items, data.n_items))


def similar_rates(together: Bools, data: PairData) -> list[float]:
    """How often answers say "similar" of pairs that are ``together`` (M,), and of the others. Half an answer each way
    keeps both off 0 and 1."""
    y, w = degree(data), counts(data)
    return [float(((w * y)[m].sum() + 0.5) / (w[m].sum() + 1.0)) for m in (together, ~together)]


def holm(p_values: list[float | None]) -> list[float | None]:
    """Holm-adjusted p-values; None stays None and does not count."""
    order = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    out: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, k) in enumerate(order):
        running = max(running, min(1.0, p * (len(order) - rank)))
        out[k] = running
    return out
