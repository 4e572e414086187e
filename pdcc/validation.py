"""One checker for each kind of argument that crosses the public boundary."""

import math
import numbers
import sys
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from pdcc.arrays import Bools, Float64, Floats, Ints, RandomState, as_array, first_row
from pdcc.dense import densified
from pdcc.errors import PairDataError
from pdcc.frames import check_frame
from pdcc.rows import FeatureRows, blocks_of, is_large, precision, reads_by_rows

# Restarts and K-means tries add to the seed, and numpy takes 32 bits.
LARGEST_SEED = 2**31 - 1
# How far memberships may be off the simplex: float32 softmax output is.
OFF_SIMPLEX = 1e-4


def check_features(
    X: Any, *, item_shape: tuple[int, ...] | None = None, owner: str = "this model", any_shape: bool = False
) -> Floats | FeatureRows:
    """Features as a finite array (N, d), or, with ``any_shape``, (N, ...): float64 where X has its precision, else float32.

    A sparse matrix is made dense, in float32. What is too large to be copied (``pdcc.rows``) stays where it is, as ``FeatureRows``.

    ``item_shape`` is the shape of an item, (d,) for a row, that an earlier fit of ``owner`` has fixed.
    """
    name = "X"
    if issparse(X):
        X = densified(X)
    if isinstance(X, pd.DataFrame):
        check_frame(X)
    array = X if isinstance(X, FeatureRows) else FeatureRows(X) if reads_by_rows(X) else as_array(name, X)
    kind = array.given if isinstance(array, FeatureRows) else array.dtype
    if array.ndim != 2 and not (any_shape and array.ndim > 2):
        raise PairDataError(
            name,
            "a 2D array, one row per item",
            f"{array.ndim}D of shape {array.shape}. Reshape your data",
            "Use X.reshape(-1, 1) for one feature or X.reshape(1, -1) for one item.",
        )
    if kind.kind == "c":
        raise PairDataError(
            name, "real numbers", "Complex data not supported", "Pass real and imaginary parts as separate columns."
        )
    if not (np.issubdtype(kind, np.number) or kind.kind == "b"):
        if isinstance(array, FeatureRows):
            raise PairDataError(name, "numbers", f"values of type {kind}", "Encode or drop what is not numeric.")
        array = _as_numbers(array, name)
    if 0 in array.shape:
        raise PairDataError(
            name,
            "at least one item and one feature",
            f"shape {array.shape}: {array.shape[0]} sample(s) and {array.shape[1]} feature(s) (shape={array.shape}) while a minimum of 1 is required",
            "Check how the features were read.",
        )
    if item_shape is not None and array.shape[1:] != item_shape:
        wanted, given = (shape[0] if len(shape) == 1 else shape for shape in (item_shape, array.shape[1:]))
        raise PairDataError(
            name,
            f"{wanted} features, as in fit",
            f"{given}: X has {given} features, but {owner} is expecting {wanted} features as input",
            "Prepare new items exactly as the ones fitted on.",
        )
    if isinstance(X, FeatureRows):  # nobody but this function makes them: they were checked
        return X
    out: Floats | FeatureRows
    if isinstance(array, FeatureRows):
        out = array if is_large(array.shape) else array[:]
    elif is_large(array.shape):
        out = FeatureRows(array)
    else:
        with np.errstate(over="ignore"):
            out = np.ascontiguousarray(array, dtype=precision(array.dtype))
    _check_finite(out, name)
    return out


def _check_finite(X: Floats | FeatureRows, name: str) -> None:
    """Raise ``PairDataError`` where a number of X (N, ...) is not finite; some rows at a time, so that no copy of X is made."""
    finite = np.concatenate([np.isfinite(part.reshape(len(part), -1)).all(axis=1) for part in blocks_of(X)])
    if not finite.all():
        row = first_row(~finite)
        kind = "NaN" if np.isnan(X[row]).any() else "inf"
        raise PairDataError(
            name,
            "finite numbers",
            f"{kind} in {int((~finite).sum())} row(s)",
            "Impute or drop those items (and the pairs that name them).",
            row,
        )


def _as_numbers(array: NDArray[Any], name: str) -> Float64:
    """An object array as the numbers it holds; text is refused, also where it spells a number."""
    flat = array.reshape(len(array), -1).tolist()
    bad = [row for row, values in enumerate(flat) if not all(isinstance(v, numbers.Real | np.bool_) for v in values)]
    if bad:
        odd = next(v for v in flat[bad[0]] if not isinstance(v, numbers.Real | np.bool_))
        error = PairDataError(
            name,
            "numbers",
            f"{odd!r} of type {type(odd).__name__} (argument must be no string but a number)",
            "Encode or drop the columns that are not numeric; if one names the items, make it the index of X (Python) or say so with --id-column (shell).",
            bad[0],
        )
        # scikit-learn's checks want TypeError for what cannot be a number at all.
        raise error if isinstance(odd, str) else TypeError(str(error))
    return _to_float(array, name)


