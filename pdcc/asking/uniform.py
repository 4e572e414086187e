"""Pairs drawn uniformly, without a list of all of them."""

import numpy as np
import pandas as pd

from pdcc.arrays import Ints


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

    def __init__(self, n_items: int, random_state: int | np.random.Generator | None = None):
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
