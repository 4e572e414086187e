"""The verdicts: from what was measured to one of three words for every question."""

from collections.abc import Mapping
from enum import StrEnum

from pdcc.accuracy.estimate import Estimate
from pdcc.identifiability.conditions import ConditionId, Verdict

# Frozen on simulated settings of other seeds than those reported in docs/results.md. A membership MSE of .03 or less is
# as likely as not where the spread of solutions is HALF: less under a free confusion, where the volume term leads all of them astray alike.
HALF = {False: 0.06, True: 0.038}
STEEPNESS = 4
SUPPORTED, DENIED = 0.7, 0.45
FEWEST = 4


class Overall(StrEnum):
    """What the answers say to a question."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    CANNOT_TELL = "cannot tell"


class Question(StrEnum):
    """What is asked: are enough labels right, items settled, clusters settled; are soft memberships determined; does the model fit?"""

    LABELS = "labels"
    ITEMS = "items"
    CLUSTERS = "clusters"
    MEMBERSHIPS = "memberships"
    MODEL = "model"


def reached(found: Estimate, target: float) -> Overall:
    """Whether a share reaches the target: all of its interval, none of it, or it cannot be told."""
    if found.low is None or found.high is None:
        return Overall.CANNOT_TELL
    return three(found.low >= target, found.high < target)


def three(yes: bool, no: bool) -> Overall:
    """One of three words."""
    return Overall.SUPPORTED if yes else Overall.NOT_SUPPORTED if no else Overall.CANNOT_TELL


def judge_memberships(
    verdicts: Mapping[ConditionId, Verdict], spread: float | None, n_restarts: int, free: bool
) -> tuple[Overall, float]:
    """(verdict, score) from the conditions' verdicts and the spread of solutions around the fitted memberships.

    The spread is how far fits to most of the answers lie from them, the middle one of these, plus how far posterior draws do on average (membership MSE).
    The score is a falling function of it alone. A condition without which no theorem or no model stands
    can only take support away, never give it; nor is there support from fewer than ``FEWEST`` restarts, which can miss other optima.
    """
    if spread is None:  # too few answers to fit again to a part of them
        return Overall.CANNOT_TELL, 0.5
    score = 1 / (1 + (min(spread, 2.0) / HALF[free]) ** STEEPNESS)
    if score < DENIED or verdicts[ConditionId.RANK] is Verdict.FAILS:
        return Overall.NOT_SUPPORTED, min(score, DENIED)
    needed = (ConditionId.SCATTER, ConditionId.FUNCTION_CLASS, ConditionId.ALTERNATIVES)
    vetoed = any(verdicts[name] is Verdict.FAILS for name in needed) or n_restarts < FEWEST
    return three(score >= SUPPORTED and not vetoed, False), score
