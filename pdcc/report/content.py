"""Everything a report shows, before any of it is words or pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pdcc.arrays import Float64, Floats, Ints
from pdcc.criticism.calibration import Calibration
from pdcc.fitted import FitReport
from pdcc.identifiability.diagnose import Diagnosis


class Part(StrEnum):
    """What a report can do without; where it is absent, a sentence says why."""

    DIAGNOSIS = "diagnosis"
    CALIBRATION = "calibration"
    ANNOTATORS = "annotators"
    DOUBTFUL = "doubtful answers"
    SUGGESTED = "suggested pairs"
    HISTORY = "history"


@dataclass(frozen=True)
class Facts:
    """Where a result comes from.

    run: its name. written: the day of the report. hashes: SHA-256 of the data and the model by what they are of. options: parameters of
    the fit.
    """

    run: str
    written: str
    estimator: str
    seed: int | None
    versions: Mapping[str, str]
    hashes: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Looks:
    """What items look like to a person, by row number, where given: texts, and images as files or as pixels.

    Pixels are whole numbers from 0 to 255 (uint8), of shape (height, width) or (height, width, 3).
    """

    texts: Mapping[int, str] = field(default_factory=dict)
    images: Mapping[int, Path | NDArray[np.uint8]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportContent:
    """N items in K clusters, M answers, and what was found out about them.

    names: (N,) of the items, as answers call them. memberships: (N, K). labels: (N,). sample: (n,), row
    numbers of the items that maps show; sampled: (n, d), their features as the model takes them. agreement: B, (K, K). free: whether the confusion was free.
    n_annotators: 0 where they are not known. annotators: a table with the columns annotator, answers, reliability, low, high,
    confuses, flag. doubtful: one row per answer, in their order, with the columns i, j, similar, annotator (where known), expected, wrong,
    reason. suggested: i, j, gain, chosen_by, probability; stopping: the sentence on when to stop. absent: why a part is None.
    """

    facts: Facts
    names: tuple[Any, ...]
    memberships: Float64
    labels: Ints
    sample: Ints
    sampled: Floats
    n_answers: int
    n_annotators: int
    agreement: Float64
    free: bool
    fit: FitReport
    message: str
    history: tuple[Mapping[str, float], ...]
    diagnosis: Diagnosis | None = None
    calibration: Calibration | None = None
    annotators: pd.DataFrame | None = None
    doubtful: pd.DataFrame | None = None
    suggested: pd.DataFrame | None = None
    stopping: str | None = None
    looks: Looks = field(default_factory=Looks)
    absent: Mapping[Part, str] = field(default_factory=dict)

    @property
    def n_items(self) -> int:
        """N."""
        return len(self.names)

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.memberships.shape[1])
