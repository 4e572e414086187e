"""Do probabilities mean what they say? Reliability, scores, and tests with a known null distribution."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from scipy.stats import norm, rankdata

from pdcc.select.score import holm

# Probabilities are kept this far from 0 and 1 before a logarithm is taken.
CLIP = 1e-7


@dataclass(frozen=True)
class Calibration:
    """What ``run_calibration`` measured on M answers.

    probability, similar: (M,) as scored. edges: (b + 1,) of the b bins in use; every following array has shape (b,).
    predicted: mean probability of a bin. observed: share of similar answers. lower, upper: Wilson 95 % interval
    of the share. count: answers in the bin.
    ece: count-weighted mean of |observed - predicted|. ece_expected: the value it would have on average for
    perfectly calibrated probabilities (it is never zero in finite samples).
    brier, log_score: mean squared error and mean negative log-likelihood (nats), lower is better.
    spiegelhalter: z of the Brier score, N(0, 1) when calibrated.
    slope, intercept: of the regression logit P(y = 1) = intercept + slope logit(p), with standard errors; 1 and 0 when
    calibrated. All four are None where the answers do not determine them (separable, or one kind only).
    auc: P(a similar answer has the larger probability); None where only one kind of answer occurs.
    """

    probability: NDArray[np.float64]
    similar: NDArray[np.bool_]
    edges: NDArray[np.float64]
    predicted: NDArray[np.float64]
    observed: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    count: NDArray[np.int64]
    ece: float
    ece_expected: float
    brier: float
    log_score: float
    spiegelhalter: float | None
    slope: float | None
    slope_se: float | None
    intercept: float | None
    intercept_se: float | None
    auc: float | None


def run_calibration(
    probability: ArrayLike, similar: ArrayLike, n_bins: int = 10, *, bins: str = "quantile", seed: int = 0
) -> Calibration:
    """Compare predicted probabilities (M,) with answers (M,); score answers that were *held out* where you can.

    On answers the model was fitted to, over-fitting passes for calibration. ``bins`` is "quantile" (equal
    counts; ties share a bin) or "width" (equal widths; empty bins are dropped).
    """
    p, y = _check(probability, similar)
    if n_bins < 2:
        raise ValueError(f"n_bins: expected at least 2, found {n_bins}. Use 10.")
    if bins == "quantile":
        edges = np.unique(np.quantile(p, np.linspace(0, 1, n_bins + 1)))
        if len(edges) == 1:
            edges = np.array([edges[0], edges[0]])
    elif bins == "width":
        edges = np.linspace(0, 1, n_bins + 1)
    else:
        raise ValueError(f"bins: expected 'quantile' or 'width', found {bins!r}. Choose one of them.")
    which = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, len(edges) - 2)
    used, which, count = np.unique(which, return_inverse=True, return_counts=True)
    predicted = np.bincount(which, p) / count
    observed = np.bincount(which, y) / count
    lower, upper = wilson(observed, count)
    clipped = np.clip(p, CLIP, 1 - CLIP)
    slope, slope_se, intercept, intercept_se = _recalibrate(clipped, y)
    return Calibration(
        probability=p,
        similar=y,
        edges=np.append(edges[used], edges[used[-1] + 1]),
        predicted=predicted,
        observed=observed,
        lower=lower,
        upper=upper,
        count=count.astype(np.int64),
        ece=float(np.abs(observed - predicted) @ count / len(p)),
        ece_expected=_ece_expected(p, which, count, seed),
        brier=float(np.mean((y - p) ** 2)),
        log_score=float(-np.mean(np.where(y, np.log(clipped), np.log1p(-clipped)))),
        spiegelhalter=_spiegelhalter(p, y),
        slope=slope,
        slope_se=slope_se,
        intercept=intercept,
        intercept_se=intercept_se,
        auc=_auc(p, y),
    )


def check_calibration(result: Calibration, level: float = 0.01) -> pd.DataFrame:
    """Judge calibration: one row per test (test, estimate, expected, z, p, verdict, sentence).

    Three tests, each two-sided with a standard normal null: Spiegelhalter's z of the Brier score, the recalibration
    slope against 1 and the intercept against 0. p is Holm-adjusted over the three, so ``level`` bounds
    the chance that calibrated probabilities fail any of them. The verdict is "calibrated", "miscalibrated" or
    "undetermined" (p is then None). The tests take answers as independent: dependent answers reject too often.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, found {level}. Use 0.01.")
    n = len(result.similar)
    slope_z = _z(result.slope, 1.0, result.slope_se)
    intercept_z = _z(result.intercept, 0.0, result.intercept_se)
    tests = [
        ("spiegelhalter", result.brier, _expected_brier(result.probability), result.spiegelhalter),
        ("slope", result.slope, 1.0, slope_z),
        ("intercept", result.intercept, 0.0, intercept_z),
    ]
    adjusted = holm([None if z is None else float(2 * norm.sf(abs(z))) for *_, z in tests])
    rows = []
    for (name, estimate, expected, z), p in zip(tests, adjusted, strict=True):
        if z is None or p is None or estimate is None:
            verdict = "undetermined"
            sentence = f"The {name} cannot be judged from these {n} answers: they are all certain, all of one kind, or perfectly separated. Score more held-out pairs."
        elif p < level:
            verdict = "miscalibrated"
            sentence = f"{_meaning(name, estimate, expected)} ({estimate:.3f}, expected {expected:.3f}, z = {z:.1f})."
        else:
            verdict = "calibrated"
            sentence = f"The {name} is {estimate:.3f}, where {expected:.3f} is expected: within chance for {n} answers."
        rows.append((name, estimate, expected, z, p, verdict, sentence))
    frame = pd.DataFrame(rows, columns=["test", "estimate", "expected", "z", "p", "verdict", "sentence"], dtype=object)
    return frame.astype({"expected": float})


