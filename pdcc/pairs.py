"""PairData: the one validated form of features and answered pairs, and the ways to get there."""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pdcc.checks import Floats, Ints, PairDataError, as_array, check_features, check_pairs, check_similar, first_row

logger = logging.getLogger(__name__)

# Whole annotators are held out where there are at least so many of them.
FEWEST_PEOPLE = 10


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
                    "Name everyone, or leave the column out."
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

    def recode(self, names: tuple[Any, ...]) -> "PairData":
        """The same pairs, annotators numbered as in ``names``; who is not among them, or is not known, gets ``len(names)``."""
        who = renumber(self.annotator, self.annotator_names, names, len(self))
        return replace(self, annotator=who, annotator_names=names)

    @property
    def n_people(self) -> int:
        """How many annotators these answers are by; 0 where nobody is known."""
        return 0 if self.annotator is None else len(np.unique(self.annotator))

    def people(self) -> list[Any]:
        """The names of those annotators, as plain JSON."""
        known = [] if self.annotator is None else [self.annotator_names[r] for r in np.unique(self.annotator)]
        return [name if isinstance(name, str | int | float) else str(name) for name in known]

    def split(self, fraction: float, seed: int, *, by: str = "pairs") -> tuple["PairData", "PairData"]:
        """(train, held out), seeded. ``by="pairs"``: about a ``fraction`` of each kind of answer; several about one pair stay together.

        ``by="annotators"``: all pairs of enough annotators, drawn at random, to make about ``fraction`` of the
        pairs. One annotator's answers are consistent with each other, so their pairs leak; annotators do not.
        ``by="items"``: half of them are all pairs that touch items drawn at random, half are single pairs, for answers whose annotators
        are not known; again several about one pair stay together.
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
                held |= self._about_first(rng.permutation(members), n_held)
            if any(held[self.similar == kind].all() for kind in np.unique(self.similar)):
                held[:] = False  # so few pairs that one kind of answer would be gone: hold nothing out
        elif by == "items":
            # A pair touches one of a share s of the items with probability 1 - (1 - s)^2.
            share = 1 - np.sqrt(1 - fraction / 2)
            new = rng.permutation(self.n_items)[: max(1, round(share * self.n_items))]
            held = np.isin(self.i, new) | np.isin(self.j, new)
            rest = np.flatnonzero(~held)
            held |= self._about_first(rng.permutation(rest), round(fraction / 2 * len(self)))
        else:
            raise PairDataError("by", "'pairs', 'annotators' or 'items'", repr(by), "Choose one of them.")
        return self.subset(~held), self.subset(held)

    def _asked(self) -> Ints:
        """A number for each unordered pair that was asked about, (M,)."""
        low, high = np.minimum(self.i, self.j), np.maximum(self.i, self.j)
        return np.asarray(np.unique(low * self.n_items + high, return_inverse=True)[1], dtype=np.int64)

    def _about_first(self, order: Ints, n: int) -> NDArray[np.bool_]:
        """All answers about the pairs that come first in ``order`` (of rows), until they are at least ``n``, (M,)."""
        asked = self._asked()
        ids = asked[order]
        ids = ids[np.sort(np.unique(ids, return_index=True)[1])]
        sizes = np.bincount(asked)[ids]
        return np.asarray(np.isin(asked, ids[np.cumsum(sizes) - sizes < n]))

    def folds(self, n: int, seed: int) -> list[tuple["PairData", "PairData"]]:
        """``n`` (train, test) splits that test every pair once: by annotators where there are enough, else by pairs.

        By pairs, several answers about one pair stay together.
        """
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
            asked = self._asked()
            first = np.unique(asked, return_index=True)[1]
            fold = rng.permutation(np.arange(len(self)) % n)[first[asked]]
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
        row = first_row(duplicated)
        raise PairDataError("item_ids", "ids that occur once", f"{ids[row]!r} again", "Make the ids unique.", row)
    return ids


def _look_up(pairs: ArrayLike, ids: NDArray[Any]) -> Ints:
    ends = as_array("pairs", pairs, dtype=object)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise PairDataError(
            "pairs", "shape (M, 2), two item ids a pair", f"shape {ends.shape}", "Stack the two endpoints."
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
    # One more entry: who had no name before has none now.
    table = np.array([*(number.get(name, len(known)) for name in names), len(known)], dtype=np.int64)
    return np.full(n_pairs, len(known), dtype=np.int64) if codes is None else table[codes]


def check_annotators(annotators: ArrayLike | None, n_pairs: int) -> tuple[Ints | None, tuple[Any, ...]]:
    """Numbers (M,) into the names of the annotators, and the names; None and () where nobody is named."""
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
