"""Which memberships give every answer the same probability: the squeeze family, in closed form.

F_s = s F + (1 - s)/K 11' = F T with T = s I + (1 - s)/K 11', and B_s = T^-1 B T^-1, give F_s B_s F_s' = F B F'. Every item keeps its
largest membership, so labels never change along the family; how sure they look does.
"""

from dataclasses import dataclass

import numpy as np

from pdcc.arrays import Float64

SLACK = 1e-9


@dataclass(frozen=True)
class IdentifiedSet:
    """How far the family reaches. low, high: s. top: the mean largest membership at both ends and as fitted.

    It covers squeezing towards the centre and away from it; other maps that leave all probabilities alone are not covered.
    """

    low: float
    high: float
    top: tuple[float, float]
    fitted_top: float

    @property
    def width(self) -> float:
        """By how much the mean largest membership can vary."""
        return self.top[1] - self.top[0]

    def __str__(self) -> str:
        if self.width < 0.005:
            return f"the mean top membership is {self.fitted_top:.2f}, and no squeezing leaves the answers as likely"
        return f"mean top membership between {self.top[0]:.2f} and {self.top[1]:.2f} ({self.fitted_top:.2f} as fitted), labels the same"


def identified_set(memberships: Float64, agreement: Float64, free: bool) -> IdentifiedSet:
    """For memberships (N, K) and B (K, K), or one of each annotator (R, K, K), which must all allow it; one point without a free confusion."""
    F, B = memberships, agreement.reshape(-1, *agreement.shape[-2:])
    K = F.shape[1]
    top = float(F.max(axis=1).mean())
    low = high = 1.0
    if free:
        first, last = _reach(B)  # of u = 1 / s
        low, high = 1 / last, min(1 / first, 1 / max(1 - K * float(F.min()), SLACK))
    ends = [s * top + (1 - s) / K for s in (low, high)]
    return IdentifiedSet(float(low), float(high), (ends[0], ends[1]), top)


def _reach(B: Float64) -> tuple[float, float]:
    """The interval around u = 1 in which all entries of (u I + (1 - u) J) B (u I + (1 - u) J), J = 11'/K, stay in [0, 1].

    Each is a quadratic in u, so it leaves at a root: go from root to root while what lies between is valid.
    """
    K = B.shape[-1]
    J = np.full((K, K), 1 / K)
    one, two, three = B, B @ J + J @ B, J @ B @ J
    a, b, c = (x.ravel() for x in (one - two + three, two - 2 * three, three))
    roots = []
    for level in (0.0, 1.0):
        inside = b**2 - 4 * a * (c - level)
        square = np.sqrt(np.where(inside >= 0, inside, np.nan))
        with np.errstate(divide="ignore", invalid="ignore"):
            roots += [(-b + sign * square) / (2 * a) for sign in (1, -1)] + [-(c - level) / b]
    met = np.concatenate(roots)
    met = np.append(met[np.isfinite(met)], [SLACK, 1 / SLACK])  # as far as it may go

    def valid(u: float) -> bool:
        value = a * u**2 + b * u + c
        return bool(((value >= -SLACK) & (value <= 1 + SLACK)).all())

    ends = []
    for ahead in (-np.unique(-met[(met < 1 - SLACK) & (met >= SLACK)]), np.unique(met[met > 1 + SLACK])):
        at = 1.0
        for root in ahead:
            if not valid((at + root) / 2):
                break
            at = float(root)
        ends.append(at)
    return ends[0], ends[1]
