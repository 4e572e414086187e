"""Pure rules: what is compared, and which of it answers about new items choose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pdcc.arrays import Float64
from pdcc.auto.calibration import AUTO_VOLUME
from pdcc.auto.signals import standard_error
from pdcc.notebook import as_paragraphs, as_table
from pdcc.training import Specification

# What was compared: one dict per setting.
Rows = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Choice:
    """The chosen option's number, the sentence that says why, and the table of what was compared."""

    index: int
    reason: str
    table: Rows


@dataclass(frozen=True)
class Selection:
    """The chosen value, the sentence that says why, and what was compared.

    table: one row per value: held_out_nll (nats per answer), behind_best, standard_error, stability (mean adjusted Rand index
    between restarts), eligible, chosen. held_out: "annotators" or "items and pairs".

    Examples:
        >>> import numpy as np
        >>> from pdcc import select_n_clusters
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> found = select_n_clusters(X, pairs, pairs[:, 0] // 20 == pairs[:, 1] // 20, candidates=(2, 3, 4))
        >>> found.parameter, found.value, found.table["chosen"].tolist()
        ('n_clusters', 3, [False, True, False])
    """

    parameter: str
    value: Any
    reason: str
    table: pd.DataFrame
    held_out: str

    def _repr_html_(self) -> str:
        """The reason and the table, for notebooks."""
        return as_paragraphs(self.reason) + as_table(self.table)


def specifications(
    confusion: str, volume: float | str, partition_weight: float, *, annotators: bool
) -> list[Specification]:
    """What is to be compared, in the order of preference among equals: see ``choose``. ``annotators``: they are told apart."""
    if confusion == "per-annotator" and not annotators:
        confusion = "stochastic"
    if confusion != "auto":
        forms = [(confusion, AUTO_VOLUME), (confusion, 0.0)] if volume == "auto" else [(confusion, 0.0)]
    else:
        forms = [("pooled", AUTO_VOLUME), ("per-annotator", AUTO_VOLUME), ("none", 0.0)]
    chosen = [(form, v if volume == "auto" else float(volume)) for form, v in forms]
    return [Specification(form, v, partition_weight) for form, v in chosen if annotators or form != "per-annotator"]


def within_reach(nll: Sequence[Float64], errors_allowed: float = 1.0) -> list[bool]:
    """Which options predict within so many standard errors of the best; ``nll[c]`` (M,): of every answer under option c."""
    best = min(nll, key=lambda n: float(n.mean()))
    return [bool((n - best).mean() <= errors_allowed * standard_error(n - best, None)) for n in nll]


def choose(
    names: Sequence[str],
    nll: Sequence[Float64],
    prefer: Sequence[float] | None = None,
    *,
    allowed: Sequence[bool] | None = None,
) -> Choice:
    """Of the ``allowed`` options within one standard error of the one that predicts best, the one with the highest ``prefer``, or the first.

    ``nll[c]`` (M,): of every answer under option c. What is preferred says more where answers say nothing: a volume picks among
    states that answers cannot tell apart (theorem 4.1).
    """
    means = np.array([n.mean() for n in nll])
    may = np.ones(len(nll), dtype=bool) if allowed is None else np.array(allowed)
    best = int(np.where(may, means, np.inf).argmin())
    errors = np.array([standard_error(n - nll[best], None) for n in nll])
    near = may & (means - means[best] <= errors)
    liked = -np.arange(len(nll)) if prefer is None else np.array(prefer)
    index = int(np.where(near, liked, -np.inf).argmax())
    table = tuple(
        {"setting": n, "nll": float(m), "behind_best": float(b), "standard_error": float(e)}
        for n, m, b, e in zip(names, means, means - means.min(), errors, strict=True)
    )
    leading = int(means.argmin())
    if leading != best:
        reason = f"{names[index]} is taken ({means[index]:.4f} nats per answer): {names[leading]} ({means[leading]:.4f}) is not shown to predict better by a standard error"
    elif index == best:
        reason = f"{names[best]} predicts answers best ({means[best]:.4f} nats per answer)"
    else:
        reason = f"{names[index]} ({means[index]:.4f} nats per answer) is within one standard error ({errors[index]:.4f}) of the best, {names[best]} ({means[best]:.4f})"
    return Choice(index, reason, table)
