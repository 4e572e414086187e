"""A few labels one can trust: an interval that holds whatever the noise in the answers is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from pdcc.accuracy.estimate import LEVEL, Estimate
from pdcc.arrays import Bools, Float64, Ints
from pdcc.errors import PairDataError

FEWEST = 20


@dataclass(frozen=True)
class Trusted:
    """The rows (n,) of items whose true classes (n,), as numbers, are known."""

    rows: Ints
    classes: Ints


def read_trusted(given: Mapping[Any, Any] | pd.DataFrame, names: Sequence[Any]) -> Trusted:
    """{item: class}, or a table with the columns item and label, of items called ``names`` (N,)."""
    if isinstance(given, pd.DataFrame):
        for column in ("item", "label"):
            if column not in given.columns:
                found = ", ".join(map(str, given.columns[:8]))
                raise PairDataError(
                    "trusted", f"a column {column!r}", f"the columns {found}", "Name the columns item and label."
                )
        items, labels = given["item"].tolist(), given["label"].tolist()
    elif isinstance(given, Mapping):
        items, labels = list(given), list(given.values())
    else:
        raise TypeError(
            f"trusted: expected {{item: class}} or a table, found {type(given).__name__}. Pass one of them."
        )
    where = {str(name): n for n, name in enumerate(names)}
    rows = [where.get(str(item), -1) for item in items]
    if -1 in rows:
        n = rows.index(-1)
        raise PairDataError(
            "trusted", "items that were fitted", repr(items[n]), "Use the items' ids or row numbers.", n
        )
    if len(set(rows)) < len(rows):
        n = next(k for k, row in enumerate(rows) if row in rows[:k])
        raise PairDataError("trusted", "one label per item", f"two of {items[n]!r}", "Keep one of them.", n)
    missing = [n for n, label in enumerate(labels) if pd.isna(label)]
    if missing:
        raise PairDataError("trusted", "a label for every item", "an empty one", "Drop the row.", missing[0])
    if len(rows) < FEWEST:
        raise PairDataError("trusted", f"at least {FEWEST} items", str(len(rows)), "Label some more, drawn at random.")
    classes = np.unique(np.array([str(label) for label in labels]), return_inverse=True)[1]
    return Trusted(np.array(rows, dtype=np.int64), classes.astype(np.int64))


def with_trusted(labels: Ints, probability: Float64, trusted: Trusted) -> Estimate:
    """The accuracy of ``labels`` (N,) by the true classes of a few items, drawn at random.

    The items' own ``probability`` (N,) of being right takes out what it explains (prediction-powered inference): wrong or right, it
    narrows the interval at most, and never moves what it is about.
    """
    rows = trusted.rows
    right = matched(labels[rows], trusted.classes).astype(np.float64)
    n, N = len(rows), len(labels)
    p = probability[rows]
    spread = float(p.var())
    weight = 0.0 if spread == 0 else float(np.cov(right, p, ddof=0)[0, 1]) / spread * (1 - n / N)
    moved = weight * float(probability.mean() - p.mean())
    # Two more right and two more wrong (Agresti and Coull): a sample with few errors, or none, does not prove that there are few.
    share = (right.sum() + 2) / (n + 4)
    rest = right - weight * p
    unexplained = min(1.0, float(rest.var()) / max(float(right.var()), 1e-9)) * (n - 1) / (n - 2)
    variance = unexplained * share * (1 - share) / (n + 4) * (1 - n / N) + weight**2 * float(probability.var()) / N
    half = float(norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance)
    estimate = float(np.clip(right.mean() + moved, 0, 1))
    low, high = share + moved - half, share + moved + half
    return Estimate(float(np.clip(low, 0, estimate)), estimate, float(np.clip(high, estimate, 1)))


def matched(labels: Ints, classes: Ints) -> Bools:
    """Whether each label is right, (n,), clusters being named by what the *other* items say, so that no item vouches for itself."""
    names, codes = np.unique(classes, return_inverse=True)
    counts = np.zeros((int(labels.max()) + 1, len(names)))
    np.add.at(counts, (labels, codes), 1)
    out = np.zeros(len(labels), dtype=bool)
    cache: dict[tuple[int, int], bool] = {}
    for n, (k, c) in enumerate(zip(labels.tolist(), codes.tolist(), strict=True)):
        if (k, c) not in cache:
            counts[k, c] -= 1
            rows, columns = linear_sum_assignment(counts, maximize=True)
            cache[k, c] = bool(counts[k, c] > 0 and c in columns[rows == k])
            counts[k, c] += 1
        out[n] = cache[k, c]
    return out
