"""PairData: the one validated form of features and answered pairs, and the ways to get there."""

import logging
import numbers
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class PairDataError(ValueError):
    """Bad input, said so that a person can act: argument, expectation, what was found, first bad row, fix."""

    def __init__(self, argument: str, expected: str, found: str, fix: str, row: int | None = None):
        self._parts = (argument, expected, found, fix, row)
        where = "" if row is None else f" (first at row {row})"
        super().__init__(f"{argument}: expected {expected}, found {found}{where}. {fix}")
        self.argument, self.row = argument, row

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts  # so that it survives the trip from a worker process


def _array(name: str, value: Any, dtype: Any = None) -> NDArray[Any]:
    """``np.asarray`` with an error that names the argument."""
    try:
        return np.asarray(value, dtype=dtype)
    except ValueError as error:
        raise PairDataError(
            name, "rows of one length", f"a ragged list ({error})", "Give every row the same number of entries."
        ) from error


def _first(bad: Any) -> int:
    return int(np.flatnonzero(bad)[0])


def check_features(X: Any, *, n_features: int | None = None, owner: str = "this model") -> Floats:
    """Features as a finite float32 array (N, d); ``n_features`` is the width an earlier fit of ``owner`` has fixed."""
    name = "X"
    if hasattr(X, "toarray"):
        # scikit-learn's checks look for TypeError and the words "sparse" and "dense" here.
        raise TypeError(
            f"{name}: expected a dense array of features, found a sparse matrix. Convert it with X.toarray()."
        )
    array = _array(name, X)
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
                "Encode or drop the columns that are not numeric.",
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
        row = _first(~finite)
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
    array = _array("similar", similar)
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
            row = _first(~np.isin(array, legal))
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
    array = _array("pairs", pairs)
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
        row = _first(bad)
        raise PairDataError(
            "pairs",
            f"row numbers from 0 to {n_items - 1} (X has {n_items} rows)",
            f"{array[row].tolist()}",
            "Number items from 0, or name them (item_ids in Python, --id-column in the shell).",
            row,
        )
    return array.astype(np.int64)


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


