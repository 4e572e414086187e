"""PairData: the one validated form of features and answered pairs, and the ways to get there."""

import hashlib
import logging
import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pdcc.arrays import Bools, Features, Float32, Floats, Ints
from pdcc.data.answers import PairAnswers, as_answers
from pdcc.data.columns import column_names
from pdcc.data.dialect import answers_instead, columns_of_answers
from pdcc.data.io import read_features
from pdcc.data.names import renumber
from pdcc.data.reading import ReadAnswers, read_answers
from pdcc.errors import PairDataError
from pdcc.rows import FeatureRows
from pdcc.validation import check_both_kinds, check_features

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairData:
    """N items and M answered pairs, checked. Make one with ``from_arrays``, ``from_frame`` or ``read``.

    features: (N, d), or (N, ...), float32 or float64; ``FeatureRows`` where they are too large to be copied. i, j: (M,) row numbers. similar: (M,) bool.
    annotator: (M,) numbers into ``annotator_names``, or None. item_ids: (N,) names of the items, or None.
    self_pairs: how many pairs of an item with itself were dropped. feature_names: (d,) names of the columns, or None.
    soft: (M,) probabilities that a pair is similar where answers are not plain, else None; ``similar`` is then soft >= 0.5.
    weight: (M,) how much each answer counts where that differs, else None. weightless: how many of weight 0 were left out.
    random: (M,) whether the pair was drawn at random, where some were suggested instead; else None.

    Examples:
        >>> from pdcc import PairData
        >>> data = PairData.from_arrays([[0.0], [0.1], [5.0]], [[0, 1], [1, 2]], [1, 0])
        >>> len(data), data.n_items, data.similar.tolist()
        (2, 3, [True, False])
    """

    features: Floats | FeatureRows
    i: Ints
    j: Ints
    similar: Bools
    annotator: Ints | None = None
    annotator_names: tuple[Any, ...] = ()
    item_ids: NDArray[Any] | None = None
    self_pairs: int = 0
    feature_names: tuple[str, ...] | None = None
    soft: Float32 | None = None
    weight: Float32 | None = None
    weightless: int = 0
    random: Bools | None = None

    def __len__(self) -> int:
        return len(self.i)

    @property
    def n_items(self) -> int:
        """N."""
        return len(self.features)

    @classmethod
    def from_arrays(
        cls,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
        *,
        item_ids: Collection[Any] | None = None,
        any_shape: bool = False,
        both_kinds: bool = True,
    ) -> "PairData":
        """Check and keep arrays: X (N, d); pairs (M, 2) row numbers, or ids where item_ids (N,) is given; similar (M,).

        Instead of pairs and similar, a ``PairAnswers``, what ``read_answers`` returns, or a table with the columns i, j, similar and
        optionally annotator, weight and chosen_by. With ``soft``, similar are probabilities; weights (M,): how much each answer counts.
        Where X is a DataFrame, pairs of anything but whole numbers are looked up in its index. With ``any_shape`` items may have
        more dimensions, (N, ...): images, say, for a network that takes them. A fit needs answers of ``both_kinds``.
        """
        features = check_features(X, any_shape=any_shape)
        answers = as_answers(X, len(features), pairs, similar, annotators, item_ids, weights, soft)
        if not answers.n_answers:
            raise PairDataError(
                "pairs",
                f"at least one answer about two of the {len(features)} items",
                "none",
                "A fold keeps only the answers among its own items: use fewer folds, or ask about more pairs.",
            )
        if both_kinds:
            check_both_kinds(answers.similar)
        own = {f.name: getattr(answers, f.name) for f in fields(answers) if f.name != "n_items"}
        # Columns of a table are often read-only views, which tensors cannot share.
        own = {
            name: np.require(part, requirements="W") if isinstance(part, np.ndarray) else part
            for name, part in own.items()
        }
        return cls(features=features, feature_names=column_names(X), **own)

    @classmethod
    def from_frame(
        cls, X: Features, frame: pd.DataFrame, *, item_ids: Collection[Any] | None = None, soft: bool = False
    ) -> "PairData":
        """Like ``from_arrays``, from a table with the columns i, j, similar and optionally annotator, weight and chosen_by."""
        return cls.from_arrays(X, frame, item_ids=item_ids, soft=soft)

    @classmethod
    def read(
        cls, features: str | Path, pairs: str | Path, *, id_column: str | None = None, **reading: Any
    ) -> "PairData":
        """Read features (.npy, .npz, .csv, .parquet) and answers; ``id_column`` names items in a feature table.

        ``reading``: options of ``read_answers``, whose notes are logged.
        """
        X, ids, read = read_both(features, pairs, id_column=id_column, **reading)
        return cls.from_arrays(X, read, item_ids=ids)

    def subset(self, index: NDArray[Any]) -> "PairData":
        """The same items with only the pairs ``index`` (numbers or a mask)."""
        return replace(
            self,
            i=self.i[index],
            j=self.j[index],
            similar=self.similar[index],
            annotator=None if self.annotator is None else self.annotator[index],
            soft=None if self.soft is None else self.soft[index],
            weight=None if self.weight is None else self.weight[index],
            random=None if self.random is None else self.random[index],
        )

    def plain(self) -> "PairData":
        """The same, without degrees where all of them are 0 or 1, and without weights where all are 1."""
        degrees, weights = self.soft, self.weight
        return replace(
            self,
            soft=None if degrees is None or np.isin(degrees, (0, 1)).all() else degrees,
            weight=None if weights is None or (weights == 1).all() else weights,
        )

    def given(self) -> Floats | FeatureRows | pd.DataFrame:
        """The features as a fit takes them: with the names of their columns where they had some, and numbered rows."""
        if self.feature_names is None or isinstance(self.features, FeatureRows):
            return self.features
        return pd.DataFrame(self.features, columns=list(self.feature_names))

    def at_random(self) -> Bools:
        """Which of the pairs were drawn at random, (M,): all, where nobody says that some were not."""
        return np.ones(len(self), dtype=bool) if self.random is None else self.random

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
        return [plain_name(name) for name in known]

    def asked(self) -> Ints:
        """A number for each unordered pair that was asked about, (M,)."""
        low, high = np.minimum(self.i, self.j), np.maximum(self.i, self.j)
        return np.asarray(np.unique(low * self.n_items + high, return_inverse=True)[1], dtype=np.int64)

    def fingerprint(self) -> str:
        """SHA-256 of the pairs, their answers and, where there are any, degrees and weights, in their order."""
        digest = hashlib.sha256()
        for part in (self.i, self.j, self.similar):
            digest.update(np.ascontiguousarray(part).data)
        for name, more in (("soft", self.soft), ("weight", self.weight)):
            if more is not None:
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(more).data)
        return digest.hexdigest()


def plain_name(name: Any) -> Any:
    """An annotator's name as plain JSON, which has no infinite numbers: those are {"float": "inf"}."""
    if isinstance(name, float) and not math.isfinite(name):
        return {"float": str(name)}
    return name if isinstance(name, str | int | float) else str(name)


def read_both(
    features: str | Path, pairs: str | Path, *, id_column: str | None = None, beside: Path | None = None, **reading: Any
) -> tuple[Features, NDArray[Any] | None, ReadAnswers]:
    """Features (N, d), the items' ids (N,) or None, and the answers; what was guessed of them is logged. beside: see ``read_features``."""
    X, ids = read_features(features, id_column=id_column, beside=beside)
    try:
        read = read_answers(pairs, item_ids=ids, **reading)
    except PairDataError as error:
        names = columns_of_answers(X.columns) if isinstance(X, pd.DataFrame) else ()
        if names and (error.argument == "pairs table" or Path(pairs).suffix in (".npy", ".npz")):
            raise answers_instead(Path(features), names) from error
        raise
    for note in read.notes:
        logger.info(note)
    return X, ids, read
