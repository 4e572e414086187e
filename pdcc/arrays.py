"""Types of arrays and seeds: one name, one precision; and how anything becomes an array."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import sparray, spmatrix

from pdcc.errors import PairDataError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]  # of either precision
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# What a ``random_state`` may be: a seed, a numpy generator, or None for a fresh one.
RandomState = int | np.random.RandomState | np.random.Generator | None


class RowsOfItems(Protocol):
    """Anything with a shape (N, ...) that hands out rows by slices and by increasing row numbers: what is in a file, say."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


# Features (N, d) as they are handed in: arrays, tables, sparse matrices, and what hands out rows.
Features = ArrayLike | sparray | spmatrix | RowsOfItems


def as_array(name: str, value: Any, dtype: Any = None, *, dates: bool = False) -> NDArray[Any]:
    """``np.asarray`` with an error that names the argument; what an array would not show (a mask, a gradient) is refused.

    So are dates, unless ``dates``. A tensor that requires a gradient is taken as the numbers it holds.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        mask = np.atleast_1d(np.ma.getmaskarray(value))
        rows = mask.reshape(len(mask), -1).any(axis=1)
        raise PairDataError(
            name, "numbers without a mask", "masked entries", "Impute or drop them; .filled(...) does.", first_row(rows)
        )
    try:
        # A torch tensor may be on another device.
        array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value, dtype=dtype)
    except OverflowError as error:
        raise PairDataError(name, "numbers that fit into 64 bits", "larger ones", "Use other units.") from error
    except ValueError as error:
        raise PairDataError(
            name, "rows of one length", f"a ragged list ({error})", "Give every row the same number of entries."
        ) from error
    except Exception as error:  # a tensor without data, of a kind numpy lacks, or what a user's object raises
        what = f"a {type(value).__name__} that cannot be made one ({error})"
        raise PairDataError(name, "an array", what, "Pass a dense array of numbers.") from error
    if array.dtype.kind in "mM" and not dates:
        raise PairDataError(
            name,
            "numbers",
            f"dates or durations ({array.dtype})",
            "Turn them into numbers, such as days since the first.",
        )
    return array


def first_row(bad: Any) -> int:
    """The number of the first row that is bad."""
    return int(np.flatnonzero(bad)[0])