@dataclass(frozen=True)
class PairData:
    """N items and M answered pairs, checked. Make one with ``from_arrays``, ``from_frame`` or ``read``.

    features: (N, d) float32. i, j: (M,) row numbers. similar: (M,) bool.
    annotator: (M,) numbers into ``annotator_names``, or None. item_ids: (N,) names of the items, or None.
    self_pairs: how many pairs of an item with itself were dropped.
    """

    features: Floats
    i: Ints
    j: Ints
    similar: NDArray[np.bool_]
    annotator: Ints | None = None
    annotator_names: tuple[Any, ...] = ()
    item_ids: NDArray[Any] | None = None
    self_pairs: int = 0

    def __len__(self) -> int:
        return len(self.i)

    @property
    def n_items(self) -> int:
        """N."""
        return len(self.features)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        pairs: ArrayLike,
        similar: ArrayLike,
        annotators: ArrayLike | None = None,
        *,
        item_ids: Sequence[Hashable] | NDArray[Any] | None = None,
    ) -> "PairData":
        """Check and keep arrays: X (N, d); pairs (M, 2) row numbers, or ids where item_ids (N,) is given; similar (M,)."""
        features = check_features(X)
        ids = None
        if item_ids is not None:
            ids = _check_ids(item_ids, len(features))
            pairs = _look_up(pairs, ids)
        index = check_pairs(pairs, len(features))
        answers = _array("similar", similar)
        if answers.ndim == 1 and answers.size and len(answers) != len(index):
            raise PairDataError(
                "similar",
                f"one answer for each of the {len(index)} pairs",
                f"{len(answers)}",
                "Pass pairs and similar of the same length.",
            )
        keep = index[:, 0] != index[:, 1]
        codes, names = _check_annotators(annotators, len(index))
        checked = check_similar(answers)
        if not keep.all():
            logger.info("dropped %d pair(s) of an item with itself", int((~keep).sum()))
            if not keep.any():
                raise PairDataError(
                    "pairs",
                    "pairs of two different items",
                    "only pairs of an item with itself",
                    "Check how i and j were read.",
                    0,
                )
            checked = check_similar(checked[keep])
        return cls(
            features=features,
            i=index[keep, 0],
            j=index[keep, 1],
            similar=checked,
            annotator=None if codes is None else codes[keep],
            annotator_names=names,
            item_ids=ids,
            self_pairs=int((~keep).sum()),
        )

    @classmethod
    def from_frame(
        cls, X: ArrayLike, frame: pd.DataFrame, *, item_ids: Sequence[Hashable] | NDArray[Any] | None = None
    ) -> "PairData":
        """Like ``from_arrays``, from a table with the columns i, j, similar and optionally annotator."""
        known = {"i", "j", "similar", "annotator"}
        missing = [c for c in ("i", "j", "similar") if c not in frame.columns]
        unknown = [str(c) for c in frame.columns if c not in known]
        if missing or unknown:
            found = ", ".join(map(str, frame.columns)) or "none"
            hint = f"Add {', '.join(missing)}." if missing else f"Drop or rename {', '.join(unknown)}."
            raise PairDataError(
                "pairs table", "the columns i, j, similar and optionally annotator", f"the columns {found}", hint
            )
        for column in frame.columns:
            if frame[column].isna().any():
                raise PairDataError(
                    f"pairs table, column {column}",
                    "no missing values",
                    "an empty cell",
                    "Drop the rows that were not answered.",
                    _first(frame[column].isna().to_numpy()),
                )
        ends = frame[["i", "j"]].to_numpy() if item_ids is None else frame[["i", "j"]].to_numpy(dtype=object)
        annotators = frame["annotator"].to_numpy() if "annotator" in frame.columns else None
        return cls.from_arrays(X, ends, frame["similar"].to_numpy(), annotators, item_ids=item_ids)

    @classmethod
    def read(cls, features: str | Path, pairs: str | Path, *, id_column: str | None = None) -> "PairData":
        """Read features (.npy, .npz, .csv, .parquet) and pairs (.csv, .parquet); ``id_column`` names items in a feature table."""
        from pdcc.tables import read_features, read_table

        X, ids = read_features(features, id_column=id_column)
        return cls.from_frame(X, read_table(pairs), item_ids=ids)

    def subset(self, index: NDArray[Any]) -> "PairData":
        """The same items with only the pairs ``index`` (numbers or a mask)."""
        return replace(
            self,
            i=self.i[index],
            j=self.j[index],
            similar=self.similar[index],
            annotator=None if self.annotator is None else self.annotator[index],
        )

    def split(self, fraction: float, seed: int, *, by: str = "pairs") -> tuple["PairData", "PairData"]:
        """(train, held out), seeded. ``by="pairs"``: a ``fraction`` of each kind of answer.

        ``by="annotators"``: all pairs of enough annotators, drawn at random, to make about ``fraction`` of the
        pairs. One annotator's answers are consistent with each other, so their pairs leak; annotators do not.
        """
        rng = np.random.default_rng(seed)
        held = np.zeros(len(self), dtype=bool)
        if by == "annotators":
            if self.annotator is None:
                raise PairDataError("by", "annotator ids to split by", "none", "Pass annotators, or split by='pairs'.")
            counts = np.bincount(self.annotator)
            order = rng.permutation(np.flatnonzero(counts))
            chosen: list[int] = []
            for person in order.tolist():
                short = fraction * len(self) - counts[chosen].sum()
                if abs(short - counts[person]) < abs(short):
                    chosen.append(person)
            if not chosen:  # everyone overshoots: the one with the fewest pairs
                chosen = [int(order[counts[order].argmin()])]
            held = np.isin(self.annotator, chosen[: len(order) - 1])
        elif by == "pairs":
            for kind in (False, True):
                members = np.flatnonzero(self.similar == kind)
                n_held = min(max(1, round(fraction * len(members))), len(members) - 1)
                held[rng.permutation(members)[: max(n_held, 0)]] = True
        else:
            raise PairDataError("by", "'pairs' or 'annotators'", repr(by), "Choose one of them.")
        return self.subset(~held), self.subset(held)

    def folds(self, n: int, seed: int) -> list[tuple["PairData", "PairData"]]:
        """``n`` (train, test) splits that test every pair once: by annotators where there are enough, else by pairs."""
        rng = np.random.default_rng(seed)
        if self.annotator is not None and len(np.unique(self.annotator)) >= n:
            people = rng.permutation(np.unique(self.annotator))
            # Deal annotators out largest first, each to the fold with the fewest pairs so far.
            counts = np.bincount(self.annotator)
            size, fold_of = np.zeros(n), np.zeros(len(counts), np.int64)
            for person in people[np.argsort(-counts[people], kind="stable")]:
                fold_of[person] = size.argmin()
                size[fold_of[person]] += counts[person]
            fold = fold_of[self.annotator]
        else:
            fold = rng.permutation(np.arange(len(self)) % n)
        return [(self.subset(fold != k), self.subset(fold == k)) for k in range(n)]