def _to_float(array: NDArray[Any], name: str) -> Float64:
    """An object array of numbers in float64."""
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise PairDataError(name, "numbers that float64 can hold", "larger ones", "Use other units.") from error


def check_similar(similar: ArrayLike) -> Bools:
    """Answers as bool (M,): bool, {0, 1} or {-1, +1}."""
    array = as_array("similar", similar)
    how = "bool, {0, 1} or {-1, +1}"
    if array.ndim != 1:
        raise PairDataError(
            "similar",
            f"one answer per pair, a 1D array of {how}",
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
                "Drop unsure answers; probabilities from 0 to 1 are taken with soft=True.",
                row,
            )
    else:
        raise PairDataError(
            "similar", how, f"values of type {array.dtype}, such as {array[0]!r}", "Map the answers to 0 and 1.", 0
        )
    return out


def check_both_kinds(similar: Bools) -> None:
    """Raise ``PairDataError`` unless answers (M,) of both kinds occur, as a fit needs them."""
    if similar.all() or not similar.any():
        kind = "similar" if similar.all() else "different"
        raise PairDataError(
            "similar",
            "both kinds of answer",
            f"only {kind!r} ({len(similar)} pairs)",
            "One kind of answer says nothing about clusters: add pairs of the other kind.",
        )


def _plain(array: NDArray[Any], name: str, how: str) -> NDArray[Any]:
    """An object array as the bool or number array it stands for."""
    bad = [row for row, v in enumerate(array.tolist()) if not isinstance(v, numbers.Real | np.bool_)]
    if bad:
        raise PairDataError(name, how, f"{array[bad[0]]!r}", "Map the answers to 0 and 1.", bad[0])
    return _to_float(array, name)


def check_pairs(pairs: ArrayLike, n_items: int) -> Ints:
    """Row numbers as int64 (M, 2), each in [0, n_items)."""
    array = as_array("pairs", pairs)
    if array.ndim != 2 or array.shape[1] != 2:
        raise PairDataError(
            "pairs",
            "shape (M, 2), two item row numbers per pair",
            f"shape {array.shape}",
            "Stack the two endpoints: np.column_stack([i, j]).",
        )
    if len(array) == 0:
        raise PairDataError("pairs", "at least one pair", "none", "Check how the pairs were read.")
    if array.dtype == object and all(type(v) is int or isinstance(v, np.integer) for v in array.ravel().tolist()):
        array = as_array("pairs", array, dtype=np.int64)  # as pandas' own whole numbers come
    if not np.issubdtype(array.dtype, np.integer):
        raise PairDataError(
            "pairs",
            "integers, row numbers of X",
            f"{array.dtype}, such as {array[0].tolist()}",
            "Cast whole row numbers with .astype(int); for names of items pass X as a DataFrame with them as its index (Python), or --id-column (shell).",
            0,
        )
    bad = ((array < 0) | (array >= n_items)).any(axis=1)
    if bad.any():
        row = first_row(bad)
        raise PairDataError(
            "pairs",
            f"row numbers from 0 to {n_items - 1} (X has {n_items} rows)",
            f"{array[row].tolist()}",
            "Number items from 0, or name them (by the index of a DataFrame X in Python, --id-column in the shell).",
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


def check_one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``allowed``."""
    if not any(value is a or (isinstance(value, str) and value == a) for a in allowed):
        raise ValueError(
            f"{name}: expected one of {', '.join(map(repr, allowed))}, found {value!r}. Pass one of these."
        )


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, auto: bool = False, open_low: bool = False
) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``value`` is a number from ``low`` to below ``high``, or "auto" where allowed."""
    if auto and isinstance(value, str) and value == "auto":
        return
    expected = (
        f"a number {'above' if open_low else 'of at least'} {low:g}"
        + (f" and below {high:g}" if high < math.inf else "")
        + (' or "auto"' if auto else "")
    )
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected {expected}, found {value!r} ({type(value).__name__}). Pass a number.")
    try:
        number = float(value)
    except OverflowError:  # a whole number that no float can hold
        number = math.inf
    if not math.isfinite(number) or number < low or number >= high or (open_low and number == low):
        raise ValueError(f"{name}: expected {expected}, found {value!r}. Choose a value in that range.")


def check_count(name: str, value: Any, low: int = 1) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``value`` is a whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name}: expected a whole number of at least {low}, found {value!r} ({type(value).__name__}). Pass an int."
        )
    if int(value) < low:
        raise ValueError(f"{name}: expected a whole number of at least {low}, found {value!r}. Raise it.")
    if int(value) > LARGEST_SEED:  # nothing is counted so far, and 64 bits would not hold all that Python can
        raise ValueError(f"{name}: expected a whole number of at most {LARGEST_SEED}, found a larger one. Lower it.")


