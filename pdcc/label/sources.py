"""Where the next pairs come from: at random, or what a fit would ask."""

import logging
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from pdcc.arrays import Floats, Ints
from pdcc.asking.uniform import pair_numbers
from pdcc.errors import PairDataError
from pdcc.rows import FeatureRows

logger = logging.getLogger(__name__)
COLUMNS = ["i", "j", "gain", "chosen_by", "probability"]


class NextPairs(Protocol):
    """The next pairs to ask about, best first."""

    def __call__(self, n: int, exclude: Ints) -> pd.DataFrame:
        """At most n pairs of row numbers, none of them in ``exclude`` (M, 2), either way round.

        Columns: i, j, gain (what is expected of the answer, nan where nothing is), chosen_by ("random" or "suggested"),
        probability (of a random source the chance with which one draw gives this pair, of suggestions that a batch holds it; nan where it is not known).
        """
        ...


class SuggestedPairs:
    """What the fit in a run directory would ask about the rows of X. A run that was fitted again since is loaded again."""

    def __init__(self, run: Path, X: Floats | FeatureRows | pd.DataFrame):
        self._run, self._X = run, X
        self._mark, self._estimator = self._load()

    def _load(self) -> tuple[str, Any]:
        from pdcc.estimator import VolMaxDCC

        return self._fingerprint(), VolMaxDCC.load(self._run)

    def _fingerprint(self) -> str:
        from pdcc.storage.files import RUN_MARK, file_hash  # with torch, which random pairs need not wait for

        return file_hash(self._run / RUN_MARK)

    def __call__(self, n: int, exclude: Ints) -> pd.DataFrame:
        if self._fingerprint() != self._mark:
            self._mark, self._estimator = self._load()
            logger.info("%s was fitted again: pairs are suggested by the new fit", self._run)
        left = len(self._X) * (len(self._X) - 1) // 2 - len(np.unique(pair_numbers(exclude)))
        n = min(n, left)
        if n < 1:
            return pd.DataFrame(columns=COLUMNS)
        table: pd.DataFrame = self._estimator.suggest_pairs(self._X, n=n, exclude=exclude, random_state=len(exclude))
        return table


def check_table(table: pd.DataFrame, n_items: int) -> pd.DataFrame:
    """The table of a source, or a ``PairDataError``: what it names must be there, and be pairs of N items."""
    if missing := [c for c in COLUMNS if c not in table.columns]:
        raise PairDataError("next pairs", ", ".join(COLUMNS), f"no {missing[0]}", "Give a table with all of them.")
    i, j = (table[c].to_numpy() for c in ("i", "j"))
    bad = np.ones(len(table), bool)
    if i.dtype.kind in "iu" and j.dtype.kind in "iu":
        bad = (np.minimum(i, j) < 0) | (np.maximum(i, j) >= n_items) | (i == j)
    if bad.any():
        row = int(bad.argmax())
        found = f"{i[row]!r} and {j[row]!r}"
        raise PairDataError("next pairs", f"two different rows below {n_items}", found, "Give row numbers.", row)
    return table[COLUMNS]