def _check_ids(item_ids: Sequence[Hashable] | NDArray[Any], n_items: int) -> NDArray[Any]:
    ids = np.empty(len(item_ids), dtype=object)
    ids[:] = list(item_ids)
    if len(ids) != n_items:
        raise PairDataError(
            "item_ids", f"one id for each of the {n_items} rows of X", f"{len(ids)}", "Pass ids in the order of X."
        )
    for row, name in enumerate(ids.tolist()):
        if not isinstance(name, Hashable) or name is None or name != name:
            raise PairDataError(
                "item_ids",
                "hashable ids, none missing",
                repr(name),
                "Name every item with a string, a number or a tuple.",
                row,
            )
    duplicated = pd.Series(ids).duplicated().to_numpy()
    if duplicated.any():
        row = _first(duplicated)
        raise PairDataError("item_ids", "ids that occur once", f"{ids[row]!r} again", "Make the ids unique.", row)
    return ids


def _look_up(pairs: ArrayLike, ids: NDArray[Any]) -> Ints:
    ends = _array("pairs", pairs, dtype=object)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise PairDataError(
            "pairs", "shape (M, 2), two item ids a pair", f"shape {ends.shape}", "Stack the two endpoints."
        )
    where = {name: row for row, name in enumerate(ids.tolist())}
    rows = np.array([[where.get(a, -1), where.get(b, -1)] for a, b in ends.tolist()], dtype=np.int64).reshape(-1, 2)
    bad = (rows < 0).any(axis=1)
    if bad.any():
        row = _first(bad)
        lost = next(name for name in ends[row].tolist() if name not in where)
        raise PairDataError(
            "pairs",
            "ids that occur in item_ids",
            f"{lost!r}, which does not",
            "Drop the pair, or add the item's features.",
            row,
        )
    return rows


def _check_annotators(annotators: ArrayLike | None, n_pairs: int) -> tuple[Ints | None, tuple[Any, ...]]:
    if annotators is None:
        return None, ()
    names = pd.Series(np.asarray(annotators).ravel() if np.asarray(annotators).ndim == 1 else [])
    if len(names) != n_pairs:
        raise PairDataError(
            "annotators",
            f"one annotator for each of the {n_pairs} pairs",
            f"shape {np.asarray(annotators).shape}",
            "Pass annotators with shape (M,), or leave them out.",
        )
    if names.isna().any():
        raise PairDataError(
            "annotators",
            "no missing values",
            "a missing one",
            "Name every annotator, or leave annotators out.",
            _first(names.isna().to_numpy()),
        )
    codes, unique = pd.factorize(names, sort=True)
    return codes.astype(np.int64), tuple(unique.tolist())
