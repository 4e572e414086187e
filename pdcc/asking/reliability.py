"""Whom to trust: how often each annotator is right, what they confuse, and who does not look at the items, or copies."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp
from scipy.stats import beta, hypergeom, norm, poisson

from pdcc.arrays import Bools, Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.select.score import holm

LEVEL = 0.9
EVERYONE = "all"
# Tests of single annotators and pairs of them reject below this, adjusted for their number.
SURE = 0.01
# Annotators of fewer answers, or fewer pairs in common, are not tested.
FEWEST = 10
# Log odds of an annotator's being wrong, beside the average one's, and how widely people may differ in them.
ODDS = np.linspace(-5.0, 5.0, 201)
SPREADS = np.geomspace(0.05, 3.0, 12)
MISTAKES, SAME = "shares mistakes with", "the same answers, wherever both were asked, as"
# Answers that are looked at at once.
BLOCK = 2**13


def annotator_reliability(data: PairData, audit: pd.DataFrame) -> pd.DataFrame:
    """One row per annotator: annotator, answers, reliability, low, high, confuses, flag; most answers first.

    reliability: the share of right answers, 90 % interval low to high, by ``audit`` (``audit_answers``). An answer is doubted the more, the more
    of its annotator's answers are; annotators of few answers are drawn to the others. confuses: the two clusters (or one) most of their wrong answers are about.
    flag: "answers do not depend on the items", "similar and different seem exchanged", "wrong more often than the others", "shares mistakes with ..." or
    "the same answers as ..."; empty where nothing is wrong.
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
    prior = _before(data.similar, wrong, same, audit["expected"].to_numpy(dtype=np.float64))
    codes = np.zeros(len(data), dtype=np.int64) if data.annotator is None else data.annotator
    names = (EVERYONE,) if data.annotator is None else data.annotator_names
    known = np.unique(codes)
    counts = np.array([(codes == r).sum() for r in known])
    each = [_by_odds(wrong[codes == r], prior[codes == r]) for r in known]
    likely, shares = (np.array(part) for part in zip(*each, strict=True))
    weight = _weights(likely)
    rates = (weight * shares).sum(axis=1)
    worse = _worse(rates, counts)
    before = _shared(rates, counts)
    flags = dict(zip(known.tolist(), map(_first, _careless(data, codes, known, same), worse), strict=True))
    for r, (words, others) in _copies(data, codes, wrong).items():
        flags[r] = "; ".join(filter(None, (flags[r], f"{words} {', '.join(str(names[s]) for s in others)}")))
    rows: list[dict[str, Any]] = []
    for r, n, share, believed in zip(known.tolist(), counts.tolist(), shares, weight, strict=True):
        mean, low, high = _drawn_to_others(share, believed, n, before)
        row = {"annotator": names[r], "answers": n, "reliability": 1 - mean, "low": 1 - high, "high": 1 - low}
        rows.append(row | {"confuses": _confuses(audit[codes == r]), "flag": flags[r]})
    return pd.DataFrame(rows).sort_values("answers", ascending=False, kind="stable", ignore_index=True)


def _before(similar: Bools, wrong: Float64, same: Float64, expected: Float64) -> Float64:
    """P(an answer about the pair is wrong), (M,), whatever was said: from what is believed of the pair, and of the answer that was given."""
    so = np.where(similar, expected, 1 - expected)  # P(this answer)
    other = np.where(similar, same - so * (1 - wrong), 1 - same - so * (1 - wrong))  # P(the other answer, and wrong)
    return np.asarray(np.clip(so * wrong + other, 1e-6, 1 - 1e-6))


def _by_odds(wrong: Float64, prior: Float64) -> tuple[Float64, Float64]:
    """Log-likelihood of one annotator's answers, and the share of them that is wrong, for all of ``ODDS``: how many times as high the odds
    of their being wrong are as an average annotator's."""
    times, likely, share = np.exp(ODDS)[:, None], np.zeros(len(ODDS)), np.zeros(len(ODDS))
    for at in range(0, len(wrong), BLOCK):
        w, before = wrong[at : at + BLOCK], prior[at : at + BLOCK]
        likely += np.log((1 - w + times * w) / (1 - before + times * before)).sum(axis=1)
        share += (times * w / (1 - w + times * w)).sum(axis=1)
    return likely, share / len(wrong)


def _weights(likely: Float64) -> Float64:
    """Posterior weights (R, G) of ``ODDS`` from log-likelihoods (R, G): annotators' log odds are Normal around the average, as widely as makes all likeliest."""
    found = []
    for spread in SPREADS:
        log = likely + norm.logpdf(ODDS, scale=spread)
        total = logsumexp(log, axis=1)
        found.append((float((total - logsumexp(norm.logpdf(ODDS, scale=spread))).sum()), np.exp(log - total[:, None])))
    return np.asarray(max(found, key=lambda one: one[0])[1])


def _shared(rates: Float64, counts: Ints) -> tuple[float, float]:
    """The Beta that annotators' shares of wrong answers are drawn from, by moments: as wide as people differ beyond chance."""
    if len(rates) == 1:
        return 1.0, 1.0
    mean = float(np.clip(np.average(rates, weights=counts), 0.01, 0.99))
    chance = float(np.average(mean * (1 - mean) / counts, weights=counts))
    between = max(float(np.average((rates - mean) ** 2, weights=counts)) - chance, 1e-4)
    strength = float(np.clip(mean * (1 - mean) / between - 1, 2.0, 200.0))
    return strength * mean, strength * (1 - mean)


