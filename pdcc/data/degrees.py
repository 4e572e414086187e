"""Answers by degrees: how far "similar" was said, how much an answer counts, and what an answer costs at a probability."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pdcc.arrays import Bools, Float32, Float64, as_array, first_row
from pdcc.errors import PairDataError


class Judged(Protocol):
    """Answers: similar (M,) bool; soft (M,) probabilities or None; weight (M,) or None."""

    @property
    def similar(self) -> Bools: ...

    @property
    def soft(self) -> Float32 | None: ...

    @property
    def weight(self) -> Float32 | None: ...


def degree(data: Judged) -> Float64:
    """How far each answer says "similar", (M,): 0 or 1, or a probability where answers are soft."""
    return np.asarray(data.similar if data.soft is None else data.soft, dtype=np.float64)


def counts(data: Judged) -> Float64:
    """How much each answer counts, (M,)."""
    return np.ones(len(data.similar)) if data.weight is None else data.weight.astype(np.float64)


def nats(p: Float64, data: Judged) -> Float64:
    """-y log p - (1 - y) log(1 - p) of each answer, (M,), at the probabilities p (M,) of "similar"."""
    if data.soft is None:
        return np.asarray(-np.where(data.similar, np.log(p), np.log1p(-p)))
    y = degree(data)
    return np.asarray(-(y * np.log(p) + (1 - y) * np.log1p(-p)))


def weighed(values: Float64, data: Judged) -> Float64:
    """Values of answers (M,), or of several fits (R, M), times the answers' weights over their mean: a mean of these is a weighted mean."""
    return values if data.weight is None else np.asarray(values * (counts(data) / counts(data).mean()))


def check_soft(similar: ArrayLike) -> Float32:
    """Probabilities that a pair is similar, (M,), from 0 to 1."""
    array = _numbers("similar", similar, "with soft=True, probabilities from 0 to 1")
    if array.ndim != 1 or array.size == 0:
        raise PairDataError(
            "similar", "one answer per pair, a 1D array", f"shape {array.shape}", "Pass similar with shape (M,)."
        )
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        row = first_row(bad)
        raise PairDataError(
            "similar",
            "with soft=True, probabilities from 0 to 1",
            f"{array[row]:g}",
            "Map grades to that range, such as 1 to 4 by (grade - 1) / 3, and drop what was not answered.",
            row,
        )
    return array.astype(np.float32)


def check_weights(weights: ArrayLike, n_pairs: int) -> Float32:
    """How much each of the answers counts, (M,): finite, at least 0, and not all 0."""
    array = _numbers("weights", weights, "numbers of at least 0")
    if array.shape != (n_pairs,):
        raise PairDataError(
            "weights",
            f"one weight for each of the {n_pairs} pairs",
            f"shape {array.shape}",
            "Pass weights with shape (M,).",
        )
    bad = ~(np.isfinite(array) & (array >= 0) & (array <= np.finfo(np.float32).max))
    if bad.any():
        row = first_row(bad)
        raise PairDataError(
            "weights",
            "finite numbers of at least 0",
            f"{array[row]:g}",
            "A weight says how often an answer counts: 0 leaves it out, 1 is the rule.",
            row,
        )
    narrow = array.astype(np.float32)
    if not narrow.any():
        raise PairDataError("weights", "at least one above 0", "none", "Give the answers that count a weight above 0.")
    return narrow


def _numbers(name: str, value: ArrayLike, how: str) -> Float64:
    array = as_array(name, value)
    try:
        if array.dtype.kind not in "biufO" or any(isinstance(v, str | bytes) for v in array.ravel().tolist()):
            raise ValueError(f"values of type {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PairDataError(name, how, str(error), "Pass numbers.") from error
