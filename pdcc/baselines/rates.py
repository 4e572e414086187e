"""Two rates turn any memberships into pair probabilities: how often "similar" is said within a cluster, and across."""

import numpy as np
from numpy.typing import ArrayLike

from pdcc.arrays import Float64
from pdcc.data.degrees import nats
from pdcc.data.pairs import PairData

# Half an answer of each kind, at either rate: keeps both off 0 and 1, where one surprise costs infinity.
PRIOR = 0.5
MAX_STEPS = 500
TOLERANCE = 1e-9


def together(F: ArrayLike, data: PairData) -> Float64:
    """<m_i, m_j>, the probability (M,) that two endpoints share a cluster, from memberships F (N, K)."""
    F = np.asarray(F, dtype=np.float64)
    return np.asarray(np.clip((F[data.i] * F[data.j]).sum(axis=1), 0.0, 1.0))


def two_rates(F: ArrayLike, data: PairData) -> tuple[float, float]:
    """(a, b): p = b + (a - b) <m_i, m_j> fitted to the answers by EM, for memberships F (N, K).

    "Similar" is said at rate a about items of one cluster and b about items of two; whether a pair is the one or
    the other is the hidden variable. The log likelihood is concave in (a, b), so there is one optimum.
    """
    s, similar = together(F, data), data.similar
    a, b = 0.75, 0.25
    for _ in range(MAX_STEPS):
        same = s * np.where(similar, a, 1 - a)
        other = (1 - s) * np.where(similar, b, 1 - b)
        t = same / (same + other)
        new_a = (t[similar].sum() + PRIOR) / (t.sum() + 2 * PRIOR)
        new_b = ((1 - t)[similar].sum() + PRIOR) / ((1 - t).sum() + 2 * PRIOR)
        step, (a, b) = max(abs(new_a - a), abs(new_b - b)), (float(new_a), float(new_b))
        if step < TOLERANCE:
            break
    return a, b


def two_rate_nll(F: ArrayLike, train: PairData, test: PairData) -> Float64:
    """Negative log-likelihood (M,) of the answers ``test``, by memberships F (N, K) and rates fitted on ``train``."""
    return rates_nll(*two_rates(F, train), F, test)


def rates_nll(a: float, b: float, F: ArrayLike, test: PairData) -> Float64:
    """Negative log-likelihood (M,) of each answer at given rates, with memberships F (N, K)."""
    p = b + (a - b) * together(F, test)
    return nats(p, test)
