"""The verdict: do the answers identify the memberships that were fitted?"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted
from pdcc.identifiability import conditions as c
from pdcc.identifiability.evidence import gather
from pdcc.identifiability.verdict import FEWEST, HALF, SUPPORTED, Overall, judge
from pdcc.inference.variational import SampleStatus
from pdcc.storage.provenance import package_versions
from pdcc.validation import check_count, check_number

CONDITIONAL = "if the true memberships are scattered: with a free confusion, answers cannot tell scattered memberships from squeezed ones"


@dataclass(frozen=True)
class Settings:
    """What a diagnosis was computed with."""

    draws: int
    n_restarts: int
    eps: float
    work: float
    random_state: int


@dataclass(frozen=True)
class Diagnosis:
    """Whether the memberships are identified, condition by condition.

    conditional: under a free confusion the verdict holds only if the true memberships are scattered, which no answers can show. score: 0 to 1, how likely a membership MSE of at most .03 is,
    as set on simulated settings of known truth (600 items, 3 to 8 clusters, six restarts). refits_distance, posterior_distance:
    how far refits that predict as well, and posterior draws, lie from the fitted memberships on average (membership MSE).
    """

    overall: Overall
    conditional: bool
    score: float
    conditions: tuple[c.Condition, ...]
    settings: Settings
    refits_distance: float | None
    posterior_distance: float
    posterior_status: SampleStatus
    posterior_message: str

    @property
    def advice(self) -> list[str]:
        """What to do, most pressing first: the failing conditions' sentences, then the undecided ones'."""
        order = {c.FAILS: 0, c.CANNOT_TELL: 1, c.HOLDS: 2}
        return [r.advice for r in sorted(self.conditions, key=lambda r: order[r.verdict]) if r.advice]

    @property
    def table(self) -> pd.DataFrame:
        """One row per condition."""
        rows = []
        for r in self.conditions:
            low, high = r.probability or (None, None)
            prior_low, prior_high = r.prior or (None, None)
            rows.append(
                {
                    "id": str(r.id), "condition": r.title, "theorem": r.theorem, "verdict": str(r.verdict), "probability_low": low, "probability_high": high,
                    "prior_low": prior_low, "prior_high": prior_high,
                    "evidence": "; ".join(f"{k}: {v:.3g}" if isinstance(v, float) else f"{k}: {v}" for k, v in r.evidence.items()),
                    "advice": r.advice,
                }
            )  # fmt: skip
        return pd.DataFrame(rows, dtype=object)  # what does not apply stays None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        body: dict[str, Any] = {
            "overall": self.overall,
            "conditional": self.conditional,
            "sentence": self.sentence,
            "score": self.score,
        }
        rows = [
            asdict(r) | {"title": r.title, "evidence": {k: _plain(v) for k, v in r.evidence.items()}}
            for r in self.conditions
        ]
        body |= {
            "conditions": rows,
            "advice": self.advice,
            "refits_distance": self.refits_distance,
            "posterior_distance": self.posterior_distance,
            "posterior_status": self.posterior_status,
            "posterior_message": self.posterior_message,
            "settings": asdict(self.settings),
            "versions": package_versions(),
        }
        found: dict[str, Any] = json.loads(json.dumps(body))
        return found

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        words = {
            Overall.SUPPORTED: "The answers support these memberships as the ones",
            Overall.NOT_SUPPORTED: "The answers do not single out these memberships",
            Overall.CANNOT_TELL: "Whether the answers single out these memberships cannot be told",
        }[self.overall]
        return f"{words}{', ' + CONDITIONAL if self.conditional and self.overall is Overall.SUPPORTED else ''}."

    @property
    def reason(self) -> str:
        """Why this score and verdict: the distances they rest on, and what took support away."""
        refits, draws = self.refits_distance, self.posterior_distance
        if refits is None:
            return (
                "No refit predicts as well as the fitted memberships, so there is nothing to measure their spread by."
            )
        half = HALF[self.conditional]
        words = f"The score falls with the spread of solutions, {refits + draws:.3f} here: refits that predict as well lie {refits:.3f} away from the fitted memberships on average, posterior draws {draws:.3f} (membership MSE; a spread of {half:g} makes it one half)."
        if any(r.id is c.ConditionId.RANK and r.verdict is c.FAILS for r in self.conditions):
            words += " The rank condition fails, and that alone takes support away."
        elif self.overall is not Overall.SUPPORTED and self.score >= SUPPORTED:
            few = self.settings.n_restarts < FEWEST
            words += f" No support all the same: {f'fewer than {FEWEST} refits can miss alternative optima' if few else 'a condition without which the theorems say nothing fails'}."
        return words

    def __str__(self) -> str:
        lines = [
            f"{self.overall.upper()}{' (conditional)' if self.conditional else ''}: {self.sentence} Score {self.score:.2f}.",
            "",
        ]
        for r in self.conditions:
            p = "" if r.probability is None else f"P = {_interval(r.probability)}"
            prior = "" if r.prior is None else f"before: {_interval(r.prior)}"
            lines.append(f"  {r.title:<24}{r.verdict:<13}{p:<18}{prior:<22}{r.theorem}")
        lines += ["", self.reason]
        lines += ["", *(f"- {a}" for a in self.advice)] if self.advice else []
        if self.posterior_status is SampleStatus.NOT_CONVERGED:
            lines += [
                "",
                f"The posterior draws had not converged, so read P as rough ({self.posterior_message})",
            ]
        return "\n".join(lines)


def diagnose(
    fitted: Fitted,
    data: PairData,
    *,
    draws: int = 100,
    n_restarts: int = 6,
    eps: float = 0.05,
    work: float = 40.0,
    random_state: int = 0,
    progress: bool = False,
) -> Diagnosis:
    """Check on the data every condition under which the paper's theorems identify the memberships of a fit.

    Args:
        fitted: ``fitted_`` of a VolMaxDCC or VanillaDCC. data: what it was fitted to.
        draws: posterior draws (SVI over confusion and last layer).
        n_restarts: refits of the whole net from new starts to reweighted answers, in search of alternative optima.
        eps: tolerance of the scatter condition. work: for the scatter checks in all, in units of about a second; draws they
            leave undecided widen the probability's interval.
    """
    check_count("draws", draws, 2)
    check_count("n_restarts", n_restarts)
    check_number("work", work, 0.0, open_low=True)
    check_number("eps", eps, 0.0, 1.0)
    check_count("random_state", random_state, 0)
    e = gather(
        fitted, data, draws=draws, n_restarts=n_restarts, eps=eps, work=work, seed=random_state, progress=progress
    )
    names = list(range(data.n_items)) if data.item_ids is None else data.item_ids.tolist()
    rows = (
        c.scatter_condition(e.of_draws, e.of_mean, e.of_averaged, e.of_prior.interval, eps, e.free),
        c.anchor_condition(e.of_draws, e.of_prior, e.mean, e.of_mean, e.of_averaged, eps, names),
        c.rank_condition(e.draws, e.agreement),
        c.alternatives_condition(e.alternatives),
        c.class_condition(*e.held_out),
        c.independence_condition(e.predictive),
        c.alpha_condition(e.asked),
    )
    spread = None if e.alternatives.mean is None else e.alternatives.mean + e.spread
    overall, score = judge({r.id: r.verdict for r in rows}, spread, n_restarts, e.free)
    settings = Settings(draws, n_restarts, eps, work, random_state)
    return Diagnosis(
        overall, e.free, score, rows, settings, e.alternatives.mean, e.spread, e.posterior.status, e.posterior.message
    )


def _plain(value: float | str) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(pair: tuple[float, float]) -> str:
    low, high = pair
    return f"{low:.2f}" if abs(high - low) < 0.005 else f"{low:.2f} to {high:.2f}"
