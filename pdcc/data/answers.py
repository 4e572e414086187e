"""PairAnswers: answers about pairs of N items as one object of length N, the ``y`` that scikit-learn can split with X."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pdcc.arrays import Bools, Float32, Ints, as_array, first_row
from pdcc.data.chosen import check_chosen_by
from pdcc.data.degrees import check_soft, check_weights
from pdcc.data.names import check_annotators, check_ids, look_up
from pdcc.data.reading import ReadAnswers
from pdcc.errors import PairDataError
from pdcc.validation import check_count, check_pairs, check_similar

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class PairAnswers:
    """M answers about pairs of N items; its length is N. Make one with ``from_arrays`` or ``from_frame``.

    ``y[rows]`` (row numbers, a mask of N values or a slice) keeps the answers among those items and renumbers them to the
    new rows, as ``X[rows]`` does with the items. That is all that scikit-learn asks of a ``y``: ``fit(X, y)`` and
    ``score(X, y)`` work in Pipeline, cross_val_score and GridSearchCV. A fold of a share s of the items keeps about s^2 of the answers.

    n_items: N. i, j: (M,) row numbers. similar: (M,) bool. annotator: (M,) numbers into ``annotator_names``, or None.
    item_ids: (N,) names of the items, or None. self_pairs: how many pairs of an item with itself were dropped.
    soft: (M,) probabilities that a pair is similar where answers are not plain, else None; ``similar`` is then soft >= 0.5.
    weight: (M,) how much each answer counts where that differs, else None. weightless: how many of weight 0 were left out.
    random: (M,) whether the pair was drawn at random, where some were suggested instead; else None.

    Examples:
        >>> from pdcc import PairAnswers
        >>> y = PairAnswers.from_arrays(4, [[0, 1], [1, 2], [3, 1]], [1, 0, 1])
        >>> y
        PairAnswers(n_items=4, n_answers=3)
        >>> y[[3, 1]].pairs.tolist()  # items 3 and 1 are rows 0 and 1 now
        [[0, 1]]
        >>> PairAnswers.from_arrays(["ann", "bob", "cid"], [["bob", "cid"]], [True]).pairs.tolist()
        [[1, 2]]
    """

    n_items: int
    i: Ints
    j: Ints
    similar: Bools
    annotator: Ints | None = None
    annotator_names: tuple[Any, ...] = ()
    item_ids: NDArray[Any] | None = None
    self_pairs: int = 0
    soft: Float32 | None = None
    weight: Float32 | None = None
    weightless: int = 0
    random: Bools | None = None

    # Without this, ``list(y)`` would ask for one item after the other; there is nothing to say about a single item.
    __iter__ = None

    @classmethod
    def from_arrays(
        cls,
        items: int | Collection[Any],
        pairs: ArrayLike,
        similar: ArrayLike,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
        *,
        chosen_by: ArrayLike | None = None,
    ) -> "PairAnswers":
        """Check and keep answers: ``items`` is N, with pairs (M, 2) of row numbers, or the items' ids (N,), with pairs of ids.

        Ids are in the order of X's rows, ``X.index`` say. similar (M,): bool, {0, 1} or {-1, +1}; with ``soft``, probabilities that
        a pair is similar, which cost y log p + (1 - y) log(1 - p). weights (M,): how much each answer counts. chosen_by (M,): "random" or
        "suggested", how each pair came to be asked about; an empty one means random.
        """
        more = annotators, weights, soft, chosen_by
        if isinstance(items, int | np.integer):
            check_count("items", items)
            return _checked(int(items), check_pairs(pairs, int(items)), similar, *more)
        ids = check_ids("items", items)
        made = _checked(len(ids), look_up(pairs, ids, "items"), similar, *more)
        return replace(made, item_ids=ids)

    @classmethod
    def from_frame(cls, items: int | Collection[Any], frame: pd.DataFrame, *, soft: bool = False) -> "PairAnswers":
        """Like ``from_arrays``, from a table with the columns i, j, similar and optionally annotator, weight and chosen_by."""
        parts = table_columns(frame, ids=not isinstance(items, int | np.integer))
        return cls.from_arrays(items, *parts[:4], soft=soft, chosen_by=parts[4])

    def __len__(self) -> int:
        return self.n_items

    @property
    def shape(self) -> tuple[int]:
        """(N,): by this scikit-learn takes it for an array, and asks for all rows of a fold at once."""
        return (self.n_items,)

    @property
    def n_answers(self) -> int:
        """M."""
        return len(self.i)

    @property
    def pairs(self) -> Ints:
        """(M, 2) row numbers."""
        return np.column_stack([self.i, self.j])

    @property
    def annotators(self) -> NDArray[Any] | None:
        """(M,) names of those who answered, or None."""
        return None if self.annotator is None else np.array(self.annotator_names, dtype=object)[self.annotator]

    def __getitem__(self, rows: Any) -> "PairAnswers":
        """The answers among ``rows`` (row numbers, a mask of N values or a slice), about the items as numbered there."""
        how = "row numbers that occur once, a mask of N values or a slice"
        try:
            kept = np.arange(self.n_items)[rows]
        except (IndexError, TypeError) as error:
            raise PairDataError("rows", f"{how}, with N = {self.n_items}", str(error), "Index X and y alike.") from None
        if kept.ndim != 1:
            raise PairDataError("rows", how, repr(rows), "Keep several items: y[[3, 5]] instead of y[3].")
        new = np.full(self.n_items, -1)
        new[kept] = np.arange(len(kept))
        if (again := new[kept] != np.arange(len(kept))).any():
            row = first_row(again)
            fix = "An answer could not say which of the two it is about: draw rows without replacement."
            raise PairDataError("rows", how, f"{kept[row]} twice", fix, row)
        i, j = new[self.i], new[self.j]
        inside = (i >= 0) & (j >= 0)
        present, codes = (
            (None, None) if self.annotator is None else np.unique(self.annotator[inside], return_inverse=True)
        )
        return PairAnswers(
            n_items=len(kept),
            i=i[inside],
            j=j[inside],
            similar=self.similar[inside],
            annotator=codes,
            annotator_names=() if present is None else tuple(self.annotator_names[r] for r in present),
            item_ids=None if self.item_ids is None else self.item_ids[kept],
            soft=None if self.soft is None else self.soft[inside],
            weight=None if self.weight is None else self.weight[inside],
            random=None if self.random is None else self.random[inside],
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        # One object, not N values: scikit-learn's type_of_target then says "unknown" where it wants classes.
        whole = np.empty((), dtype=object)
        whole[()] = self
        return whole

    def __repr__(self) -> str:
        known = "" if self.annotator is None else f", n_annotators={len(self.annotator_names)}"
        return f"PairAnswers(n_items={self.n_items}, n_answers={self.n_answers}{known})"


def as_answers(
    X: Any,
    n_items: int,
    pairs: ArrayLike | PairAnswers | ReadAnswers,
    similar: ArrayLike | None = None,
    annotators: ArrayLike | None = None,
    item_ids: Collection[Any] | None = None,
    weights: ArrayLike | None = None,
    soft: bool = False,
) -> PairAnswers:
    """Every form in which ``fit`` takes answers about the rows of X, as one.

    ``pairs`` is a PairAnswers, what ``read_answers`` returns, a table with the columns i, j, similar and optionally annotator,
    weight and chosen_by, or an array (M, 2) beside ``similar``. Its entries are ids where ``item_ids`` (N,) are given; else whole numbers are row numbers, and anything else is
    looked up in the index of X.
    """
    whole, chosen_by = isinstance(pairs, PairAnswers | ReadAnswers), None
    if whole or (similar is None and isinstance(pairs, pd.DataFrame)):
        given = {
            "similar": similar,
            "annotators": annotators,
            "weights": weights,
            "soft": soft or None if whole else None,
        }
        for name, value in given.items():
            if value is not None:
                what = f"none beside a {type(pairs).__name__} that has its own"
                raise PairDataError(name, what, f"{type(value).__name__}", f"Leave {name} out.")
    if isinstance(pairs, ReadAnswers):
        try:
            return as_answers(X, n_items, pairs.frame, item_ids=item_ids, soft=pairs.soft)
        except PairDataError as error:
            # Unsure and unreadable rows are in the file, but not in the frame. Other arguments count items.
            if error.row is None or not error.argument.startswith("pairs"):
                raise
            raise error.at(int(pairs.rows[error.row])) from error
    if isinstance(pairs, PairAnswers):
        if pairs.n_items != n_items:
            raise PairDataError(
                "y",
                f"answers about the {n_items} rows of X",
                f"{pairs!r}",
                "Make it with the ids or the number of X's rows, and index X and y alike.",
            )
        return pairs
    if similar is None:
        if not isinstance(pairs, pd.DataFrame):
            raise PairDataError(
                "similar",
                "an answer for each pair",
                "none",
                "Pass similar (M,), or a PairAnswers or a table with the columns i, j, similar as the second argument.",
            )
        pairs, similar, annotators, weights, chosen_by = table_columns(pairs, ids=item_ids is not None)
    if item_ids is not None:
        ids = check_ids("item_ids", item_ids, n_items)
        made = _checked(
            n_items, look_up(pairs, ids, "the table of features"), similar, annotators, weights, soft, chosen_by
        )
        return replace(made, item_ids=ids)
    rows, known = pair_rows(X, n_items, pairs)
    return replace(_checked(n_items, rows, similar, annotators, weights, soft, chosen_by), item_ids=known)


def pair_rows(X: Any, n_items: int, pairs: ArrayLike) -> tuple[Ints, NDArray[Any] | None]:
    """Row numbers (M, 2) of pairs of rows of X, and X's ids (N,) where the pairs were given by those."""
    array = as_array("pairs", pairs)
    names = array.dtype.kind in "UT" or (
        array.dtype == object and not all(isinstance(v, int | np.integer) for v in array.ravel().tolist())
    )
    if not names or not isinstance(X, pd.DataFrame) or isinstance(X.index, pd.RangeIndex):
        return check_pairs(array, n_items), None
    ids = check_ids("index of X", X.index.tolist(), n_items)
    return look_up(array, ids, "the index of X"), ids


