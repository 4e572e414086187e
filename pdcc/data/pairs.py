"""PairData: the one validated form of features and answered pairs, and the ways to get there."""

import hashlib
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pdcc.arrays import Bools, Floats, Ints
from pdcc.errors import PairDataError
from pdcc.validation import as_array, check_features, check_pairs, check_similar, first_row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairData:
    """N items and M answered pairs, checked. Make one with ``from_arrays``, ``from_frame`` or ``read``.

    features: (N, d), or (N, ...), float32 or float64. i, j: (M,) row numbers. similar: (M,) bool.
    annotator: (M,) numbers into ``annotator_names``, or None. item_ids: (N,) names of the items, or None.
    self_pairs: how many pairs of an item with itself were dropped.

    Examples:
        >>> from pdcc import PairData
        >>> data = PairData.from_arrays([[0.0], [0.1], [5.0]], [[0, 1], [1, 2]], [1, 0])
        >>> len(data), data.n_items, data.similar.tolist()
        (2, 3, [True, False])
    """

    features: Floats
    i: Ints
    j: Ints
    similar: Bools
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
        any_shape: bool = False,
    ) -> "PairData":
        """Check and keep arrays: X (N, d); pairs (M, 2) row numbers, or ids where item_ids (N,) is given; similar (M,).

        With ``any_shape`` items may have more dimensions, (N, ...): images, say, for a network that takes them.
        """
        features = check_features(X, any_shape=any_shape)
        ids = None
        if item_ids is not None:
            ids = _check_ids(item_ids, len(features))
            pairs = _look_up(pairs, ids)
        index = check_pairs(pairs, len(features))
        answers = as_array("similar", similar)
        if answers.ndim == 1 and answers.size and len(answers) != len(index):
            raise PairDataError(
                "similar",
                f"one answer for each of the {len(index)} pairs",
                f"{len(answers)}",
                "Pass pairs and similar of the same length.",
            )
        keep = index[:, 0] != index[:, 1]
        codes, names = check_annotators(annotators, len(index))
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
                fix = (
                    "Name the annotator of every answer, or leave the column out."
                    if column == "annotator"
                    else "Drop the rows that were not answered."
                )
                raise PairDataError(
                    f"pairs table, column {column}",
                    "no missing values",
                    "an empty cell",
                    fix,
                    first_row(frame[column].isna().to_numpy()),
                )
        ends = frame[["i", "j"]].to_numpy() if item_ids is None else frame[["i", "j"]].to_numpy(dtype=object)
        annotators = frame["annotator"].to_numpy() if "annotator" in frame.columns else None
        return cls.from_arrays(X, ends, frame["similar"].to_numpy(), annotators, item_ids=item_ids)

    @classmethod
    def read(cls, features: str | Path, pairs: str | Path, *, id_column: str | None = None) -> "PairData":
        """Read features (.npy, .npz, .csv, .parquet) and pairs (.csv, .parquet); ``id_column`` names items in a feature table."""
        from pdcc.data.io import read_features, read_table

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

    def recode(self, names: tuple[Any, ...]) -> "PairData":
        """The same pairs, annotators numbered as in ``names``; one who is not among them, or is not known, gets ``len(names)``."""
        codes = renumber(self.annotator, self.annotator_names, names, len(self))
        return replace(self, annotator=codes, annotator_names=names)

    @property
    def n_annotators(self) -> int:
        """How many annotators these answers are by; 0 where none are known."""
        return 0 if self.annotator is None else len(np.unique(self.annotator))

    def present(self) -> list[Any]:
        """The names of those annotators, as plain JSON."""
        known = [] if self.annotator is None else [self.annotator_names[r] for r in np.unique(self.annotator)]
        return [name if isinstance(name, str | int | float) else str(name) for name in known]

    def asked(self) -> Ints:
        """A number for each unordered pair that was asked about, (M,)."""
        low, high = np.minimum(self.i, self.j), np.maximum(self.i, self.j)
        return np.asarray(np.unique(low * self.n_items + high, return_inverse=True)[1], dtype=np.int64)

    def fingerprint(self) -> str:
        """SHA-256 of the pairs and their answers, in their order."""
        digest = hashlib.sha256()
        for part in (self.i, self.j, self.similar):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


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
        row = first_row(duplicated)
        raise PairDataError("item_ids", "ids that occur once", f"{ids[row]!r} again", "Make the ids unique.", row)
    return ids


def _look_up(pairs: ArrayLike, ids: NDArray[Any]) -> Ints:
    ends = as_array("pairs", pairs, dtype=object)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise PairDataError(
            "pairs", "shape (M, 2), two item ids per pair", f"shape {ends.shape}", "Stack the two endpoints."
        )
    where = {name: row for row, name in enumerate(ids.tolist())}
    rows = np.array([[where.get(a, -1), where.get(b, -1)] for a, b in ends.tolist()], dtype=np.int64).reshape(-1, 2)
    bad = (rows < 0).any(axis=1)
    if bad.any():
        row = first_row(bad)
        lost = next(name for name in ends[row].tolist() if name not in where)
        raise PairDataError(
            "pairs",
            "ids that occur in item_ids",
            f"{lost!r}, which does not",
            "Drop the pair, or add the item's features.",
            row,
        )
    return rows


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
            first_row(names.isna().to_numpy()),
        )
    codes, unique = pd.factorize(names, sort=True)
    return codes.astype(np.int64), tuple(unique.tolist())
