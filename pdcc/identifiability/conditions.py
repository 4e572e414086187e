"""The conditions of the paper's theorems, each measured on posterior draws, their mean, and a neighbour-averaged mean."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from pdcc.accuracy.dependence import Dependence
from pdcc.accuracy.estimate import DEPENDENT
from pdcc.arrays import Bools, Float64, Floats
from pdcc.criticism.calibration import check_calibration, run_calibration
from pdcc.identifiability.ssc import SSCResult, SSCVerdict, check_ssc
from pdcc.metrics import align, membership_mse

Interval = tuple[float, float]


class Verdict(StrEnum):
    """What the data say about one condition."""

    HOLDS = "holds"
    FAILS = "fails"
    CANNOT_TELL = "cannot tell"


class ConditionId(StrEnum):
    """Which condition; ``TITLES`` says it in words."""

    SCATTER = "scatter"
    ANCHORS = "anchors"
    RANK = "rank"
    ALTERNATIVES = "alternatives"
    FUNCTION_CLASS = "function-class"
    INDEPENDENCE = "independence"
    ALPHA = "alpha"


HOLDS, FAILS, CANNOT_TELL = Verdict.HOLDS, Verdict.FAILS, Verdict.CANNOT_TELL
TITLES = {
    ConditionId.SCATTER: "scatter: SSC(eps)",
    ConditionId.ANCHORS: "anchors",
    ConditionId.RANK: "rank of A'A F'",
    ConditionId.ALTERNATIVES: "no alternative optimum",
    ConditionId.FUNCTION_CLASS: "function class",
    ConditionId.INDEPENDENCE: "independent answers",
    ConditionId.ALPHA: "alpha",
}
# P(condition | data) above SURE supports it and below 1 - SURE denies it.
SURE = 0.9
# Smallest over largest singular value of B F': below LOW the answers hardly distinguish some direction.
RANK_LOW, RANK_GOOD = 0.02, 0.05
# Rows of B that differ by less than this everywhere are answered alike.
ALIKE = 0.15
# Two solutions count as the same up to this membership MSE (the paper's, in [0, 2]).
SAME = 0.03
NEIGHBOURS = 10
IMPOSSIBLE = 1e-9
# A scatter ratio this far below 1 - eps is clearly too small.
CLEARLY = 0.35


@dataclass(frozen=True)
class Condition:
    """One row of the diagnosis.

    probability and prior: [lower, upper] bounds on P(condition | data) and its
    value before any answer, or None; evidence: what the verdict rests on; advice: a sentence to act on, empty where none is due.
    """

    id: ConditionId
    theorem: str
    verdict: Verdict
    probability: Interval | None = None
    prior: Interval | None = None
    evidence: dict[str, float | str] = field(default_factory=dict)
    advice: str = ""

    @property
    def title(self) -> str:
        """The condition in words."""
        return TITLES[self.id]


@dataclass(frozen=True)
class Scattered:
    """SSC checks of several membership matrices under one budget of work."""

    results: tuple[SSCResult, ...]

    @property
    def interval(self) -> Interval:
        """[#satisfied / S, 1 - #violated / S]: undecided draws widen it, none is dropped."""
        verdicts = [r.verdict for r in self.results]
        n = len(verdicts)
        return verdicts.count(SSCVerdict.SATISFIED) / n, (
            n - verdicts.count(SSCVerdict.VIOLATED)
        ) / n  # 1 - v / n may round below s / n

    def anchored(self, eps: float) -> Interval:
        """The share with anchors, rho(1) >= 1 - eps; unknown ratios widen the interval."""
        ratios = np.array([r.anchor_ratio for r in self.results])
        return float(np.mean(ratios >= 1 - eps)), float(np.mean((ratios >= 1 - eps) | np.isnan(ratios)))


def scattered(draws: Sequence[Floats] | Floats, eps: float, work: float, seed: int = 0) -> Scattered:
    """Check every (N, K) of ``draws``, within ``work`` in all."""
    each = max(work / max(len(draws), 1), 1e-3)
    return Scattered(tuple(check_ssc(F, eps=eps, work_limit=each, random_state=seed) for F in draws))


def middle(result: SSCResult) -> float:
    """The middle of the certified interval of the scatter ratio."""
    return (result.rho_lb + result.rho_ub) / 2


def neighbour_average(F: Float64, features: Floats, n_neighbours: int = NEIGHBOURS) -> Float64:
    """F (N, K) averaged over each item's nearest neighbours in the features (N, d), itself among them.

    Noise in F inflates its hull; what neighbours share does not vanish in the average.
    """
    from sklearn.neighbors import NearestNeighbors

    k = min(n_neighbours, len(F))
    near = NearestNeighbors(n_neighbors=k).fit(features).kneighbors(features, return_distance=False)
    return np.asarray(F[near].mean(axis=1))


def _verdict(probability: Interval) -> Verdict:
    return HOLDS if probability[0] >= SURE else FAILS if probability[1] <= 1 - SURE else CANNOT_TELL


def scatter_condition(
    draws: Scattered, mean: SSCResult, averaged: SSCResult, prior: Interval, eps: float, free: bool
) -> Condition:
    """SSC(eps): supported only where the draws, their mean and the neighbour-averaged mean agree."""
    verdict = _verdict(draws.interval)
    points = {mean.verdict, averaged.verdict}
    if verdict == HOLDS and points != {SSCVerdict.SATISFIED}:
        verdict = CANNOT_TELL
    # Estimated memberships keep off the faces (a true ratio of 1 reads .93 at 20 answers per item), so only a ratio far
    # below 1 - eps counts against the condition.
    if verdict != HOLDS:
        short = max(mean.rho_ub, averaged.rho_ub) < 1 - eps - CLEARLY
        verdict = FAILS if short else CANNOT_TELL
    evidence: dict[str, float | str] = {
        "eps": eps,
        "rho draw-wise (median)": float(np.median([middle(r) for r in draws.results])),
        "rho of the mean": middle(mean),
        "rho neighbour-averaged": middle(averaged),
        "exact SSC": mean.exact,
    }
    advice = ""
    if verdict != HOLDS:
        worst = averaged if averaged.verdict is SSCVerdict.VIOLATED else mean
        which = "" if worst.witness is None else f" (least covered: near cluster {int(np.argmin(worst.witness))})"
        advice = f"Add items that belong to one or two clusters clearly{which}, or fit fewer clusters: mixed items alone leave room for other solutions."
    elif free and prior[0] >= SURE:
        advice = "The volume term alone would make the fitted memberships look scattered: that the scatter condition holds shows consistency, not proof."
    return Condition(ConditionId.SCATTER, "Thm 3.7, Thm 4.1", verdict, draws.interval, prior, evidence, advice)


def anchor_condition(
    draws: Scattered,
    prior: Scattered,
    mean: Float64,
    of_mean: SSCResult,
    of_averaged: SSCResult,
    eps: float,
    names: Sequence[Any],
) -> Condition:
    """Anchors: every cluster has an item purely in it. Named, so that one can look at them."""
    probability = draws.anchored(eps)
    known = [r.anchor_ratio for r in draws.results if not np.isnan(r.anchor_ratio)]
    order = np.argsort(-mean, axis=0)[:3]
    purest = {
        f"purest of cluster {k}": ", ".join(f"{names[n]} ({mean[n, k]:.3f})" for n in order[:, k])
        for k in range(mean.shape[1])
    }
    tops = mean.max(axis=0)
    advice = ""
    verdict = _verdict(probability)
    if verdict != HOLDS:
        advice = f"Look for items that are typical of cluster {int(tops.argmin())} (its purest one has a membership of {tops.min():.2f}; an anchor has nearly 1 in almost every draw) and ask about them."
    evidence: dict[str, float | str] = {
        "ratio draw-wise (median)": float(np.median(known)) if len(known) else "unknown: out of work",
        "ratio of the mean": of_mean.anchor_ratio,
        "ratio neighbour-averaged": of_averaged.anchor_ratio,
        **purest,
    }
    return Condition(
        ConditionId.ANCHORS, "Thm 3.4, Thm 3.5", verdict, probability, prior.anchored(eps), evidence, advice
    )


def rank_condition(draws: Floats, agreement: Float64) -> Condition:
    """rank(A'A F') = K: the ratio of the smallest to the largest singular value of B F' in every draw.

    Columns of F are scaled to equal length first: that leaves the rank, and a small cluster does not pass for a confounded one.
    """
    K = agreement.shape[-1]
    ratios, weakest = [], np.zeros(K)
    for F, B in zip(draws, agreement, strict=True):
        unit = F.astype(np.float64) / np.maximum(np.linalg.norm(F.astype(np.float64), axis=0), 1e-12)
        values, vectors = np.linalg.eigh(B @ (unit.T @ unit) @ B.T)  # squared singular values
        values = values.clip(min=0)
        ratios.append(float(np.sqrt(values[0] / values[-1])))
        weakest += np.abs(vectors[:, 0])
    low, high = np.quantile(ratios, [0.05, 0.95])
    verdict = HOLDS if low > RANK_GOOD else FAILS if high < RANK_LOW else CANNOT_TELL
    advice = ""
    if verdict != HOLDS:
        a, b = sorted(np.argsort(-weakest)[:2].tolist())
        B = agreement.mean(axis=0)
        alike = float(np.abs(B[a] - B[b]).max()) < ALIKE and K > 2
        advice = f"The answers hardly tell clusters {a} and {b} apart: " + (
            f"merge them (n_clusters={K - 1}), or ask annotators who can."
            if alike
            else "ask more pairs between and within them."
        )
    evidence: dict[str, float | str] = {
        "singular-value ratio (median)": float(np.median(ratios)),
        "5 %": float(low),
        "95 %": float(high),
    }
    probability = (float(np.mean(np.array(ratios) > RANK_GOOD)), float(np.mean(np.array(ratios) >= RANK_LOW)))
    return Condition(ConditionId.RANK, "Thm 4.1", verdict, probability, None, evidence, advice)


def alpha_condition(probability: Float64) -> Condition:
    """alpha: how far P(similar) of the asked pairs (M,) stays from 0 and 1. Reported, never enforced."""
    away = np.minimum(probability, 1 - probability)
    evidence: dict[str, float | str] = {
        "alpha (smallest)": float(away.min()),
        "1 % point": float(np.quantile(away, 0.01)),
    }
    verdict = HOLDS if away.min() > 0 else FAILS
    return Condition(
        ConditionId.ALPHA,
        "Lemma 3.3",
        verdict,
        None,
        None,
        evidence,
        "" if verdict == HOLDS else "Lemma 3.3 says nothing here; the other rows stand.",
    )


def class_condition(probability: Float64, similar: Bools) -> Condition:
    """Function class: held-out answers (M,) follow their predicted probabilities."""
    if len(similar) < 30:
        return Condition(
            ConditionId.FUNCTION_CLASS,
            "Assumption 3.2",
            CANNOT_TELL,
            None,
            None,
            {"held-out answers": float(len(similar))},
            "Hold out more answers (validation_fraction).",
        )
    found = run_calibration(probability, similar)
    table = check_calibration(found)
    bad = table[table["verdict"] == "miscalibrated"]
    evidence: dict[str, float | str] = {
        "held-out answers": float(len(similar)),
        "log score": found.log_score,
        "ECE": found.ece,
        "ECE expected": found.ece_expected,
    }
    if found.slope is not None:
        evidence["slope"] = found.slope
    # A pair that was certain to be answered one way, and was answered the other, needs no test.
    refuted = int(np.sum(np.where(similar, probability, 1 - probability) < IMPOSSIBLE))
    if refuted:
        advice = (
            f"{refuted} held-out answers had no probability at all under the fit. Allow for a confusion, or fit again."
        )
        return Condition(ConditionId.FUNCTION_CLASS, "Assumption 3.2", FAILS, None, None, evidence, advice)
    if len(bad) == 0:
        shown = bool((table["verdict"] == "calibrated").any())
        advice = "" if shown else "The held-out answers cannot show calibration: hold out more of them."
        return Condition(
            ConditionId.FUNCTION_CLASS, "Assumption 3.2", HOLDS if shown else CANNOT_TELL, None, None, evidence, advice
        )
    advice = f"{bad['sentence'].iloc[0]} Try a wider net, another confusion, or more answers."
    return Condition(ConditionId.FUNCTION_CLASS, "Assumption 3.2", FAILS, None, None, evidence, advice)


@dataclass(frozen=True)
class Alternatives:
    """Restarts on the same answers that reach the objective of the fit: their distance to it and the map between.

    distance: membership MSE of each, (R,). determinant: |det Q| of the best linear map F Q = F_other, (R,).
    better: by how much the best restart undercuts the fit's objective, over its standard error.
    """

    distance: Float64
    determinant: Float64
    better: float
    n_tried: int


def linear_map(F: Float64, other: Float64) -> Float64:
    """Q (K, K) with F Q closest to ``other``, clusters of ``other`` in the order that fits F best."""
    found, *_ = np.linalg.lstsq(F, other[:, align(F, other)], rcond=None)
    return np.asarray(found)


def find_alternatives(
    F: Float64, nll: Float64, penalty: float, others: Floats, other_nll: Float64, other_penalty: Float64
) -> Alternatives:
    """Of the restarts ``others`` (R, N, K), those whose objective on the fitted answers the fit's does not undercut by two standard errors.

    nll: of every fitted answer under the fit, (M,), and the restarts, (R, M). penalty: what the objective adds to its mean, the
    volume term. The standard error is that of the paired differences: what other answers of this kind might have shown.
    """
    gap = other_nll - nll
    se = gap.std(axis=1, ddof=min(1, gap.shape[1] - 1)) / np.sqrt(gap.shape[1])
    behind = gap.mean(axis=1) + other_penalty - penalty
    kept = [F_r.astype(np.float64) for F_r, good in zip(others, behind <= 2 * se + 1e-12, strict=True) if good]
    distance = np.array([membership_mse(F, F_r) for F_r in kept])
    determinant = np.array([abs(np.linalg.det(linear_map(F, F_r))) for F_r in kept])
    return Alternatives(distance, determinant, float(np.max(-behind / np.maximum(se, 1e-12))), len(others))


def alternatives_condition(alternatives: Alternatives) -> Condition:
    """Largest volume among the optima: no other solution reaches the objective and is not a permutation of the fitted one."""
    evidence: dict[str, float | str] = {
        "restarts on the same answers": float(alternatives.n_tried),
        "that reach the objective": float(len(alternatives.distance)),
        "best restart ahead of the fit (z)": alternatives.better,
    }
    if not len(alternatives.distance):
        advice = "No restart reaches the objective of the fit: nothing to compare it with. Ask for more restarts."
        return Condition(ConditionId.ALTERNATIVES, "Thm 4.1", CANNOT_TELL, None, None, evidence, advice)
    far = int(alternatives.distance.argmax())
    evidence |= {
        "mean distance (MSE)": float(alternatives.distance.mean()),
        "largest distance": float(alternatives.distance[far]),
        "|det Q| there": float(alternatives.determinant[far]),
    }
    share = float(np.mean(alternatives.distance <= SAME))
    verdict = HOLDS if share == 1.0 else FAILS if share < 0.5 else CANNOT_TELL
    advice = ""
    if verdict != HOLDS:
        advice = f"{round((1 - share) * len(alternatives.distance))} of {len(alternatives.distance)} restarts explain the same answers as well with other memberships: ask more pairs, or fit with a larger volume."
    if alternatives.better > 3:
        verdict = CANNOT_TELL if verdict == HOLDS else verdict
        advice = "A restart reaches a clearly better objective than the fit: fit again with more restarts (n_init; in the shell --n-init)."
    return Condition(ConditionId.ALTERNATIVES, "Thm 4.1", verdict, (share, share), None, evidence, advice)


def independence_condition(found: Dependence | None) -> Condition:
    """Answers independent given the items' classes."""
    if found is None or found.p is None:
        advice = "Too few answers share items to see dependence: ask several pairs about an item."
        return Condition(ConditionId.INDEPENDENCE, "model", CANNOT_TELL, None, None, {}, advice)
    evidence: dict[str, float | str] = {"agree too much about an item, by deviations": found.excess}
    for name, p in (("p, about one item", found.p_item), ("p, of one annotator about one item", found.p_annotator)):
        evidence |= {} if p is None else {name: p}
    if found.p >= DEPENDENT:
        return Condition(ConditionId.INDEPENDENCE, "model", HOLDS, None, None, evidence)
    advice = "Answers about one item go wrong together, as when it is labelled once and labels are compared: they weigh less than their number, and agree more than they are right. Ask several annotators, or check a few items yourself (trusted labels)."
    return Condition(ConditionId.INDEPENDENCE, "model", FAILS, None, None, evidence, advice)