def table_columns(
    frame: pd.DataFrame, *, ids: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]:
    """Pairs (M, 2) of rows or ids, similar (M,) and, if known, annotators, weights and chosen_by (M,) of a table without an empty cell, except in chosen_by.

    A column probability may stand beside chosen_by; it is not needed here.
    """
    known = {"i", "j", "similar", "annotator", "weight", "chosen_by"}
    if "chosen_by" in frame.columns:
        frame = frame.drop(columns="probability", errors="ignore")
    missing = [c for c in ("i", "j", "similar") if c not in frame.columns]
    unknown = [str(c) for c in frame.columns if c not in known]
    if missing or unknown:
        found = ", ".join(map(str, frame.columns)) or "none"
        hint = f"Add {', '.join(missing)}." if missing else f"Drop or rename {', '.join(unknown)}."
        raise PairDataError(
            "pairs table",
            "the columns i, j, similar and optionally annotator, weight and chosen_by",
            f"the columns {found}",
            hint,
        )
    for column in frame.columns.drop("chosen_by", errors="ignore"):
        if frame[column].isna().any():
            fix = (
                "Name the annotator of every answer, or leave the column out."
                if column == "annotator"
                else "Drop the rows that were not answered; pdcc.read_answers sets them aside."
            )
            raise PairDataError(
                f"pairs table, column {column}",
                "no missing values",
                "an empty cell",
                fix,
                first_row(frame[column].isna().to_numpy()),
            )
    ends = frame[["i", "j"]].to_numpy(dtype=object if ids else None)
    named = ("annotator", "weight", "chosen_by")
    more = [frame[name].to_numpy() if name in frame.columns else None for name in named]
    return ends, frame["similar"].to_numpy(), more[0], more[1], more[2]


