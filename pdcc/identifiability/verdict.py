"""The verdict: from the conditions' verdicts and the spread of solutions to one word and a score."""

from collections.abc import Mapping
from enum import StrEnum

from pdcc.identifiability.conditions import ConditionId, Verdict

# Frozen on simulated settings of other seeds than those reported in docs/results.md. A membership MSE of .03 or less is
# as likely as not where the spread of solutions is HALF: less under a free confusion, where the volume term leads all of them astray alike.
HALF = {False: 0.06, True: 0.038}
STEEPNESS = 4
SUPPORTED, DENIED = 0.7, 0.45
FEWEST = 4


class Overall(StrEnum):
    """Whether the answers single out the fitted memberships."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    CANNOT_TELL = "cannot tell"


def judge(
    verdicts: Mapping[ConditionId, Verdict], spread: float | None, n_restarts: int, free: bool
) -> tuple[Overall, float]:
    """(overall, score) from the conditions' verdicts and the spread of solutions around the fitted memberships.

    The spread is how far refits that predict as well lie from them, on average, plus how far posterior draws do (membership MSE).
    The score is a falling function of it alone. A condition without which no theorem or no model stands
    can only take support away, never give it; nor is there support from fewer than ``FEWEST`` restarts, which can miss other optima.
    """
    if spread is None:  # no other solution predicts as well: nothing to compare with
        return Overall.CANNOT_TELL, 0.5
    score = 1 / (1 + (min(spread, 2.0) / HALF[free]) ** STEEPNESS)
    if score < DENIED or verdicts[ConditionId.RANK] is Verdict.FAILS:
        return Overall.NOT_SUPPORTED, min(score, DENIED)
    vetoed = (
        Verdict.FAILS in (verdicts[ConditionId.SCATTER], verdicts[ConditionId.FUNCTION_CLASS]) or n_restarts < FEWEST
    )
    return (Overall.SUPPORTED if score >= SUPPORTED and not vetoed else Overall.CANNOT_TELL), score