def _drawn_to_others(
    share: Float64, weight: Float64, n: int, before: tuple[float, float]
) -> tuple[float, float, float]:
    """Mean and middle 90 % of how often an annotator is wrong of whose ``n`` answers a ``share`` (G,) is, with these weights (G,).

    Each share is seen n times, beside what is known ``before`` from all annotators; the Beta of the mixture's mean and variance.
    """
    a, total = before[0] + n * share, before[0] + before[1] + n
    means = a / total
    mean = float(weight @ means)
    variance = float(weight @ (means * (1 - means) / (total + 1) + (means - mean) ** 2))
    strength = mean * (1 - mean) / variance - 1
    low, high = beta(strength * mean, strength * (1 - mean)).interval(LEVEL)
    return mean, float(low), float(high)


def _careless(data: PairData, codes: Ints, known: Ints, same: Float64) -> list[str]:
    """Of each annotator, a flag where pairs of one class are not called similar more often than others, though others manage; or less often."""
    ps: list[float | None] = []
    turned: list[float | None] = []
    for r in known.tolist():
        mine = codes == r
        y, s = data.similar[mine].astype(np.float64), same[mine]
        together, apart = s.sum(), (1 - s).sum()
        if mine.sum() < FEWEST or min(together, apart) < 2:
            ps.append(None)
            turned.append(None)
            continue
        one, two = (y * s).sum() / together, (y * (1 - s)).sum() / apart
        error = np.sqrt(max(y.mean() * (1 - y.mean()), 0.01) * (1 / together + 1 / apart))
        # Against half the gap that people have: a small z is a careless annotator only where there was power to see one.
        ps.append(float(norm.cdf((one - two - 0.5 * _usual_gap(data, same)) / error)))
        turned.append(float(norm.cdf((one - two) / error)))
    return [
        "similar and different seem exchanged"
        if q is not None and q < SURE
        else "answers do not depend on the items"
        if p is not None and p < SURE
        else ""
        for p, q in zip(holm(ps), holm(turned), strict=True)
    ]


def _worse(rates: Float64, counts: Ints) -> list[str]:
    """Of each annotator, a flag where more of all wrong answers are theirs than chance would give so many of all answers."""
    bad, n = rates * counts, counts.sum()
    others = np.asarray((bad.sum() - bad) / np.maximum(n - counts, 1))
    chance: Float64 = np.asarray(hypergeom.sf(np.floor(bad) - 1, n, np.floor(bad.sum()), counts))
    tested = [float(p) if FEWEST <= c < n else None for p, c in zip(chance, counts, strict=True)]
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


def _copies(data: PairData, codes: Ints, wrong: Float64) -> dict[int, tuple[str, list[int]]]:
    """Annotators who are wrong about the same pairs more often than chance: {annotator: (what they share with, others)}."""
    if data.annotator is None:
        return {}
    asked = pd.DataFrame({"pair": data.asked(), "by": codes, "wrong": wrong, "y": data.similar})
    first = asked.drop_duplicates(["pair", "by"])
    both = first.merge(first, on="pair")
    both = both[both["by_x"] < both["by_y"]]
    if not len(both):
        return {}
    alike = both["y_x"] == both["y_y"]
    both = both.assign(shared=both["wrong_x"] * alike, alike=alike)
    rate = asked.groupby("by")["wrong"].mean()
    how = {"n": ("pair", "size"), "shared": ("shared", "sum"), "alike": ("alike", "sum")}
    table = both.groupby(["by_x", "by_y"]).agg(**how).reset_index()
    table = table[table["n"] >= FEWEST]
    one, two = (rate.loc[table[by]].to_numpy() for by in ("by_x", "by_y"))
    expected = table["n"] * one * two
    if len(table) < 2:  # nobody to tell hard pairs from copied answers by, unless there is no difference at all
        never = float(np.prod((one * two + (1 - one) * (1 - two)) ** table["n"]))
        a, b = table[["by_x", "by_y"]].to_numpy(dtype=np.int64).tolist()[0] if len(table) else (0, 0)
        same = len(table) == 1 and bool((table["alike"] == table["n"]).all()) and never < SURE
        return {a: (SAME, [b]), b: (SAME, [a])} if same else {}
    # Hard pairs are got wrong by all: how much oftener than chance the others share mistakes is no sign of copying.
    others = (table["shared"].sum() - table["shared"]) / np.maximum(expected.sum() - expected, 1e-9)
    expected = expected * np.maximum(others, 1.0)
    p = holm([float(v) for v in poisson.sf(np.floor(table["shared"]) - 1, np.maximum(expected, 1e-9))])
    out: dict[int, tuple[str, list[int]]] = {}
    for (a, b), value in zip(table[["by_x", "by_y"]].to_numpy(dtype=np.int64).tolist(), p, strict=True):
        if value is not None and value < SURE:
            out.setdefault(a, (MISTAKES, []))[1].append(b)
            out.setdefault(b, (MISTAKES, []))[1].append(a)
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
