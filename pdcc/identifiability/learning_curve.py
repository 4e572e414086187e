"""Empirical learning curves: how many pairs until a score is reached, beside what the theorems ask for."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from pdcc.arrays import Float64
from pdcc.errors import expect
from pdcc.identifiability.complexity import in_words


def learning_curve(
    fit_score: Callable[[int, int], dict[str, float]], sizes: Iterable[int], seeds: Iterable[int]
) -> pd.DataFrame:
    """Scores by number of pairs: one row per (size, seed), columns n_pairs, seed and the scores ``fit_score`` returns.

    ``fit_score(n_pairs, seed)`` fits on that many pairs and scores the fit, on items or answers it has not seen.
    """
    grid = [(int(size), int(seed)) for size in sizes for seed in seeds]
    expect(len(grid) > 0, "sizes, seeds", "at least one of each", "none", "Give numbers of pairs and seeds to try.")
    return pd.DataFrame([{"n_pairs": size, "seed": seed, **fit_score(size, seed)} for size, seed in grid])


@dataclass(frozen=True)
class PairsForScore:
    """A power law ``|best - score| = floor + scale * M^-exponent`` fitted to a learning curve, and its answer.

    ``n_pairs`` reach ``target`` by the fitted curve (inf where it levels off before), ``interval`` is the 90 % bootstrap
    interval of that number, ``measured_to`` the largest size that was tried.
    """

    n_pairs: float
    interval: tuple[float, float]
    score: str
    target: float
    best: float
    floor: float
    scale: float
    exponent: float
    measured_to: int
    reason: str | None

    def predict(self, n_pairs: ArrayLike) -> Float64:
        """The fitted score at these numbers of pairs, in the units of the score."""
        loss = self.floor + self.scale * np.asarray(n_pairs, dtype=np.float64) ** -self.exponent
        return np.asarray(self.best + (loss if self.target > self.best else -loss))

    def __str__(self) -> str:
        low, high = (in_words(m) for m in self.interval)
        note = "" if self.reason is None else f". {self.reason}"
        if math.isinf(self.n_pairs):
            return f"{self.score} {self.target:g}: no number of pairs (90 % interval from {low} to {high}){note}"
        return (
            f"{self.score} {self.target:g}: about {in_words(self.n_pairs)} pairs (90 % interval {low} to {high}){note}"
        )


def pairs_for_score(
    frame: pd.DataFrame, score: str, target: float, *, best: float = 1.0, n_bootstrap: int = 200, seed: int = 0
) -> PairsForScore:
    """How many pairs until ``score`` reaches ``target``, by a power law through a learning curve.

    Fits ``|best - score| = floor + scale * M^-exponent`` (floor, scale >= 0) by least squares over runs. ``best`` is the
    perfect score, 1 for accuracy and 0 for an error. The interval resamples the runs within each size: give five seeds or
    more (in 60 simulated curves 3 seeds covered 80-85 %, 5 and 10 seeds 88-95 %). It knows nothing of whether a power
    law continues to hold, so an answer beyond ten times the largest size measured says so.
    """
    for column in ("n_pairs", score):
        expect(column in frame.columns, "frame", f"a column {column!r}", list(frame.columns), "Use learning_curve.")
    sizes, values = frame["n_pairs"].to_numpy(dtype=np.float64), frame[score].to_numpy(dtype=np.float64)
    expect(bool(np.isfinite(values).all()), score, "finite scores", "some that are not", "Drop the failed runs.")
    distinct = np.unique(sizes)
    expect(len(distinct) >= 3, "frame", "at least 3 sizes", len(distinct), "A power law has three unknowns.")
    expect(target != best, "target", f"a score short of the best, {best:g}", target, "A power law never gets there.")
    sign = 1.0 if target > best else -1.0
    losses, goal = sign * (values - best), abs(target - best)
    expect(bool((losses >= 0).all()), score, f"scores on one side of best={best:g}", values.min(), "Set best.")

    floor, scale, exponent = _power_law(sizes, losses)
    answer = _solve(floor, scale, exponent, goal)
    rng = np.random.default_rng(seed)
    runs = [losses[sizes == size] for size in distinct]
    repeated = min(len(run) for run in runs) > 1
    low, high = 1.0, math.inf
    if repeated:
        by_size = np.repeat(distinct, [len(run) for run in runs])
        answers = []
        for _ in range(n_bootstrap):
            # n resampled runs vary by (n-1)/n of what n runs do: the factor makes up for it.
            drawn = [
                run.mean() + math.sqrt(len(run) / (len(run) - 1)) * (rng.choice(run, len(run)) - run.mean())
                for run in runs
            ]
            answers.append(_solve(*_power_law(by_size, np.concatenate(drawn)), goal))
        low, high = np.quantile(answers, [0.05, 0.95], method="inverted_cdf")  # a step: no arithmetic with inf
    reason = None
    if math.isinf(answer):
        reason = f"The curve levels off at {best + sign * floor:.3g}"
    elif answer > 10 * distinct[-1]:
        reason = f"Extrapolated {answer / distinct[-1]:.0f} times beyond the {distinct[-1]:,.0f} pairs measured"
    if not repeated:
        reason = "One run per size gives no interval" + ("" if reason is None else f". {reason}")
    return PairsForScore(
        answer, (float(low), float(high)), score, target, best, floor, scale, exponent, int(distinct[-1]), reason
    )


def _power_law(sizes: Float64, losses: Float64) -> tuple[float, float, float]:
    """floor, scale, exponent of least squares; linear and non-negative in the first two once the third is fixed."""
    reference = sizes.min()  # powers of M / M_min stay near 1, whatever the exponent
    fits = []
    for exponent in np.geomspace(0.05, 4.0, 60):
        design = np.column_stack([np.ones_like(sizes), (sizes / reference) ** -exponent])
        (floor, scale), residual = nnls(design, losses)
        fits.append((residual, float(floor), float(scale * reference**exponent), float(exponent)))
    return min(fits)[1:]


def _solve(floor: float, scale: float, exponent: float, goal: float) -> float:
    """The M with floor + scale M^-exponent = goal; 1 where it is met from the start, inf where never."""
    if goal <= floor:
        return math.inf
    return float(max(1.0, (scale / (goal - floor)) ** (1 / exponent)))