def check_device(device: Any) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU; anything else must be a device torch can use here."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu', 'cuda' or a torch device, found {device!r}. Pass one of these."
        ) from error
    if found.type not in ("cpu", "cuda") or (found.type == "cuda" and not torch.cuda.is_available()):
        lacking = "but no CUDA" if found.type == "cuda" else "which is neither the CPU nor CUDA"
        raise ValueError(
            f"device: expected a device this machine has, found {device!r} {lacking}. Pass device='cpu' or 'auto'."
        )
    # By its number: "cuda" means another one in another thread.
    return torch.device("cuda", torch.cuda.current_device()) if found.type == "cuda" and found.index is None else found


def check_random_state(random_state: Any) -> None:
    """Raise ``ValueError`` unless it is None, a whole number from 0 to 2^31 - 1 or a numpy random generator."""
    if random_state is None or isinstance(random_state, np.random.RandomState | np.random.Generator):
        return
    whole = isinstance(random_state, int | np.integer) and random_state is not True and random_state is not False
    if not whole or not 0 <= int(random_state) <= LARGEST_SEED:
        raise ValueError(
            f"random_state: expected None, a whole number from 0 to {LARGEST_SEED} or a numpy random generator, found {random_state!r}. Pass an int."
        )


def seed_of(random_state: RandomState) -> int:
    """One integer seed from a checked ``random_state``; None gives a fresh one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0] & LARGEST_SEED)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(LARGEST_SEED))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    return int(random_state)


def show_progress(progress: bool | None) -> bool:
    """None means: at a terminal."""
    return sys.stderr.isatty() if progress is None else bool(progress)


def check_memberships(memberships: ArrayLike) -> Float64:
    """FeatureRows (N, K) on the simplex as float64: clipped at 0 and divided by their sum, so float32 softmax output is welcome."""
    name = "memberships"
    given = as_array(name, memberships)
    try:
        if np.iscomplexobj(given):
            raise ValueError("complex numbers")
        F = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PairDataError(name, "numbers in rows of one length", str(error), "Pass an array (N, K).") from error
    if F.ndim != 2 or 0 in F.shape:
        raise PairDataError(
            name,
            "a 2D array (N, K), one row per item",
            f"shape {F.shape}",
            "Pass the memberships of at least one item in at least one cluster.",
        )
    finite = np.isfinite(F).all(axis=1)
    if not finite.all():
        row = first_row(~finite)
        raise PairDataError(name, "finite numbers", f"{F[row]}", "Drop those items or see why the fit diverged.", row)
    low = F.min(axis=1) < -OFF_SIMPLEX
    if low.any():
        row = first_row(low)
        raise PairDataError(
            name, "entries of at least 0", f"{F[row].min():.6g}", "Pass probabilities, not logits.", row
        )
    off = np.abs(F.sum(axis=1) - 1.0) > OFF_SIMPLEX
    if off.any():
        row = first_row(off)
        raise PairDataError(
            name,
            "rows that sum to 1",
            f"a sum of {F[row].sum():.6g}",
            "Divide each row by its sum, or apply softmax.",
            row,
        )
    F = np.maximum(F, 0.0)
    return np.asarray(F / F.sum(axis=1, keepdims=True))


def check_matrix(name: str, value: ArrayLike, *, square: bool = False) -> Float64:
    """A finite 2D array in float64, square where asked for."""
    given = as_array(name, value)
    if np.iscomplexobj(given):
        raise PairDataError(name, "real numbers", "complex ones", "Pass their real part, if that is meant.")
    try:
        array = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PairDataError(name, "numbers", str(error), "Check how it was made.") from error
    good = array.ndim == 2 and array.size > 0 and bool(np.isfinite(array).all())
    if not good or (square and array.shape[0] != array.shape[1]):
        what = "a finite K x K matrix" if square else "a finite 2D array"
        odd = array.ndim == 2 and array.size > 0 and not np.isfinite(array).all()
        found = "entries that are not finite" if odd else f"shape {array.shape}"
        raise PairDataError(name, what, found, "Check how it was made.")
    return array
