"""What an estimator may know besides: doubtful answers, reliability of annotators, pairs to ask next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from pdcc.base import PairEstimator
from pdcc.data.pairs import PairData
from pdcc.report.content import Part

# How many pairs are suggested in a report.
N_SUGGESTED = 30
UNKNOWN = "This version of pdcc does not compute it."
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


def compute_extras(estimator: PairEstimator, X: Any, data: PairData) -> Extras:
    """What this estimator can tell of the answers it was fitted to; where it refuses, its sentence is the reason."""
    absent: dict[Part, str] = {}
    who = names_of(data)
    given = X, np.column_stack([data.i, data.j]), data.similar, who

    def ask(part: Part, name: str, *arguments: Any, **options: Any) -> Any:
        known = getattr(estimator, name, None)
        if known is None:
            absent[part] = UNKNOWN
            return None
        if not callable(known):
            return known
        try:
            return known(*arguments, **options)
        except ValueError as error:
            absent[part] = str(error)
            return None

    doubtful = ask(Part.DOUBTFUL, "audit_answers", *given)
    if doubtful is not None:
        doubtful = doubtful.assign(i=data.i, j=data.j)  # row numbers, whatever the answers called the items
    if who is None:
        annotators, absent[Part.ANNOTATORS] = None, UNNAMED
    else:
        annotators = ask(Part.ANNOTATORS, "annotator_reliability_")
    suggested = ask(Part.SUGGESTED, "suggest_pairs", X, n=N_SUGGESTED)
    stopping = None
    if isinstance(suggested, tuple):
        suggested, stopping = suggested
    return Extras(annotators, doubtful, suggested, stopping, absent)


def names_of(data: PairData) -> list[Any] | None:
    """Who gave each answer, (M,); None where that is not known."""
    return None if data.annotator is None else [data.annotator_names[a] for a in data.annotator]
