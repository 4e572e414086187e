"""When to stop: what the next batch is expected to bring."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pdcc.arrays import Float64

SIMULATIONS = 60
LEVEL = 0.9


@dataclass(frozen=True)
class Expected:
    """What a batch of answers is expected to bring: newly settled items and accuracy, each (low, mean, high) over simulated answers."""

    n_answers: int
    settled: tuple[float, float, float]
    accuracy: tuple[float, float, float]

    def __str__(self) -> str:
        low, mean, high = self.settled
        a, b, c = (100 * v for v in self.accuracy)
        return f"{self.n_answers:,} answers on these pairs are expected to settle {mean:.0f} more items ({low:.0f} to {high:.0f}) and to raise the share of right labels by {b:.1f} points ({a:.1f} to {c:.1f}), what a new fit learns from them aside; stop if that is not worth it."


def expect_from(
    beliefs: Float64, agreement: Float64, pairs: pd.DataFrame, *, level: float = 0.95, seed: int = 0
) -> Expected:
    """Draw classes from the beliefs (N, K) and answers to ``pairs`` from B, update the beliefs, and count what became of them.

    Only the items asked about are updated: a fit carries answers to similar items too, so this errs on the low side.
    """
    rng = np.random.default_rng(seed)
    i, j = pairs["i"].to_numpy(), pairs["j"].to_numpy()
    touched = np.unique(np.concatenate([i, j]))
    at_i, at_j = np.searchsorted(touched, i), np.searchsorted(touched, j)
    m = np.maximum(beliefs[touched], 1e-9)
    yes, no = np.log(np.clip(m @ agreement, 1e-9, 1)), np.log(np.clip(1 - m @ agreement, 1e-9, 1))
    open_, before = m.max(axis=1) < level, float(m.max(axis=1).sum())
    settled, right = [], []
    for _ in range(SIMULATIONS):
        truth = (rng.random((len(m), 1)) > np.cumsum(m, axis=1)[:, :-1]).sum(axis=1)
        y = rng.random(len(i)) < agreement[truth[at_i], truth[at_j]]
        told = np.log(m)
        np.add.at(told, at_i, np.where(y[:, None], yes[at_j], no[at_j]))
        np.add.at(told, at_j, np.where(y[:, None], yes[at_i], no[at_i]))
        after = np.exp(told - told.max(axis=1, keepdims=True))
        after /= after.sum(axis=1, keepdims=True)
        settled.append(float((open_ & (after.max(axis=1) >= level)).sum()))
        right.append((float(after.max(axis=1).sum()) - before) / len(beliefs))
    return Expected(len(i), _interval(settled), _interval(right))


def _interval(values: list[float]) -> tuple[float, float, float]:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(np.mean(values)), float(high)
