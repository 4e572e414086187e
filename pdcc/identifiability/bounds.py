"""What the paper's theorems guarantee for one fit, in numbers; and how many pairs until they say more.

Constants are those printed in the paper, with its disagreements settled as ``8/(NK)`` in Theorem 3.5 and
``delta = M^-1/2`` in epsilon'(M). Where the proofs need more than the statements say, the proofs win:

* the proof of Theorem 3.4 uses ``8 K^2 epsilon'(M) <= 1``; the printed ``epsilon'(M)^2 <= 1/(8 K^2)`` does not imply it;
* Theorem 3.5 joins two events that fail with probability delta each, so it holds with ``1 - 2 delta - K^2/M^(1/4)``.

Two slips are left as printed because they change a constant and no order of magnitude: covering the stacked pair
endpoints costs sqrt(2) more in the complexity term of Lemma 3.3, and the chaining radius 2 more in that of Theorem 3.5.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from pdcc.errors import expect
from pdcc.identifiability.complexity import in_words
from pdcc.identifiability.setting import Setting

# Every bound falls in M from here on: log(M)/M^(1/4), the slowest part, has its top at e^4.
_FEWEST = math.exp(4.0)
_MOST = 1e300


@dataclass(frozen=True)
class Bound:
    """One theorem's guarantee for one setting.

    Attributes:
        value: upper bound on the quantity in ``statement``; inf where the theorem says nothing.
        statement: the inequality, in words and symbols.
        reason: why the bound is infinite or vacuous; None where it is informative.
        terms: the parts that add up to it; where only the limit M -> inf is bounded, the parts of that limit.
        theorem: the paper's name for it.
        maximum: what the quantity can never exceed, bound or no bound.
        conditions: what it rests on, by name: ``probability`` with which it holds, and others in numbers.
    """

    value: float
    statement: str
    reason: str | None
    terms: dict[str, float]
    theorem: str
    maximum: float
    conditions: dict[str, float]

    @property
    def vacuous(self) -> bool:
        """True where the bound excludes nothing that was possible before."""
        return not self.value < self.maximum


@dataclass(frozen=True)
class PairsNeeded:
    """The least M at which a bound reaches a target (inf where none does), beside the M at hand."""

    n_pairs: float
    have: float
    target: float
    theorem: str
    reason: str | None

    def __str__(self) -> str:
        if math.isinf(self.n_pairs):
            return f"no number of pairs; you have {in_words(self.have)}. {self.reason}"
        note = "" if self.reason is None else f". {self.reason}"
        return f"about {in_words(self.n_pairs)} pairs; you have {in_words(self.have)}{note}"


def lemma_3_3(setting: Setting) -> Bound:
    """Lemma 3.3: ``|P* - P|_F^2 / N^2 <= epsilon(M, delta)^2`` with probability 1 - delta, for clean answers (A = I).

    ``64 log(1/alpha)/M + 96 sqrt(2) log(M) |S_X|_F sqrt(R_NET) / (alpha M log 2)
    + 64 log(1/alpha) sqrt(2 log(4/delta)/M) + 16 nu/alpha``.
    """
    return _bound(
        "Lemma 3.3",
        "|P* - P|_F^2 / N^2, the mean squared error of the N x N similarity probabilities",
        _epsilon_squared(setting, setting.delta),
        1.0,
        {"probability": 1 - setting.delta},
        _alpha_is_zero(setting),
    )


def theorem_3_4(setting: Setting) -> Bound:
    """Theorem 3.4 (clean answers, anchors): error of the fitted memberships, up to a permutation of the clusters.

    ``|Pi F*' - F'|_F^2 / (NK) <= (4N/K) epsilon(M, delta)^2 + (2K/N) (1 + 8 sigma_max(V)^2) epsilon'(M)`` with
    probability 1 - delta - K^2/M^(1/4), where ``epsilon'(M)^2 = M^(1/4) epsilon(M, M^-1/2)^2 + M^(-1/4)`` must satisfy
    ``8 K^2 epsilon'(M) <= 1``. For nu > 0 epsilon' grows without bound in M and the theorem's M_0 does not exist: inf.
    """
    return _bound(
        "Theorem 3.4",
        "|Pi F* - F|_F^2 / (NK), the squared error of the N items' memberships, if every cluster has an anchor",
        _seen_terms(setting),
        _membership_maximum(setting),
        *_anchor_conditions(setting, failures=1),
    )


def theorem_3_5(setting: Setting) -> Bound:
    """Theorem 3.5 (generalisation): the error of Theorem 3.4 for items never seen.

    Theorem 3.4 plus ``8/(NK) + 12 sqrt(2 R_NET) |X|_F log(N) / (NK log 2) + 8 sqrt(2 log(4/delta) / (N K^2))``, with
    probability 1 - 2 delta - K^2/M^(1/4).
    """
    return _bound(
        "Theorem 3.5",
        "E |Pi f*(x) - f(x)|^2 / K, the squared error of a new item's membership, if every cluster has an anchor",
        _seen_terms(setting) | _unseen_terms(setting),
        _membership_maximum(setting),
        *_anchor_conditions(setting, failures=2),
    )


def theorem_3_7(setting: Setting, *, scattered: bool | None = None, unseen: bool = False) -> Bound:
    """Theorem 3.7 (clean answers, no anchors): exact memberships in the limit M -> inf, and no rate before it.

    ``scattered``: do the true memberships satisfy SSC (None: not known)? With ``unseen`` the bound is part (ii), for
    new items, whose terms in N stay. At finite M the value is inf; ``terms`` add up to the limit.
    """
    conditions = {"the true memberships are sufficiently scattered (SSC)": scattered}
    return _asymptotic("Theorem 3.7", setting, conditions, unseen)


def theorem_4_1(
    setting: Setting,
    *,
    scattered: bool | None = None,
    full_rank: bool | None = None,
    largest_volume: bool | None = None,
    unseen: bool = False,
) -> Bound:
    """Theorem 4.1 (confused answers): as Theorem 3.7, if also rank(A'A F') = K and F* has the largest volume.

    Under confusion the scatter of the fitted memberships shows consistency with SSC and never proves it, so
    ``scattered=True`` is an assumption here, whatever a certificate says of the fit.
    """
    conditions = {
        "the true memberships are sufficiently scattered (SSC)": scattered,
        "A'A F' has rank K": full_rank,
        "the fit has the largest volume among all optima": largest_volume,
    }
    return _asymptotic("Theorem 4.1", setting, conditions, unseen)


def pairs_needed(
    target: float | None, setting: Setting, bound: Callable[[Setting], Bound] = theorem_3_4
) -> PairsNeeded:
    """How many pairs until this bound is at most ``target``? None: until it says anything at all (below its maximum).

    ``target=math.inf`` asks until the theorem applies: for Theorem 3.4 that is the paper's M_0. Everything but M stays
    fixed (so |S_X|_F grows as sqrt(M), and R_NET does not); M is searched by bisection of log M up to 1e300.
    """
    now = bound(setting)
    goal = now.maximum if target is None else target
    expect(goal > 0, "target", "a number above 0", goal, "Ask for an error the bound could reach.")

    def reached(n_pairs: float) -> bool:
        value = bound(replace(setting, n_pairs=n_pairs)).value
        return math.isfinite(value) and (value < goal if target is None else value <= goal)

    if not reached(_MOST):
        last = bound(replace(setting, n_pairs=_MOST))
        why = last.reason
        if math.isfinite(last.value):
            parts = ", ".join(f"{name} {value:.2g}" for name, value in last.terms.items() if value > 0.01 * last.value)
            why = f"With 1e300 pairs the bound would still be {last.value:.3g} ({parts}), above {goal:.3g}"
        return PairsNeeded(math.inf, setting.n_pairs, goal, now.theorem, why)
    low, high = math.log(_FEWEST), math.log(_MOST)
    if reached(_FEWEST):
        high = low
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(math.exp(middle)) else (middle, high)
    needed = math.exp(high)
    needed = float(math.ceil(needed)) if needed < 2**53 else needed
    reason = None
    if needed > setting.n_items**2:
        reason = (
            f"{in_words(setting.n_items)} items make {in_words(setting.n_items**2)} ordered pairs: "
            "the rest would be the same questions, answered afresh"
        )
    return PairsNeeded(needed, setting.n_pairs, goal, now.theorem, reason)


def bounds_table(
    setting: Setting,
    *,
    scattered: bool | None = None,
    full_rank: bool | None = None,
    largest_volume: bool | None = None,
) -> pd.DataFrame:
    """All bounds of one fit, one row each: theorem, statement, value, maximum, vacuous, probability, pairs_needed, reason.

    ``pairs_needed`` is the sentence that answers "how many pairs until this bound means anything?". The three
    conditions are those of Theorems 3.7 and 4.1; None is "not known".
    """

    def confused(s: Setting, unseen: bool = False) -> Bound:
        return theorem_4_1(s, scattered=scattered, full_rank=full_rank, largest_volume=largest_volume, unseen=unseen)

    calculators: list[Callable[[Setting], Bound]] = [
        lemma_3_3,
        theorem_3_4,
        theorem_3_5,
        lambda s: theorem_3_7(s, scattered=scattered),
        lambda s: theorem_3_7(s, scattered=scattered, unseen=True),
        confused,
        lambda s: confused(s, unseen=True),
    ]
    rows = []
    for calculator in calculators:
        bound = calculator(setting)
        rows.append(
            {
                "theorem": bound.theorem,
                "statement": bound.statement,
                "value": bound.value,
                "maximum": bound.maximum,
                "vacuous": bound.vacuous,
                "probability": bound.conditions["probability"],
                "pairs_needed": str(pairs_needed(None, setting, calculator)),
                "reason": bound.reason,
            }
        )
    return pd.DataFrame(rows)


def _epsilon_squared(s: Setting, delta: float) -> dict[str, float]:
    """The four terms of epsilon(M, delta)^2 (paper eq. 8)."""
    M, alpha = s.n_pairs, s.alpha
    misfit = 16 * s.nu / alpha if alpha > 0 else math.inf
    if alpha == 0 or math.isinf(M):
        rest = math.inf if alpha == 0 else 0.0
        return {"loss range": rest, "net complexity": rest, "confidence": rest, "misfit": misfit}
    endpoints = s.row_norm * math.sqrt(2 * M)
    return {
        "loss range": 64 * math.log(1 / alpha) / M,
        "net complexity": (
            96 * math.sqrt(2) * math.log(M) * endpoints * math.sqrt(s.complexity) / (alpha * M * math.log(2))
        ),
        "confidence": 64 * math.log(1 / alpha) * math.sqrt(2 * math.log(4 / delta) / M),
        "misfit": misfit,
    }


def _epsilon_prime(s: Setting) -> float:
    """epsilon'(M), the square root of ``M^(1/4) epsilon(M, M^-1/2)^2 + M^(-1/4)`` (paper eq. 9)."""
    if math.isinf(s.n_pairs):
        return 0.0 if s.nu == 0 and s.alpha > 0 else math.inf
    squared = sum(_epsilon_squared(s, s.n_pairs**-0.5).values())
    return math.sqrt(s.n_pairs**0.25 * squared + s.n_pairs**-0.25)


