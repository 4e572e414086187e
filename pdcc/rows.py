"""Items that stay where they are: a mapped file, or anything with a shape and row indexing, read some rows at a time."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pdcc.arrays import Floats, Ints
from pdcc.errors import PairDataError

# Features that take more bytes than this in float32 are never copied as a whole: rows are read, checked and scaled some at a time.
LARGEST_IN_MEMORY = 2**30
ROWS_AT_ONCE = 8192
# What is learned of all items before training (scalings, components) is learned from at most so many, drawn at random, and from fewer
# where they have many columns: so many numbers take half a gigabyte in float64. A quartile of a column is then off by about .2 % of the items.
SAMPLED_ITEMS, SAMPLED_NUMBERS = 100_000, 2**26

# What numpy takes as a whole.
ARRAYS = (np.ndarray, pd.DataFrame, pd.Series, torch.Tensor)


def is_large(shape: tuple[int, ...]) -> bool:
    """Whether features of this shape, (N, ...), are too large to be copied as a whole."""
    return 4 * math.prod(shape) > LARGEST_IN_MEMORY


def reads_by_rows(X: Any) -> bool:
    """Whether X is no array or table, but has a shape and hands out rows: what is in a file that numpy does not map, say."""
    shape = getattr(X, "shape", None)
    if isinstance(X, ARRAYS) or not hasattr(type(X), "__getitem__") or not isinstance(shape, tuple) or len(shape) < 2:
        return False
    return is_large(shape) or not hasattr(X, "__array__")


class FeatureRows:
    """N items of a ``source`` that has ``shape`` (N, ...) and takes slices and increasing row numbers: ``source[rows]`` is (n, ...).

    ``rows[...]`` takes a row number, a slice, or row numbers (n,) in any order, and is an array of the precision ``dtype``.

    Examples:
        >>> import numpy as np
        >>> from pdcc.rows import FeatureRows
        >>> rows = FeatureRows(np.arange(6).reshape(3, 2))
        >>> rows[np.array([2, 0, 2])].tolist()
        [[4.0, 5.0], [0.0, 1.0], [4.0, 5.0]]
    """

    def __init__(self, source: Any):
        self.source = source
        self.shape: tuple[int, ...] = tuple(int(n) for n in source.shape)
        kind = getattr(source, "dtype", None)
        # As h5py and zarr have it, or else what the first row is made of.
        self.given: np.dtype[Any] = np.dtype(kind) if _is_dtype(kind) else np.asarray(source[0:1]).dtype
        self.dtype = precision(self.given)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """How many dimensions the array of all items has."""
        return len(self.shape)

    def __getitem__(self, rows: int | slice | Ints) -> Floats:
        if isinstance(rows, int | np.integer):
            return np.asarray(self._read(slice(int(rows), int(rows) + 1), 1)[0])
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            if step != 1:
                return self[np.arange(begin, end, step)]
            return self._read(slice(begin, max(begin, end)), max(0, end - begin))
        # Neighbours in a file lie on the same page; and files often want rows that increase.
        sorted_rows, where = np.unique(np.asarray(rows, dtype=np.int64), return_inverse=True)
        found = self._read(sorted_rows, len(sorted_rows))
        return found if len(where) == len(sorted_rows) and (np.diff(where) > 0).all() else found[where]

    def blocks(self, size: int = ROWS_AT_ONCE) -> Iterator[Floats]:
        """All items, (at most ``size``, ...) at a time."""
        for begin in range(0, len(self), size):
            yield self[begin : begin + size]

    def _read(self, rows: slice | Ints, n: int) -> Floats:
        try:
            part = np.asarray(self.source[rows])
        except (TypeError, IndexError, ValueError) as error:
            what = f"a {type(self.source).__name__} that does not ({error})"
            fix = "Index it by slices and by arrays of increasing row numbers, or save it with np.save and map it."
            raise PairDataError("X", "an object that hands out rows", what, fix) from error
        if part.shape != (n, *self.shape[1:]):
            raise PairDataError(
                "X", f"{n} rows of shape {self.shape[1:]} when so many are asked for", f"shape {part.shape}", "Check what its row indexing returns.",
            )  # fmt: skip
        with np.errstate(over="ignore"):
            return np.asarray(part, dtype=self.dtype)


def _is_dtype(kind: Any) -> bool:
    try:
        return kind is not None and np.dtype(kind) is not None
    except TypeError:
        return False


def precision(kind: np.dtype[Any]) -> np.dtype[Any]:
    """float64 until centred, for numbers that have its precision: float32 may not tell 1e6 from 1e6 + .01."""
    narrow = kind in (np.float32, np.float16, bool) or (kind.kind in "iu" and kind.itemsize < 3)
    return np.dtype(np.float32 if narrow else np.float64)


def blocks_of(X: "Floats | FeatureRows | NDArray[Any]", size: int = ROWS_AT_ONCE) -> Iterator[Floats]:
    """Items X (N, ...), (at most ``size``, ...) at a time."""
    for begin in range(0, len(X), size):
        yield X[begin : begin + size]


def sample_size(shape: tuple[int, ...], *, in_memory: bool = False) -> int:
    """How many items of features of this shape, (N, ...), are looked at where all would be too many; more of those in memory anyway."""
    return SAMPLED_ITEMS if in_memory else min(SAMPLED_ITEMS, max(1000, SAMPLED_NUMBERS // math.prod(shape[1:])))


def some_rows(X: Floats | FeatureRows, most: int, seed: int) -> Floats:
    """All of X (N, ...) where there are at most ``most`` items, else so many drawn at random, in their order."""
    return X[:] if len(X) <= most else X[drawn_rows(len(X), most, seed)]


def drawn_rows(n: int, most: int, seed: int) -> Ints:
    """``most`` of n row numbers, drawn at random, increasing."""
    return np.asarray(np.sort(np.random.default_rng(seed).choice(n, most, replace=False)), dtype=np.int64)


def whole(X: "Floats | FeatureRows", what: str) -> Floats:
    """X (N, ...) in memory; raises ``PairDataError`` where it is too large for ``what``, which would copy it."""
    if isinstance(X, FeatureRows):
        raise PairDataError(
            "X",
            f"features that take at most {LARGEST_IN_MEMORY / 1e9:.3g} GB in float32, since {what} copies them",
            f"shape {X.shape}",
            "Keep fewer items or columns; VolMaxDCC and VanillaDCC fit and predict larger ones.",
        )
    return X
