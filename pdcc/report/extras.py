"""What an estimator may know besides: doubtful answers, reliability of annotators, pairs to ask next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from pdcc.asking.audit import audit_answers
from pdcc.asking.crossfit import cross_fit
from pdcc.asking.reliability import annotator_reliability
from pdcc.asking.stopping import expect_from
from pdcc.asking.suggest import suggest_pairs
from pdcc.base import PairEstimator
from pdcc.data.pairs import PairData
from pdcc.report.content import Part

# How many pairs are suggested in a report.
N_SUGGESTED = 30
UNNAMED = "The answers do not say who gave them."


@dataclass(frozen=True)
class Extras:
    """Tables with the columns that ``ReportContent`` names, None where they are absent, and then why."""

    annotators: pd.DataFrame | None = None
    doubtful: pd.DataFrame | None = None
    suggested: pd.DataFrame | None = None
    stopping: str | None = None
    absent: Mapping[Part, str] = field(default_factory=dict)

    @classmethod
    def nothing(cls, reason: str) -> "Extras":
        """None of them, for one reason."""
        return cls(absent=dict.fromkeys((Part.ANNOTATORS, Part.DOUBTFUL, Part.SUGGESTED), reason))


def compute_extras(
    estimator: PairEstimator, data: PairData, *, random_state: int = 0, progress: bool = False
) -> Extras:
    """Doubtful answers, reliability and suggestions by fits to parts of the answers; where that cannot be, its sentence is the reason."""
    try:
        found = cross_fit(estimator.fitted_, data, seed=random_state, progress=progress)
    except ValueError as error:
        return Extras.nothing(str(error))
    doubtful = audit_answers(estimator.fitted_, data, found=found)
    annotators = None if data.annotator is None else annotator_reliability(data, doubtful)
    absent = {Part.ANNOTATORS: UNNAMED} if annotators is None else {}
    n = min(N_SUGGESTED, data.n_items * (data.n_items - 1) // 2)
    suggested = suggest_pairs(found.beliefs, found.agreement, n=n, random_state=random_state)
    stopping = str(expect_from(found.beliefs, found.agreement, suggested))
    doubtful = doubtful.assign(i=data.i, j=data.j)  # row numbers, whatever the answers called the items
    return Extras(annotators, doubtful, suggested, stopping, absent)


def names_of(data: PairData) -> list[Any] | None:
    """Who gave each answer, (M,); None where that is not known."""
    return None if data.annotator is None else [data.annotator_names[a] for a in data.annotator]