def _seen_terms(s: Setting) -> dict[str, float]:
    """The two terms of Theorem 3.4."""
    N, K = s.n_items, s.n_clusters
    return {
        "similarity error": 4 * N / K * sum(_epsilon_squared(s, s.delta).values()),
        "anchor error": 2 * K / N * (1 + 8 * s.sigma_v**2) * _epsilon_prime(s),
    }


def _unseen_terms(s: Setting) -> dict[str, float]:
    """What new items add (Theorems 3.5, 3.7 (ii) and 4.1 (ii)); it falls with N, whatever M."""
    N, K = s.n_items, s.n_clusters
    items = s.row_norm * math.sqrt(N)
    return {
        "new items: loss range": 8 / (N * K),
        "new items: net complexity": (12 * math.sqrt(2 * s.complexity) * items * math.log(N) / (N * K * math.log(2))),
        "new items: confidence": 8 * math.sqrt(2 * math.log(4 / s.delta) / (N * K**2)),
    }


def _membership_maximum(s: Setting) -> float:
    """2 (1 - 1/K) / K: averaged over permutations |Pi u - m|^2 = |u|^2 + |m|^2 - 2/K, so some permutation is there."""
    return 2 * (1 - 1 / s.n_clusters) / s.n_clusters


def _anchor_conditions(s: Setting, failures: int) -> tuple[dict[str, float], str | None]:
    """The conditions of Theorems 3.4 and 3.5 in numbers, and the first that fails in words."""
    K, M = s.n_clusters, s.n_pairs
    probability = 1 - failures * s.delta - K**2 / M**0.25
    prime, allowed = _epsilon_prime(s), 1 / (8 * K**2)
    conditions = {"probability": max(0.0, probability), "epsilon_prime": prime, "epsilon_prime_allowed": allowed}
    reason = _alpha_is_zero(s)
    if reason is None and s.nu > 0:
        reason = (
            f"nu = {s.nu:g} > 0: epsilon'(M)^2 contains M^(1/4) 16 nu/alpha, which grows without bound, so there is no "
            "M_0 from which the theorem holds"
        )
    elif reason is None and probability <= 0:
        reason = (
            f"Its probability, 1 - {'2 ' if failures == 2 else ''}delta - K^2/M^(1/4) = {probability:.3g}, "
            "is not above 0"
        )
    elif reason is None and prime > allowed:
        reason = f"M is not above M_0: epsilon'(M) = {prime:.3g}, and the proof needs 1/(8 K^2) = {allowed:.3g}"
    return conditions, reason


