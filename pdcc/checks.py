"""One checker for every array that crosses the public boundary, and the one error they raise."""

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class PairDataError(ValueError):
    """Bad input, said so that a person can act: argument, expectation, what was found, first bad row, fix."""

    def __init__(self, argument: str, expected: str, found: str, fix: str, row: int | None = None):
        self._parts = (argument, expected, found, fix, row)
        where = "" if row is None else f" (first at row {row}, counted from 0)"
        super().__init__(f"{argument}: expected {expected}, found {found}{where}. {fix}")
        self.argument, self.row = argument, row

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts  # so that it survives the trip from a worker process


def as_array(name: str, value: Any, dtype: Any = None) -> NDArray[Any]:
    """``np.asarray`` with an error that names the argument."""
    try:
        return np.asarray(value, dtype=dtype)
    except ValueError as error:
        raise PairDataError(
            name, "rows of one length", f"a ragged list ({error})", "Give every row the same number of entries."
        ) from error


def first_row(bad: Any) -> int:
    return int(np.flatnonzero(bad)[0])


def check_features(X: Any, *, n_features: int | None = None, owner: str = "this model") -> Floats:
    """Features as a finite float32 array (N, d); ``n_features`` is the width an earlier fit of ``owner`` has fixed."""
    name = "X"
    if hasattr(X, "toarray"):
        # scikit-learn's checks look for TypeError and the words "sparse" and "dense" here.
        raise TypeError(
            f"{name}: expected a dense array of features, found a sparse matrix. Convert it with X.toarray()."
        )
    array = as_array(name, X)
    if array.ndim != 2:
        raise PairDataError(
            name,
            "a 2D array, one row an item",
            f"{array.ndim}D of shape {array.shape}. Reshape your data",
            "Use X.reshape(-1, 1) for one feature or X.reshape(1, -1) for one item.",
        )
    if np.iscomplexobj(array):
        raise PairDataError(
            name, "real numbers", "Complex data not supported", "Pass real and imaginary parts as separate columns."
        )
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            bad = [i for i, row in enumerate(array.tolist()) if any(not _is_number(v) for v in row)]
            message = PairDataError(
                name,
                "numbers",
                f"{array.dtype} values that are not ({error}; argument must be a string or a real number)",
                "Encode or drop the columns that are not numeric; if one names the items, say so: item_ids in Python, --id-column in the shell.",
                bad[0] if bad else None,
            )
            raise (TypeError(str(message)) if isinstance(error, TypeError) else message) from error
    if 0 in array.shape:
        raise PairDataError(
            name,
            "at least one item and one feature",
            f"shape {array.shape}: {array.shape[0]} sample(s) and {array.shape[1]} feature(s) (shape={array.shape}) while a minimum of 1 is required",
            "Check how the features were read.",
        )
    if n_features is not None and array.shape[1] != n_features:
        raise PairDataError(
            name,
            f"{n_features} features, as in fit",
            f"{array.shape[1]}: X has {array.shape[1]} features, but {owner} is expecting {n_features} features as input",
            "Prepare new items exactly as the ones fitted on.",
        )
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(array, dtype=np.float32)
    finite = np.isfinite(out).all(axis=1)
    if not finite.all():
        row = first_row(~finite)
        kind = "NaN" if np.isnan(out[row]).any() else "inf (or beyond float32)"
        raise PairDataError(
            name,
            "finite numbers",
            f"{kind} in {int((~finite).sum())} row(s)",
            "Impute or drop those items (and the pairs that name them).",
            row,
        )
    return out


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def check_similar(similar: ArrayLike) -> NDArray[np.bool_]:
    """Answers as bool (M,): bool, {0, 1} or {-1, +1}, and both kinds must occur."""
    array = as_array("similar", similar)
    how = "bool, {0, 1} or {-1, +1}"
    if array.ndim != 1:
        raise PairDataError(
            "similar",
            f"one answer a pair, a 1D array of {how}",
            f"an array of shape {array.shape}",
            "Pass similar with shape (M,).",
        )
    if array.size == 0:
        raise PairDataError("similar", "at least one answer", "none", "Check how the pairs were read.")
    if array.dtype == object:
        array = _plain(array, "similar", how)
    if array.dtype == bool:
        out = array.copy()  # tables hand out read-only columns, which torch warns about
    elif np.issubdtype(array.dtype, np.number) and not np.iscomplexobj(array):
        if np.isin(array, (0, 1)).all():
            out = array == 1
        elif np.isin(array, (-1, 1)).all():
            out = array == 1
        else:
            legal = (0, 1) if (array == 0).any() else (-1, 1)
            row = first_row(~np.isin(array, legal))
            raise PairDataError(
                "similar",
                f"only {how}",
                f"the value {array[row]!r}",
                "Drop unsure answers, and map scores to 0 and 1 by a threshold of your choice.",
                row,
            )
    else:
        raise PairDataError(
            "similar", how, f"values of type {array.dtype}, such as {array[0]!r}", "Map the answers to 0 and 1.", 0
        )
    if out.all() or not out.any():
        kind = "similar" if out.all() else "different"
        raise PairDataError(
            "similar",
            "both kinds of answer",
            f"only {kind!r} ({len(out)} pairs)",
            "One kind of answer says nothing about clusters: add pairs of the other kind.",
        )
    return out


