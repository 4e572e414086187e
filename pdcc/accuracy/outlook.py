"""What would it take? The accuracy of fits to a quarter, a half and most of the answers, carried on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdcc.arrays import Float64

GOALS = (0.8, 0.9, 0.95, 0.99)
# Beyond so many times the answers there are, a curve is carried too far to be called a number.
FARTHEST = 20.0


@dataclass(frozen=True)
class Outlook:
    """accuracy: by number of answers. goal: what is aimed at; more: how many more answers reach it, with its 90 % interval; inf: none."""

    accuracy: dict[int, float]
    goal: float
    more: float
    interval: tuple[float, float]
    n_answers: int

    def __str__(self) -> str:
        first, last = min(self.accuracy), max(self.accuracy)
        course = f"with {first:,} answers {100 * self.accuracy[first]:.0f} %, with all {last:,} {100 * self.accuracy[last]:.0f} %"
        far = FARTHEST * self.n_answers
        if self.goal == 1.0:
            return f"More answers of this kind can hardly raise that, and would narrow the interval ({course})."
        if self.interval[0] > far:
            return (
                f"More answers of this kind will hardly help ({course}): ask other annotators, or find other features."
            )
        if self.more > far or (self.interval[1] > far and self.interval[0] < self.n_answers / 10):
            return f"What more answers of this kind would bring is open ({course})."
        low, high = (f"{_round(m):,}" if m <= FARTHEST * self.n_answers else "far more" for m in self.interval)
        return f"About {_round(self.more):,} more answers of this kind ({low} to {high}) for {100 * self.goal:.0f} % ({course})."


def look_ahead(n_answers: int, shares: Sequence[float], losses: Float64, full: Float64, target: float) -> Outlook:
    """loss = scale * M^-rate through the losses (draws, shares) of fits to ``shares`` and those with all answers, (draws,); the first row is
    the estimate, the others are draws around it."""
    sizes = np.log(np.array([*shares, 1.0]))
    curve = np.log(np.column_stack([losses, full]).clip(1e-4))
    centred = sizes - sizes.mean()
    rate = -(curve @ centred) / (centred @ centred)
    now = 1 - float(full[0])
    goal = target if now < target else next((g for g in GOALS if g > now + 0.01), 1.0)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        factor = np.exp((np.log(full.clip(1e-4)) - math.log(max(1 - goal, 1e-4))) / rate)
    factor = np.where(full <= 1 - goal, 1.0, np.where(rate > 0.02, factor, np.inf))
    more = n_answers * (factor - 1)
    low, high = np.quantile(more[1:], [0.05, 0.95], method="inverted_cdf")
    means = {round(s * n_answers): float(1 - loss) for s, loss in zip(shares, losses[0], strict=True)}
    return Outlook(
        {**dict(sorted(means.items())), n_answers: now}, goal, float(more[0]), (float(low), float(high)), n_answers
    )


def _round(value: float) -> int:
    """To two figures."""
    return int(float(f"{max(value, 1.0):.1e}"))