def _asymptotic(theorem: str, s: Setting, conditions: dict[str, bool | None], unseen: bool) -> Bound:
    """Theorems 3.7 and 4.1: what holds in the limit, and inf with the reason everywhere else."""
    seen = "|Pi F* - F|_F^2 / (NK), the squared error of the N items' memberships, as M -> inf"
    new = "E |Pi f*(x) - f(x)|^2 / K, the squared error of a new item's membership, as M -> inf"
    failed = [name for name, holds in conditions.items() if holds is False]
    unknown = [name for name, holds in conditions.items() if holds is None]
    reason = _alpha_is_zero(s)
    if reason is None and s.nu > 0:
        reason = f"nu = {s.nu:g} > 0: the theorem needs the true f inside the function class"
    elif reason is None and failed:
        reason = f"A condition fails: {'; '.join(failed)}"
    elif reason is None and math.isfinite(s.n_pairs):
        reason = "Asymptotic: no rate at finite M"
        if unknown:
            reason += f", and the limit needs what is not known here: {'; '.join(unknown)}"
    elif reason is None and unknown:
        reason = f"Not known: {'; '.join(unknown)}"
    return _bound(
        f"{theorem} ({'ii' if unseen else 'i'})",
        new if unseen else seen,
        _unseen_terms(s) if unseen else {"limit": 0.0},
        _membership_maximum(s),
        {"probability": 1 - s.delta if unseen else 1.0},
        reason,
    )


def _bound(
    theorem: str,
    quantity: str,
    terms: dict[str, float],
    maximum: float,
    conditions: dict[str, float],
    reason: str | None,
) -> Bound:
    value = math.inf if reason is not None else sum(terms.values())
    if reason is None and value >= maximum:
        largest = max(terms, key=lambda name: terms[name])
        reason = (
            f"Vacuous: {value:.3g}, where the quantity never exceeds {maximum:.3g}; "
            f"the largest part is {largest} ({terms[largest]:.3g})"
        )
    statement = f"No bound on {quantity}"
    if math.isfinite(value):
        statement = f"{quantity}, is at most {value:.3g} with probability at least {conditions['probability']:.3g}"
    return Bound(value, statement, reason, terms, theorem, maximum, conditions)


def _alpha_is_zero(s: Setting) -> str | None:
    return None if s.alpha > 0 else "alpha = 0: some p_ij is 0 or 1, where the log loss, and every bound, is infinite"
