"""A few pair answers one can trust: how pure the clusters are, and how right the labels at least and at most, whatever the noise.

Of two items of cluster k, drawn with replacement, a share P_k is of one class. Its largest class holds a share U_k of it with P_k <= U_k <= sqrt P_k,
since max p >= sum p^2 >= (max p)^2. Over clusters, weighed by items: Q <= purity <= sqrt Q, and accuracy is at most purity.
It is less where the largest class of a cluster has its largest part in another one. Each such cluster, with a share x_k of all items in that part, makes
2 x_k^2 of all (ordered) pairs of one class that clusters keep apart; these are a share e of all. So sum x_k^2 <= e / 2 over these clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta, norm

from pdcc.accuracy.estimate import LEVEL, Estimate
from pdcc.arrays import Bools, Float64, Ints
from pdcc.errors import PairDataError
from pdcc.validation import check_count, check_similar

# Of pairs within clusters, and of pairs across.
FEWEST = 10
# Bounds that rest on two rates take each of them at this level, so that both hold at ``LEVEL``.
BOTH = 1 - (1 - LEVEL) / 2


@dataclass(frozen=True)
class TrustedPairs:
    """Pairs of rows i, j (n,), whether they are of one class (n,), and the chance with which each was drawn, up to a factor (n,)."""

    i: Ints
    j: Ints
    similar: Bools
    probability: Float64


@dataclass(frozen=True)
class PairReport:
    """Shares with 90 % intervals: accuracy, purity, and precision and recall of pairs in one cluster."""

    accuracy: Estimate
    purity: Estimate
    precision: Estimate
    recall: Estimate


def read_trusted_pairs(given: pd.DataFrame, names: Sequence[Any]) -> TrustedPairs:
    """A table with the columns i, j, similar and optionally probability, of items called ``names`` (N,)."""
    for column in ("i", "j", "similar"):
        if column not in given.columns:
            found = ", ".join(map(str, given.columns[:8]))
            raise PairDataError(
                "trusted", f"a column {column!r}", f"the columns {found}", "Name the columns i, j and similar."
            )
        if given[column].isna().any():
            row = int(given[column].isna().to_numpy().argmax())
            raise PairDataError("trusted", f"a value of {column} in every row", "an empty cell", "Drop the row.", row)
    where = {str(name): n for n, name in enumerate(names)}
    ends = np.array([[where.get(str(v), -1) for v in given[end].tolist()] for end in ("i", "j")], dtype=np.int64)
    if (ends < 0).any():
        row = int((ends < 0).any(axis=0).argmax())
        found = repr(given["i" if ends[0, row] < 0 else "j"].iloc[row])
        raise PairDataError("trusted", "items that were fitted", found, "Use the items' ids or row numbers.", row)
    if (ends[0] == ends[1]).any():
        row = int((ends[0] == ends[1]).argmax())
        raise PairDataError("trusted", "pairs of two items", "an item with itself", "Drop the row.", row)
    chance = np.ones(len(given))
    if "probability" in given.columns:
        chance = pd.to_numeric(given["probability"], errors="coerce").to_numpy(dtype=np.float64)
        bad = ~(np.isfinite(chance) & (chance > 0))
        if bad.any():
            row = int(bad.argmax())
            found = repr(given["probability"].iloc[row])
            fix = "Give the chance with which every pair was drawn, or leave the column out for uniform draws."
            raise PairDataError("trusted", "a probability above 0 in every row", found, fix, row)
    return TrustedPairs(ends[0], ends[1], check_similar(given["similar"].to_numpy()), chance)


def check_drawn(trusted: TrustedPairs, labels: Ints) -> None:
    """Raise where there are too few pairs within clusters, or across them, to say anything."""
    within = int((labels[trusted.i] == labels[trusted.j]).sum())
    for n, where in ((within, "within clusters"), (len(trusted.i) - within, "across clusters")):
        if n < FEWEST:
            fix = "Draw half of them within clusters: pdcc suggest --trusted, or draw_trusted in Python."
            raise PairDataError("trusted", f"at least {FEWEST} pairs {where}", str(n), fix)


def draw_trusted(labels: Ints, n: int = 100, *, random_state: int = 0) -> pd.DataFrame:
    """``n`` pairs of rows to be answered by someone to trust: i, j, probability; half are within clusters, in random order.

    Within clusters an item is drawn, and then another one of its cluster; across them all pairs are equally likely.
    """
    check_count("n", n, 2 * FEWEST)
    check_count("random_state", random_state, 0)
    rng = np.random.default_rng(random_state)
    size = np.bincount(labels)
    several = np.flatnonzero(size[labels] > 1)
    if not len(several) or (size > 0).sum() < 2:
        raise ValueError(
            "labels: expected two clusters or more, with two items in one of them, found fewer. Fit again."
        )
    order = np.argsort(labels, kind="stable")
    start = np.cumsum(size) - size
    i = rng.choice(several, size=n // 2)
    place = np.empty(len(labels), dtype=np.int64)
    place[order] = np.arange(len(labels)) - start[labels[order]]
    # Any place of the cluster but the item's own.
    step = 1 + (rng.random(len(i)) * (size[labels[i]] - 1)).astype(np.int64)
    j = order[start[labels[i]] + (place[i] + step) % size[labels[i]]]
    rows = [np.column_stack([i, j])]
    wanted = n - len(i)
    while wanted:
        more = rng.integers(len(labels), size=(4 * wanted + 16, 2))
        more = more[labels[more[:, 0]] != labels[more[:, 1]]][:wanted]
        rows.append(more)
        wanted -= len(more)
    ends = np.concatenate(rows)
    total = (len(labels) ** 2 - float(np.square(size).sum())) / 2
    chance = np.where(
        np.arange(n) < len(i), 2 / (len(several) * np.maximum(size[labels[ends[:, 0]]] - 1, 1)), 1 / total
    )
    return pd.DataFrame({"i": ends[:, 0], "j": ends[:, 1], "probability": chance}).sample(
        frac=1, random_state=random_state, ignore_index=True
    )


def with_trusted_pairs(labels: Ints, beliefs: Float64, trusted: TrustedPairs) -> PairReport:
    """What pairs drawn at random, within clusters and across them, tell of ``labels`` (N,).

    Within each of the two kinds they were drawn uniformly, or with the probabilities given, each on its own. ``beliefs`` (N, K) of the items'
    classes take out what they explain of pairs within clusters: wrong or right, they narrow an interval at most.
    """
    N, size = len(labels), np.bincount(labels).astype(np.float64)
    within = labels[trusted.i] == labels[trusted.j]
    i, j = trusted.i[within], trusted.j[within]
    y, s = trusted.similar[within].astype(np.float64), (beliefs[i] * beliefs[j]).sum(axis=1)
    drawn = 1 / trusted.probability[within]
    of_pairs, of_items = _expected(labels, beliefs)
    apart, kept = trusted.similar[~within].astype(np.float64), 1 / trusted.probability[~within]
    # An item is of its own class, and would be its own partner once in so many draws.
    alone = float((size > 0).sum() / N)
    by_item = drawn / size[labels[i]]
    q = {level: alone + (1 - alone) * _rate(y, s, by_item, of_items, level) for level in (LEVEL, BOTH)}
    p = {level: _rate(y, s, drawn, of_pairs, level) for level in (LEVEL, BOTH)}
    split = _rare(apart, kept, BOTH)
    share = float((size * (size - 1)).sum() / (N * (N - 1)))
    recall = [share * a / max(share * a + (1 - share) * b, 1e-12) for a, b in zip(p[BOTH], split[::-1], strict=True)]
    e = float(split[2] * (1 - np.square(size / N).sum()))
    low = q[BOTH][0] - most_split(q[BOTH][0], e, size / N)
    high = float(np.sqrt(q[BOTH][2]))
    guess = float((1 + np.sqrt(max(2 * q[LEVEL][1] - 1, 0.0))) / 2) if q[LEVEL][1] >= 0.5 else float(q[LEVEL][1])
    return PairReport(
        accuracy=_estimate(low, guess, high),
        purity=_estimate(q[LEVEL][0], guess, float(np.sqrt(q[LEVEL][2]))),
        precision=_estimate(*p[LEVEL]),
        recall=_estimate(*recall),
    )


def most_split(q: float, e: float, weight: Float64) -> float:
    """At most this share of all items is in the largest class of a cluster, while most of that class is elsewhere.

    q: at least so much is Q; e: at most this share of all ordered pairs is of one class in two clusters; weight: (K,) of clusters, in items.
    For s such clusters sum x_k <= sqrt(s e / 2), and Q <= 1 - sum (weight_k - x_k).
    """
    small = np.sort(weight[weight > 0])
    worst = 0.0
    for s in range(1, len(small)):
        most = float(np.sqrt(s * e / 2))
        if small[:s].sum() - most <= 1 - q:
            worst = max(worst, min(most, float(small[-s:].sum())))
    return worst


def _expected(labels: Ints, beliefs: Float64) -> tuple[float, float]:
    """How often two items of one cluster are believed to be of one class: all pairs alike, and clusters weighed by their items."""
    size = np.bincount(labels).astype(np.float64)
    sums = np.zeros((len(size), beliefs.shape[1]))
    np.add.at(sums, labels, beliefs)
    alone = np.bincount(labels, np.square(beliefs).sum(axis=1), minlength=len(size))
    together = np.square(sums).sum(axis=1) - alone
    n = size * (size - 1)
    each = np.maximum(size, 1)
    return float(together.sum() / max(n.sum(), 1.0)), float((together / each).sum() / max((n / each).sum(), 1e-12))


def _rate(y: Float64, s: Float64, h: Float64, mean: float, level: float) -> Float64:
    """(low, estimate, high) of the mean of y (n,) under weights h (n,), with s (n,) known to be ``mean`` on average."""
    # As with trusted labels: two more of either kind, about which beliefs say nothing, and residuals as they are where a pair is left out.
    more = np.concatenate([y, [1.0, 1.0, 0.0, 0.0]])
    own = float(np.average(s, weights=h))
    known = np.concatenate([s, np.full(4, own)])
    weight = np.concatenate([h / h.mean(), np.ones(4)])
    weight /= weight.sum()
    centre, off = float(weight @ more), known - weight @ known
    total = float(weight @ np.square(off))
    slope = 0.0 if total == 0 else float(np.clip(weight @ (more * off) / total, 0.0, 1.0))
    pull = weight * (1 + (np.square(off) / total if total else 0.0))
    residual = (more - centre - slope * off) / np.maximum(1 - pull, 0.1)
    variance = min(float(np.square(weight * residual).sum()), float(np.square(weight * (more - centre)).sum()))
    half = float(norm.ppf((1 + level) / 2)) * np.sqrt(variance)
    moved = slope * (mean - own)
    estimate = float(np.average(y, weights=h)) + moved
    ends = [min(centre + moved - half, estimate), estimate, max(centre + moved + half, estimate)]
    return np.asarray(np.clip(ends, 0.0, 1.0), dtype=np.float64)


def _rare(y: Float64, h: Float64, level: float) -> Float64:
    """(low, estimate, high) of a mean of few ones among y (n,) under weights h (n,): Clopper and Pearson, of as many as the weights leave."""
    n = float(h.sum() ** 2 / np.square(h).sum())
    rate = float(np.average(y, weights=h))
    hits, tail = n * rate, (1 - level) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits >= n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return np.array([low, rate, high])


def _estimate(low: float, value: float, high: float) -> Estimate:
    low, high = float(np.clip(low, 0, 1)), float(np.clip(high, 0, 1))
    return Estimate(low, float(np.clip(value, low, high)), high)
