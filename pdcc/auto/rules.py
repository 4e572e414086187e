"""Pure rules: what is compared, and which of it answers about new items choose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pdcc.arrays import Float64
from pdcc.auto.calibration import AUTO_VOLUME
from pdcc.auto.signals import standard_error
from pdcc.training import Specification


@dataclass(frozen=True)
class Choice:
    """The chosen option's number, the sentence that says why, and the table of what was compared."""

    index: int
    reason: str
    table: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Selection:
    """The chosen value, the sentence that says why, and what was compared.

    table: one row per value: held_out_nll (nats per answer), behind_best, standard_error, stability (mean adjusted Rand index
    between restarts), eligible, chosen. held_out: "annotators" or "items and pairs".
    """

    parameter: str
    value: Any
    reason: str
    table: pd.DataFrame
    held_out: str


def specifications(
    confusion: str, volume: float | str, partition_weight: float, *, annotators: bool
) -> list[Specification]:
    """What is to be compared, in the order of preference among equals: see ``choose``. ``annotators``: they are told apart."""
    if confusion == "per-annotator" and not annotators:
        confusion = "stochastic"
    if confusion == "auto":
        forms = [("pooled", AUTO_VOLUME), ("per-annotator", AUTO_VOLUME), ("rates", 0.0)]
        forms = [
            (form, v if volume == "auto" else float(volume))
            for form, v in forms
            if form != "per-annotator" or annotators
        ]
    else:
        forms = [(confusion, v) for v in ((AUTO_VOLUME, 0.0) if volume == "auto" else (float(volume),))]
    return [Specification(form, v, partition_weight) for form, v in forms]


def choose(names: Sequence[str], nll: Sequence[Float64], *, errors_allowed: float = 1.0) -> Choice:
    """The first option within so many standard errors of the one that predicts best. ``nll[c]`` (M,): of every answer under option c.

    What comes first says more where answers say nothing: a volume picks among states that answers cannot tell apart
    (theorem 4.1), a partition made without answers cannot have followed their mistakes.
    """
    means = np.array([n.mean() for n in nll])
    best = int(means.argmin())
    behind = means - means[best]
    errors = errors_allowed * np.array([standard_error(n - nll[best], None) for n in nll])
    index = int(np.flatnonzero(behind <= errors)[0])
    table = tuple(
        {"setting": n, "nll": float(m), "behind_best": float(b), "standard_error": float(e)}
        for n, m, b, e in zip(names, means, behind, errors, strict=True)
    )
    why = "predicts answers best"
    if index != best:
        why = f"is within reach ({behind[index]:.4f} <= {errors[index]:.4f}) of the best, {names[best]}"
    return Choice(index, f"{names[index]} {why} ({means[index]:.4f} nats per answer)", table)
