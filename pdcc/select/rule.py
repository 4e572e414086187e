"""The one rule for "better".

Answers decide: of several candidates the one is chosen that predicts left-out answers best. Where features show
separate clusters, they may overrule that: people share mistakes, features make others. And of settings of one
partition that answers cannot tell apart, the simpler one is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdcc.arrays import Float64, Ints
from pdcc.data.degrees import weighed
from pdcc.data.pairs import PairData
from pdcc.select.numbers import ERRORS, OVERRULED, SAME, SURE
from pdcc.select.score import standard_error

# What was compared: one dict for each candidate.
Rows = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Evidence:
    """What answers and features say of a candidate.

    nll (M,): nats of each answer by a fit that did not see it. support: nats that neighbours tell about an item's
    cluster, the mean over items. entropy: of the clusters, the most they could tell.
    """

    name: str
    nll: Float64
    support: float
    entropy: float

    @property
    def sure(self) -> bool:
        """Whether features show these clusters as separate ones."""
        return self.entropy > 0 and self.support >= SURE * self.entropy


@dataclass(frozen=True)
class Choice:
    """The chosen candidate's number, a sentence that says why, and a table of all. best: the one that
    predicts left-out answers best. overruled: features chose against it."""

    index: int
    best: int
    reason: str
    table: Rows
    overruled: bool = False


def choose(candidates: Sequence[Evidence], data: PairData) -> Choice:
    """The candidate that predicts left-out answers best, unless features overrule it.

    Of all candidates within ``OVERRULED`` standard errors of the best one, take those that features support most, to
    ``SAME`` nats, and of these the one that predicts best. If features are ``sure`` of it, it is chosen.
    """
    nll, behind, errors = _compared(candidates, data)
    best = int(behind.argmin())
    near = np.flatnonzero(behind <= OVERRULED * errors)
    support = np.array([candidates[int(k)].support for k in near])
    supported = near[support >= support.max() - SAME]
    top = int(supported[nll[supported].argmin()])
    index = top if candidates[top].sure else best
    name, leader = candidates[index].name, candidates[best].name
    reason = f"{name} predicts left-out answers best ({nll[best]:.4f} nats each)"
    if index != best:
        reason = (
            f"{name}: features show these clusters as separate ones ({candidates[index].support:.2f} nats of "
            f"{candidates[index].entropy:.2f}). {leader} predicts left-out answers better ({nll[best]:.4f} nats each, "
            f"not {nll[index]:.4f}), but by less than {OVERRULED:g} standard errors ({errors[index]:.4f})"
        )
    return Choice(index, best, reason, _table(candidates, nll, behind, errors, near), index != best)


def choose_simplest(candidates: Sequence[Evidence], data: PairData) -> Choice:
    """The first of the candidates, simplest first, within ``ERRORS`` standard errors of the best: settings of one partition."""
    nll, behind, errors = _compared(candidates, data)
    near = np.flatnonzero(behind <= ERRORS * errors)
    index, best = int(near[0]), int(behind.argmin())
    name = candidates[index].name
    reason = f"{name} predicts left-out answers best ({nll[best]:.4f} nats each)"
    if index != best:
        reason = (
            f"{name} ({nll[index]:.4f} nats each) is the simplest within {ERRORS:g} standard error of the best, "
            f"{candidates[best].name} ({nll[best]:.4f})"
        )
    return Choice(index, best, reason, _table(candidates, nll, behind, errors, near))


def better(one: Evidence, other: Evidence, data: PairData, errors: float) -> bool:
    """Whether a candidate predicts left-out answers better than another, by so many standard errors."""
    gain = weighed(other.nll, data) - weighed(one.nll, data)
    return bool(gain.mean() > errors * standard_error(gain, data))


def _compared(candidates: Sequence[Evidence], data: PairData) -> tuple[Float64, Float64, Float64]:
    """Mean nats, how far behind the best these are, and the standard errors of that."""
    each = [weighed(one.nll, data) for one in candidates]
    nll = np.array([float(one.mean()) for one in each])
    best = int(nll.argmin())
    errors = np.array([standard_error(one - each[best], data) for one in each])
    return nll, nll - nll[best], errors


def _table(candidates: Sequence[Evidence], nll: Float64, behind: Float64, errors: Float64, near: Ints) -> Rows:
    return tuple(
        {
            "setting": one.name, "nll": float(nll[k]), "behind_best": float(behind[k]),
            "standard_error": float(errors[k]), "support": one.support, "near": bool(k in near),
        }
        for k, one in enumerate(candidates)
    )  # fmt: skip
