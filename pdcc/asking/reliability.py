"""Whom to trust: how often each annotator is right, what they confuse, and who does not look at the items, or copies."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta, binom, norm, poisson

from pdcc.arrays import Float64, Ints
from pdcc.auto.signals import holm
from pdcc.data.pairs import PairData

LEVEL = 0.9
EVERYONE = "all"
# Tests of single annotators and pairs of them reject below this, adjusted for their number.
SURE = 0.01
# Annotators of fewer answers, or fewer pairs in common, are not tested.
FEWEST = 10


def annotator_reliability(data: PairData, audit: pd.DataFrame) -> pd.DataFrame:
    """One row per annotator: annotator, answers, reliability, low, high, confuses, flag; most answers first.

    reliability: the share of right answers, 90 % interval low to high, by ``audit`` (``audit_answers``), drawn towards that of all
    annotators as few answers do not tell. confuses: the two clusters (or one) most of their wrong answers are about.
    flag: "answers do not depend on the items", "wrong more often than the others" or "shares mistakes with ..."; empty where nothing is wrong.
    Where no ids are known, one row.
    """
    if len(audit) != len(data):
        raise ValueError(
            f"audit: expected a row for each of the {len(data)} answers, found {len(audit)}. Pass what audit_answers returned."
        )
    audit = audit.sort_index()
    judged = audit["wrong"].notna().to_numpy()
    data, audit = data.subset(judged), audit[judged]
    wrong, same = audit["wrong"].to_numpy(dtype=np.float64), audit["same"].to_numpy(dtype=np.float64)
    codes = np.zeros(len(data), dtype=np.int64) if data.annotator is None else data.annotator
    names = (EVERYONE,) if data.annotator is None else data.annotator_names
    known = np.unique(codes)
    counts = np.array([(codes == r).sum() for r in known])
    rates = np.array([wrong[codes == r].mean() for r in known])
    a, b = _shared(rates, counts)
    worse = _worse(rates, counts)
    flags = dict(zip(known.tolist(), map(_first, _careless(data, codes, known, same), worse), strict=True))
    for r, words in _copies(data, codes, wrong).items():
        flags[r] = "; ".join(
            filter(None, (flags[r], f"shares mistakes with {', '.join(str(names[s]) for s in words)}"))
        )
    rows: list[dict[str, Any]] = []
    for r, n, rate in zip(known.tolist(), counts.tolist(), rates.tolist(), strict=True):
        posterior = beta(a + n * (1 - rate), b + n * rate)
        low, high = posterior.interval(LEVEL)
        row = {"annotator": names[r], "answers": n, "reliability": float(posterior.mean()), "low": float(low)}
        rows.append(row | {"high": float(high), "confuses": _confuses(audit[codes == r]), "flag": flags[r]})
    return pd.DataFrame(rows).sort_values("answers", ascending=False, kind="stable", ignore_index=True)


def _shared(rates: Float64, counts: Ints) -> tuple[float, float]:
    """The Beta that annotators' shares of right answers are drawn from, by moments; as wide as people differ beyond chance."""
    mean = float(np.clip(np.average(rates, weights=counts), 0.01, 0.99))
    if len(rates) == 1:
        return 1.0, 1.0
    chance = float(np.average(mean * (1 - mean) / counts, weights=counts))
    spread = float(np.average((rates - mean) ** 2, weights=counts))
    between = max(spread - chance, 1e-4)
    strength = float(np.clip(mean * (1 - mean) / between - 1, 2.0, 200.0))
    return strength * (1 - mean), strength * mean