def _plain(array: NDArray[Any], name: str, how: str) -> NDArray[Any]:
    """An object array as the bool or number array it stands for."""
    bad = [row for row, v in enumerate(array.tolist()) if not isinstance(v, numbers.Real | np.bool_)]
    if bad:
        raise PairDataError(name, how, f"{array[bad[0]]!r}", "Map the answers to 0 and 1.", bad[0])
    return array.astype(np.float64)


def check_pairs(pairs: ArrayLike, n_items: int) -> Ints:
    """Row numbers as int64 (M, 2), each in [0, n_items)."""
    array = as_array("pairs", pairs)
    if array.ndim != 2 or array.shape[1] != 2:
        raise PairDataError(
            "pairs",
            "shape (M, 2), two item row numbers a pair",
            f"shape {array.shape}",
            "Stack the two endpoints: np.column_stack([i, j]).",
        )
    if len(array) == 0:
        raise PairDataError("pairs", "at least one pair", "none", "Check how the pairs were read.")
    if not np.issubdtype(array.dtype, np.integer):
        raise PairDataError(
            "pairs",
            "integers, row numbers of X",
            f"{array.dtype}, such as {array[0].tolist()}",
            "Cast whole row numbers with .astype(int); for names of items use item_ids (Python) or --id-column (shell).",
            0,
        )
    bad = ((array < 0) | (array >= n_items)).any(axis=1)
    if bad.any():
        row = first_row(bad)
        raise PairDataError(
            "pairs",
            f"row numbers from 0 to {n_items - 1} (X has {n_items} rows)",
            f"{array[row].tolist()}",
            "Number items from 0, or name them (item_ids in Python, --id-column in the shell).",
            row,
        )
    return np.asarray(array, dtype=np.int64)


def check_n_clusters(n_clusters: Any, n_items: int) -> int:
    """K, an integer with 2 <= K <= N."""
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, int | np.integer):
        raise TypeError(
            f"n_clusters: expected an integer, found {n_clusters!r} ({type(n_clusters).__name__}). Pass n_clusters=int(...)."
        )
    if n_clusters < 2:
        raise PairDataError(
            "n_clusters", "at least 2", str(n_clusters), "One cluster needs no clustering; set n_clusters to 2 or more."
        )
    if n_clusters > n_items:
        raise PairDataError(
            "n_clusters",
            f"at most the number of items, n_samples={n_items}",
            str(n_clusters),
            "Lower n_clusters or add items.",
        )
    return int(n_clusters)
