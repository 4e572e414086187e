"""Where the next pairs come from: at random, or what a fit would ask."""

import logging
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from pdcc.arrays import Features, Ints
from pdcc.errors import PairDataError

logger = logging.getLogger(__name__)
COLUMNS = ["i", "j", "gain", "chosen_by", "probability"]


class NextPairs(Protocol):
    """The next pairs to ask about, best first."""

    def __call__(self, n: int, exclude: Ints) -> pd.DataFrame:
        """At most n pairs of row numbers, none of them in ``exclude`` (M, 2), either way round.

        Columns: i, j, gain (what is expected of the answer, nan where nothing is), chosen_by ("random" or "suggested"),
        probability (the chance with which one draw gives this pair, nan where it is not known).
        """
        ...


def pair_numbers(pairs: Ints) -> Ints:
    """A number for each pair (M, 2) of two rows, the same either way round: 0 is {0, 1}, 1 is {0, 2}, 2 is {1, 2}, ..."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    return np.asarray(high * (high - 1) // 2 + low, dtype=np.int64)


def numbered_pairs(numbers: Ints) -> Ints:
    """The pairs (M, 2), lower row first, that have these numbers."""
    high = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > numbers  # the root of a large number may be rounded up to the next row
    high += (high + 1) * high // 2 <= numbers
    return np.column_stack([numbers - high * (high - 1) // 2, high])


class RandomPairs:
    """Pairs of N items, each that is not excluded with the same chance, in random order and sides. Needs no memory of N^2."""

    def __init__(self, n_items: int, random_state: int | None = None):
        self.n_pairs = n_items * (n_items - 1) // 2
        self._rng = np.random.default_rng(random_state)

    def __call__(self, n: int, exclude: Ints) -> pd.DataFrame:
        barred = np.unique(pair_numbers(exclude))
        left = self.n_pairs - len(barred)
        if len(barred) * 2 >= self.n_pairs:  # as many as were excluded, at most: that much memory is there
            free = np.setdiff1d(np.arange(self.n_pairs), barred, assume_unique=True)
            drawn = self._rng.permutation(free)[:n]
        else:
            drawn = self._draw(min(n, left), barred)
        pairs = self._rng.permuted(numbered_pairs(drawn), axis=1)
        # Drawn one after the other, each with the same chance among those that are left.
        chances = 1.0 / (left - np.arange(len(pairs)))
        return pd.DataFrame(
            {"i": pairs[:, 0], "j": pairs[:, 1], "gain": np.nan, "chosen_by": "random", "probability": chances}
        )

    def _draw(self, n: int, barred: Ints) -> Ints:
        """n different pair numbers that are not barred, which at least half of them are not."""
        found = np.empty(0, dtype=np.int64)
        while len(found) < n:
            more = self._rng.integers(self.n_pairs, size=2 * (n - len(found)) + 8)
            more = more[~np.isin(more, barred)]
            _, first = np.unique(both := np.concatenate([found, more]), return_index=True)
            found = both[np.sort(first)]
        return found[:n]


class SuggestedPairs:
    """What the fit in a run directory would ask about the rows of X. A run that was fitted again since is loaded again."""

    def __init__(self, run: Path, X: Features):
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
        table: pd.DataFrame = self._estimator.suggest_pairs(self._X, n=n, exclude=exclude)
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