def _checked(
    n_items: int,
    index: Ints,
    similar: ArrayLike,
    annotators: ArrayLike | None,
    weights: ArrayLike | None,
    soft: bool,
    chosen_by: ArrayLike | None,
) -> PairAnswers:
    """Answers about pairs (M, 2) of row numbers, those of an item with itself and those of weight 0 left out."""
    answers = as_array("similar", similar)
    if answers.ndim == 1 and answers.size and len(answers) != len(index):
        raise PairDataError(
            "similar",
            f"one answer for each of the {len(index)} pairs",
            f"{len(answers)}",
            "Pass pairs and similar of the same length.",
        )
    proper = index[:, 0] != index[:, 1]
    codes, names = check_annotators(annotators, len(index))
    if not isinstance(soft, bool | np.bool_):
        raise TypeError(f"soft: expected True or False, found {soft!r}. Pass soft=True beside probabilities.")
    degrees = check_soft(answers) if soft else None
    checked = check_similar(answers) if degrees is None else degrees >= 0.5
    counted = None if weights is None else check_weights(weights, len(index))
    drawn = None if chosen_by is None else check_chosen_by(chosen_by, len(index))
    if not proper.all():
        logger.info("dropped %d pair(s) of an item with itself", int((~proper).sum()))
        if not proper.any():
            raise PairDataError(
                "pairs",
                "pairs of two different items",
                "only pairs of an item with itself",
                "Check how i and j were read.",
                0,
            )
    # An answer that does not count is as good as not given: nothing downstream then divides by a sum of zeros.
    keep = proper if counted is None else proper & (counted > 0)
    if weightless := int((proper & ~keep).sum()):
        logger.info("left out %d answer(s) of weight 0", weightless)
    return PairAnswers(
        n_items=n_items,
        i=index[keep, 0],
        j=index[keep, 1],
        similar=checked[keep],
        annotator=None if codes is None else codes[keep],
        annotator_names=names,
        self_pairs=int((~proper).sum()),
        soft=None if degrees is None or np.isin(degrees[keep], (0, 1)).all() else degrees[keep],
        weight=None if counted is None or (counted[keep] == 1).all() else counted[keep],
        weightless=weightless,
        random=None if drawn is None or drawn[keep].all() else drawn[keep],
    )
