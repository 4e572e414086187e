"""Names of items and annotators: checked, looked up, and numbered."""

import numbers
from collections.abc import Collection, Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pdcc.arrays import Ints, as_array, first_row
from pdcc.errors import PairDataError
from pdcc.validation import check_pairs

# So many unknown ids are named at once.
SHOWN = 5


def check_ids(name: str, item_ids: Collection[Any], n_items: int | None = None) -> NDArray[Any]:
    """Ids (N,) as an object array: hashable, none missing, none twice."""
    try:
        listed = list(item_ids)
        ids = np.empty(len(listed), dtype=object)
        ids[:] = listed
    except Exception as error:  # tensors, too, that NumPy has no numbers for
        raise PairDataError(name, "a list of ids", f"{item_ids!r:.80}", "Pass one id for each item.") from error
    if n_items is not None and len(ids) != n_items:
        raise PairDataError(
            name, f"one id for each of the {n_items} rows of X", f"{len(ids)}", "Pass ids in the order of X."
        )
    for row, value in enumerate(ids.tolist()):
        if not isinstance(value, Hashable) or value is None or value is pd.NA or value != value:
            raise PairDataError(
                name,
                "hashable ids, none missing",
                repr(value),
                "Name every item with a string, a number or a tuple.",
                row,
            )
    duplicated = pd.Series(ids, dtype=object).duplicated().to_numpy()
    if duplicated.any():
        row = first_row(duplicated)
        raise PairDataError(name, "ids that occur once", f"{ids[row]!r} again", "Make the ids unique.", row)
    return ids


def look_up(pairs: ArrayLike, ids: NDArray[Any], home: str) -> Ints:
    """Row numbers (M, 2) of pairs (M, 2) of ids, as numbered in ``ids`` (N,), which are called ``home``."""
    ends = as_array("pairs", pairs, dtype=object)
    if ends.ndim == 3:  # ids that are tuples, all of one length
        inner, ends = ends, np.empty(ends.shape[:2], dtype=object)
        for m, k in np.ndindex(ends.shape):
            ends[m, k] = tuple(inner[m, k])
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise PairDataError(
            "pairs", "shape (M, 2), two item ids per pair", f"shape {ends.shape}", "Stack the two endpoints."
        )
    where = {name: row for row, name in enumerate(ids.tolist())}
    rows = np.array([[where.get(a, -1), where.get(b, -1)] for a, b in ends.tolist()], dtype=np.int64).reshape(-1, 2)
    bad = (rows < 0).any(axis=1)
    if bad.any():
        lost = list(dict.fromkeys(name for pair in ends[bad].tolist() for name in pair if name not in where))
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        raise PairDataError(
            "pairs",
            f"ids that occur in {home}",
            f"{', '.join(map(repr, lost[:SHOWN]))}{more}, which {'does' if len(lost) == 1 else 'do'} not",
            "Write ids as they are there; else drop these pairs, or add the items' features.",
            first_row(bad),
        )
    return check_pairs(rows, len(ids))


def renumber(codes: Ints | None, names: tuple[Any, ...], known: tuple[Any, ...], n_pairs: int) -> Ints:
    """Numbers into ``known`` (M,) for numbers into ``names`` (M,); ``len(known)`` for those not among them, or all."""
    number = {name: r for r, name in enumerate(known)}
    # One more entry: an annotator without a name before has none now.
    table = np.array([*(number.get(name, len(known)) for name in names), len(known)], dtype=np.int64)
    return np.full(n_pairs, len(known), dtype=np.int64) if codes is None else table[codes]


def check_annotators(annotators: ArrayLike | None, n_pairs: int) -> tuple[Ints | None, tuple[Any, ...]]:
    """Numbers (M,) into the names of the annotators, and the names; None and () where none are named."""
    if annotators is None:
        return None, ()
    given = as_array("annotators", annotators, dates=True)
    if given.shape != (n_pairs,):
        raise PairDataError(
            "annotators",
            f"one annotator for each of the {n_pairs} pairs",
            f"shape {given.shape}",
            "Pass annotators with shape (M,), or leave them out.",
        )
    missing = pd.isna(given)
    names = pd.Series(given.astype(str if given.dtype.kind in "mM" else object), dtype=object)
    if missing.any():
        raise PairDataError(
            "annotators",
            "no missing values",
            "a missing one",
            "Name every annotator, or leave annotators out.",
            first_row(missing),
        )
    bad = [not _is_name(name) for name in names]
    if any(bad):
        row = first_row(bad)
        raise PairDataError("annotators", "text or numbers", ascii(names[row]), "Name them by text or numbers.", row)
    try:
        codes, unique = pd.factorize(names, sort=True)
    except TypeError:  # names of several kinds, which have no order
        codes, unique = pd.factorize(names)
    return codes.astype(np.int64), tuple(unique.tolist())


def _is_name(name: Any) -> bool:
    """Text that files can hold, or a number."""
    if isinstance(name, str):
        return not any("\ud800" <= c <= "\udfff" for c in name)
    return isinstance(name, bytes | numbers.Real | np.generic)
