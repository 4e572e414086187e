"""The verdict: do the answers identify the memberships that were fitted?"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from pdcc.artifact import package_versions
from pdcc.identifiability import conditions as c
from pdcc.identifiability.evidence import gather
from pdcc.pairs import PairData
from pdcc.settings import show_progress

# Frozen on simulated settings of other seeds than those reported in docs/results.md. A membership MSE of .03 or less is
# as likely as not where the spread of solutions is HALF: less under a free confusion, where the volume term leads all of them astray alike.
HALF = {False: 0.06, True: 0.038}
STEEPNESS = 4
SUPPORTED, DENIED = 0.7, 0.45
FEWEST = 4

CONDITIONAL = "if the true memberships are scattered: with a free confusion, answers cannot tell scattered memberships from squeezed ones"


@dataclass(frozen=True)
class Diagnosis:
    """Whether the memberships are identified, condition by condition.

    overall: "supported", "not supported" or "cannot tell"; conditional: under a free confusion the verdict holds only if the true
    memberships are scattered, which no answers can show. score: 0 to 1, how likely a membership MSE of at most .03 is,
    as set on simulated settings of known truth (600 items, 3 to 8 clusters, six restarts). settings: what it was computed with.
    """

    overall: str
    conditional: bool
    score: float
    conditions: tuple[c.Condition, ...]
    settings: dict[str, Any]

    @property
    def advice(self) -> list[str]:
        """What to do, most pressing first: the failing conditions' sentences, then the undecided ones'."""
        order = {c.FAILS: 0, c.CANNOT_TELL: 1, c.HOLDS: 2}
        return [r.advice for r in sorted(self.conditions, key=lambda r: order[r.verdict]) if r.advice]

    @property
    def table(self) -> pd.DataFrame:
        """One row a condition."""
        rows = []
        for r in self.conditions:
            low, high = r.probability or (None, None)
            prior_low, prior_high = r.prior or (None, None)
            rows.append(
                {
                    "condition": r.name, "theorem": r.theorem, "verdict": r.verdict, "probability_low": low, "probability_high": high,
                    "prior_low": prior_low, "prior_high": prior_high,
                    "evidence": "; ".join(f"{k}: {v:.3g}" if isinstance(v, float) else f"{k}: {v}" for k, v in r.evidence.items()),
                    "advice": r.advice,
                }
            )  # fmt: skip
        return pd.DataFrame(rows, dtype=object)  # what does not apply stays None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        body = {
            "overall": self.overall,
            "conditional": self.conditional,
            "sentence": self.sentence,
            "score": self.score,
        }
        rows = [asdict(r) | {"evidence": {k: _plain(v) for k, v in r.evidence.items()}} for r in self.conditions]
        found: dict[str, Any] = json.loads(
            json.dumps(body | {"conditions": rows, "advice": self.advice, "settings": self.settings})
        )
        return found

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        words = {
            "supported": "The answers support these memberships as the ones",
            "not supported": "The answers do not single out these memberships",
            "cannot tell": "Whether the answers single out these memberships cannot be told",
        }[self.overall]
        return f"{words}{', ' + CONDITIONAL if self.conditional and self.overall == 'supported' else ''}."

    @property
    def reason(self) -> str:
        """Why this score and verdict: the distances they rest on, and what took support away."""
        refits, draws = self.settings["refits' distance"], self.settings["posterior's distance"]
        if refits is None:
            return (
                "No refit predicts as well as the fitted memberships, so there is nothing to measure their spread by."
            )
        half = HALF[self.conditional]
        words = f"The score falls with the spread of solutions, {refits + draws:.3f} here: refits that predict as well lie {refits:.3f} away from the fitted memberships on average, posterior draws {draws:.3f} (membership MSE; a spread of {half:g} makes it one half)."
        if any(r.name.startswith("rank") and r.verdict == c.FAILS for r in self.conditions):
            words += " The rank condition fails, and that alone takes support away."
        elif self.overall != "supported" and self.score >= SUPPORTED:
            few = self.settings["n_restarts"] < FEWEST
            words += f" No support all the same: {f'fewer than {FEWEST} refits can miss rivals' if few else 'a condition without which the theorems say nothing fails'}."
        return words

    def __str__(self) -> str:
        lines = [
            f"{self.overall.upper()}{' (conditional)' if self.conditional else ''}: {self.sentence} Score {self.score:.2f}.",
            "",
        ]
        for r in self.conditions:
            p = "" if r.probability is None else f"P = {_interval(r.probability)}"
            prior = "" if r.prior is None else f"before: {_interval(r.prior)}"
            lines.append(f"  {r.name:<22}{r.verdict:<13}{p:<18}{prior:<22}{r.theorem}")
        lines += ["", self.reason]
        lines += ["", *(f"- {a}" for a in self.advice)] if self.advice else []
        if self.settings.get("posterior") == "not converged":
            lines += [
                "",
                f"The posterior draws had not converged, so read P as rough ({self.settings['posterior_message']})",
            ]
        return "\n".join(lines)


def diagnose(
    est: Any, X: ArrayLike, pairs: ArrayLike, similar: ArrayLike, annotators: ArrayLike | None = None, *,
    draws: int = 100, n_restarts: int = 6, eps: float = 0.05, work: float = 40.0, random_state: int = 0,
) -> Diagnosis:  # fmt: skip
    """Check on the data every condition under which the paper's theorems identify the memberships of ``est``.

    Args:
        est: a fitted VolMaxDCC or VanillaDCC. X, pairs, similar, annotators: the data, as it was fitted.
        draws: posterior draws (SVI over confusion and last layer).
        n_restarts: refits of the whole net from new starts to reweighted answers, in search of rivals.
        eps: tolerance of the scatter condition. work: for the scatter checks in all, in units of about a second; draws they leave
            undecided widen the probability's interval.
    """
    return diagnose_data(
        est, est._check_data(X, pairs, similar, annotators),
        draws=draws, n_restarts=n_restarts, eps=eps, work=work, random_state=random_state,
    )  # fmt: skip


def diagnose_data(
    est: Any,
    data: PairData,
    *,
    draws: int = 100,
    n_restarts: int = 6,
    eps: float = 0.05,
    work: float = 40.0,
    random_state: int = 0,
) -> Diagnosis:
    """``diagnose`` for checked pairs."""
    if draws < 2 or n_restarts < 1 or not work > 0:
        raise ValueError(
            f"draws, n_restarts, work: expected at least 2, at least 1, and more than 0, found {draws}, {n_restarts} and {work}. Ask for more."
        )
    e = gather(
        est,
        data,
        draws=draws,
        n_restarts=n_restarts,
        eps=eps,
        work=work,
        seed=random_state,
        progress=show_progress(est.progress),
    )
    names = list(range(data.n_items)) if data.item_ids is None else data.item_ids.tolist()
    rows = (
        c.scatter_condition(e.of_draws, e.of_mean, e.of_averaged, e.of_prior.interval, eps, e.free),
        c.anchor_condition(e.of_draws, e.of_prior, e.mean, e.of_mean, e.of_averaged, eps, names),
        c.rank_condition(e.draws, e.agreement),
        c.rival_condition(e.rivals),
        c.class_condition(*e.held_out),
        c.independence_condition(e.predictive),
        c.alpha_condition(e.asked),
    )
    spread = None if e.rivals.mean is None else e.rivals.mean + e.spread
    overall, score = judge({r.name: r.verdict for r in rows}, spread, n_restarts, e.free)
    settings = {"draws": draws, "n_restarts": n_restarts, "eps": eps, "work": work, "random_state": random_state, "posterior": e.posterior.status, "posterior_message": e.posterior.message}  # fmt: skip
    settings |= {"refits' distance": e.rivals.mean, "posterior's distance": e.spread}
    return Diagnosis(overall, e.free, score, rows, settings | {"versions": package_versions()})


def judge(verdicts: dict[str, str], spread: float | None, n_restarts: int, free: bool) -> tuple[str, float]:
    """(overall, score) from the conditions' verdicts and the spread of solutions around the fitted memberships.

    The spread is how far refits that predict as well lie from them, on average, plus how far posterior draws do (membership MSE).
    The score is a falling function of it alone. A condition without which no theorem or no model stands
    can only take support away, never give it; nor is there support from fewer than ``FEWEST`` restarts, which can miss rivals.
    """
    if spread is None:  # no other solution predicts as well: nothing to compare with
        return "cannot tell", 0.5
    score = 1 / (1 + (min(spread, 2.0) / HALF[free]) ** STEEPNESS)
    if score < DENIED or verdicts["rank of A'A F'"] == c.FAILS:
        return "not supported", min(score, DENIED)
    vetoed = c.FAILS in (verdicts["scatter: SSC(eps)"], verdicts["function class"]) or n_restarts < FEWEST
    return ("supported" if score >= SUPPORTED and not vetoed else "cannot tell"), score


def _plain(value: float | str) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(pair: tuple[float, float]) -> str:
    low, high = pair
    return f"{low:.2f}" if abs(high - low) < 0.005 else f"{low:.2f} to {high:.2f}"