def _careless(data: PairData, codes: Ints, known: Ints, same: Float64) -> list[str]:
    """Of each annotator, a flag where pairs of one class are not called similar more often than others, though others manage."""
    ps: list[float | None] = []
    for r in known.tolist():
        mine = codes == r
        y, s = data.similar[mine].astype(np.float64), same[mine]
        together, apart = s.sum(), (1 - s).sum()
        if mine.sum() < FEWEST or min(together, apart) < 2:
            ps.append(None)
            continue
        one, two = (y * s).sum() / together, (y * (1 - s)).sum() / apart
        error = np.sqrt(max(y.mean() * (1 - y.mean()), 0.01) * (1 / together + 1 / apart))
        # Against half the gap that people have: a small z is a careless annotator only where there was power to see one.
        ps.append(float(norm.cdf((one - two - 0.5 * _usual_gap(data, same)) / error)))
    return ["answers do not depend on the items" if p is not None and p < SURE else "" for p in holm(ps)]


def _worse(rates: Float64, counts: Ints) -> list[str]:
    """Of each annotator, a flag where more of their answers are wrong than chance makes of the others' share."""
    bad, n = rates * counts, counts.sum()
    others = (bad.sum() - bad) / np.maximum(n - counts, 1)
    ps = binom.sf(np.floor(bad) - 1, counts, others)
    tested = [float(p) if FEWEST <= c < n else None for p, c in zip(ps, counts, strict=True)]
    return [
        f"wrong more often than the others ({rate:.0%}, they {rest:.0%})" if p is not None and p < SURE else ""
        for p, rate, rest in zip(holm(tested), rates, others, strict=True)
    ]


def _first(*flags: str) -> str:
    """The one that says most."""
    return next(filter(None, flags), "")


def _usual_gap(data: PairData, same: Float64) -> float:
    y = data.similar.astype(np.float64)
    return float((y * same).sum() / max(same.sum(), 1e-9) - (y * (1 - same)).sum() / max((1 - same).sum(), 1e-9))


def _copies(data: PairData, codes: Ints, wrong: Float64) -> dict[int, list[int]]:
    """Annotators who are wrong about the same pairs more often than chance: {annotator: others}."""
    if data.annotator is None:
        return {}
    asked = pd.DataFrame({"pair": data.asked(), "by": codes, "wrong": wrong, "y": data.similar})
    first = asked.drop_duplicates(["pair", "by"])
    both = first.merge(first, on="pair")
    both = both[both["by_x"] < both["by_y"]]
    if not len(both):
        return {}
    both = both.assign(shared=both["wrong_x"] * (both["y_x"] == both["y_y"]))
    rate = asked.groupby("by")["wrong"].mean()
    table = both.groupby(["by_x", "by_y"]).agg(n=("pair", "size"), shared=("shared", "sum")).reset_index()
    table = table[table["n"] >= FEWEST]
    expected = table["n"] * rate.loc[table["by_x"]].to_numpy() * rate.loc[table["by_y"]].to_numpy()
    if len(table) < 2:  # nobody to tell hard pairs from copied answers by
        return {}
    # Hard pairs are got wrong by all: how much oftener than chance the others share mistakes is no sign of copying.
    others = (table["shared"].sum() - table["shared"]) / np.maximum(expected.sum() - expected, 1e-9)
    expected = expected * np.maximum(others, 1.0)
    p = holm([float(v) for v in poisson.sf(np.floor(table["shared"]) - 1, np.maximum(expected, 1e-9))])
    out: dict[int, list[int]] = {}
    for (one, two), value in zip(table[["by_x", "by_y"]].to_numpy(dtype=np.int64).tolist(), p, strict=True):
        if value is not None and value < SURE:
            out.setdefault(one, []).append(two)
            out.setdefault(two, []).append(one)
    return out


def _confuses(audit: pd.DataFrame) -> str:
    """The clusters most wrong answers are about, where two or more are expected to be."""
    doubtful = audit[audit["wrong"] > 0.5]
    if len(doubtful) < 2:
        return ""
    ends = np.sort(doubtful[["cluster_i", "cluster_j"]].to_numpy(), axis=1)
    pairs, times = np.unique(ends, axis=0, return_counts=True)
    (a, b), n = pairs[times.argmax()].tolist(), int(times.max())
    where = f"clusters {a} and {b}" if a != b else f"pairs within cluster {a}"
    return f"{where} ({n} of {len(doubtful)} doubtful answers)" if n >= 2 else ""