def wilson(
    share: NDArray[np.float64], count: NDArray[np.int64] | int, coverage: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson interval of a binomial share: (lower, upper), each of the shape of ``share``."""
    z = norm.ppf(0.5 + coverage / 2)
    n = np.asarray(count, dtype=np.float64)
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def _check(probability: ArrayLike, similar: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    p, y = np.asarray(probability, dtype=np.float64), np.asarray(similar)
    if p.ndim != 1 or p.shape != y.shape or not len(p):
        raise ValueError(
            f"probability, similar: expected two arrays of one length, found shapes {p.shape} and {y.shape}. Pass one probability per answer."
        )
    # Written so that NaN fails: float32 predictions may overshoot 1 by rounding, no more.
    bad = ~((p >= -1e-6) & (p <= 1 + 1e-6))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"probability: expected numbers in [0, 1], found {p[row]} (first at row {row}). Pass P(similar)."
        )
    if not np.isin(y, (0, 1)).all():
        row = int(np.flatnonzero(~np.isin(y, (0, 1)))[0])
        raise ValueError(
            f"similar: expected 0 and 1, found {y[row].item()!r} (first at row {row}). Map the answers to 0 and 1."
        )
    return np.clip(p, 0.0, 1.0), y.astype(bool)


def _expected_brier(p: NDArray[np.float64]) -> float:
    return float(np.mean(p * (1 - p)))


def _spiegelhalter(p: NDArray[np.float64], y: NDArray[np.bool_]) -> float | None:
    """z = sum (y - p)(1 - 2p) / sqrt(sum (1 - 2p)^2 p (1 - p)): the Brier score, standardised under calibration."""
    variance = float(np.sum((1 - 2 * p) ** 2 * p * (1 - p)))
    return float(np.sum((y - p) * (1 - 2 * p)) / np.sqrt(variance)) if variance > 1e-12 else None


def _recalibrate(
    p: NDArray[np.float64], y: NDArray[np.bool_]
) -> tuple[float | None, float | None, float | None, float | None]:
    """(slope, se, intercept, se) of the logistic regression of y on logit(p), by Newton's method."""
    nothing = (None, None, None, None)
    x = logit(p)
    if np.ptp(x) < 1e-9 or y.all() or not y.any() or x[y].min() >= x[~y].max() or x[y].max() <= x[~y].min():
        return nothing
    X = np.column_stack([np.ones_like(x), x])
    beta = np.array([0.0, 1.0])
    for _ in range(100):
        mu = expit(X @ beta)
        information = (X * (mu * (1 - mu))[:, None]).T @ X
        if np.linalg.cond(information) > 1e12:
            return nothing
        gradient = X.T @ (y - mu)
        step = np.linalg.solve(information, gradient)
        # Halve until the likelihood rises: full steps diverge where most probabilities are near 0 or 1.
        now = _loglik(X, beta, y)
        while np.abs(step).max() > 1e-10 and _loglik(X, beta + step, y) < now:
            step = step / 2
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    else:
        return nothing
    se = np.sqrt(np.diag(np.linalg.inv(information)))
    return float(beta[1]), float(se[1]), float(beta[0]), float(se[0])


def _loglik(X: NDArray[np.float64], beta: NDArray[np.float64], y: NDArray[np.bool_]) -> float:
    eta = X @ beta
    return float(-np.logaddexp(0, np.where(y, -eta, eta)).sum())


def _auc(p: NDArray[np.float64], y: NDArray[np.bool_]) -> float | None:
    positive, negative = int(y.sum()), int((~y).sum())
    if not positive or not negative:
        return None
    return float((rankdata(p)[y].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _ece_expected(p: NDArray[np.float64], which: NDArray[np.intp], count: NDArray[np.intp], seed: int) -> float:
    rng = np.random.default_rng(seed)
    sums = [np.bincount(which, (rng.random(len(p)) < p) - p, minlength=len(count)) for _ in range(50)]
    return float(np.mean(np.abs(sums).sum(axis=1)) / len(p))


def _z(estimate: float | None, expected: float, se: float | None) -> float | None:
    return None if estimate is None or se is None else (estimate - expected) / se


def _meaning(name: str, estimate: float, expected: float) -> str:
    if name == "slope":
        return (
            "The probabilities are too extreme (overconfident)"
            if estimate < expected
            else "The probabilities are too timid (underconfident)"
        )
    if name == "intercept":
        side = "more" if estimate > expected else "fewer"
        return f"At even odds, {side} answers are similar than predicted"
    side = "larger" if estimate > expected else "smaller"
    return f"The squared error is {side} than the probabilities themselves imply"
