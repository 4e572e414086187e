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


def read_trusted(given: Mapping[Any, Any] | pd.DataFrame | pd.Series, names: Sequence[Any]) -> Trusted:
    """{item: class}, a Series of classes by item, or a table with the columns item and label (or class), of items called ``names`` (N,)."""
    if isinstance(given, pd.DataFrame):
        known = "class" if "class" in given.columns and "label" not in given.columns else "label"
        for column in ("item", known):
            if column not in given.columns:
                found = ", ".join(map(str, given.columns[:8]))
                raise PairDataError(
                    "trusted", f"a column {column!r}", f"the columns {found}", "Name the columns item and label."
                )
        items, labels = given["item"].tolist(), given[known].tolist()
    elif isinstance(given, Mapping):
        items, labels = list(given), list(given.values())
    elif isinstance(given, pd.Series):
        items, labels = given.index.tolist(), given.tolist()
    else:
        raise TypeError(
            f"trusted: expected {{item: class}}, a Series or a table, found {type(given).__name__}. Pass one of them."
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
    narrows the interval at most, and never moves what it is about. Clusters are named by the same few items: where two classes
    share a cluster, chance decides which, and an item that is left out votes against its own. So items are judged with clusters named
    by all of them, which is hopeful, and by the others alone, which is not, and the interval holds both; where names are sure, they are one.
    """
    ways = (matched(labels[trusted.rows], trusted.classes), named(labels[trusted.rows], trusted.classes))
    found = [_by_sample(right.astype(np.float64), probability, trusted.rows) for right in ways]
    low, estimate, high = np.transpose(found)
    return Estimate(float(low.min()), float(estimate.mean()), float(high.max()))


def _by_sample(right: Float64, probability: Float64, rows: Ints) -> tuple[float, float, float]:
    """(low, estimate, high) of the share of right labels, for the items ``rows`` (n,) of which it is known, right (n,)."""
    n, N = len(rows), len(probability)
    p, rest = probability[rows], np.delete(probability, rows)
    # Two more right and two more wrong (Agresti and Coull), about which probabilities say nothing: a sample with few errors, or none,
    # proves neither that there are few nor that probabilities know which.
    more = np.concatenate([right, [1.0, 1.0, 0.0, 0.0]])
    known = np.concatenate([p, np.full(4, p.mean())])
    off = known - known.mean()
    total = float(np.square(off).sum())
    weight = 0.0 if total == 0 else float(np.clip((more @ off) / total, 0.0, 1.0))
    # Residuals as they are where an item is left out: the few errors decide the weight, and would seem explained by it.
    pull = 1 / len(more) + (np.square(off) / total if total else 0.0)
    residual = (more - more.mean() - weight * off) / np.maximum(1 - pull, 0.1)
    variance = min(float(np.square(residual).mean()), float(more.var()))
    # The items in the sample are known: the rest is a draw like it.
    moved = weight * float(rest.mean() - p.mean())
    half = float(norm.ppf((1 + LEVEL) / 2)) * math.sqrt(variance * (1 / len(more) + 1 / len(rest)))
    share, of_rest = n / N, np.array([-half, 0.0, half]) + more.mean() + moved
    low, _, high = share * right.mean() + (1 - share) * np.clip(of_rest, 0, 1)
    likely = (right.sum() + 0.5) / (n + 1)  # not all right because all of a few are
    estimate = float(share * right.mean() + (1 - share) * np.clip(likely + moved, 0, 1))
    return float(np.clip(low, 0, estimate)), estimate, float(np.clip(high, estimate, 1))


def named(labels: Ints, classes: Ints) -> Bools:
    """Whether each label is right, (n,), clusters being named by all of these items."""
    names, codes = np.unique(classes, return_inverse=True)
    counts = np.zeros((int(labels.max()) + 1, len(names)))
    np.add.at(counts, (labels, codes), 1)
    clusters, best = linear_sum_assignment(counts, maximize=True)
    name = np.full(len(counts), -1)
    name[clusters] = best
    return np.asarray(name[labels] == codes)


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
