"""The diagnosis: how right are the labels, what is settled, are soft memberships determined, does the model fit, what would it take?"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from pdcc.accuracy.estimate import Estimate, LabelReport, in_line, judge_labels
from pdcc.accuracy.outlook import Outlook
from pdcc.accuracy.trusted import Trusted, with_trusted
from pdcc.accuracy.trusted_pairs import TrustedPairs, check_drawn, with_trusted_pairs
from pdcc.arrays import Float64
from pdcc.data.pairs import PairData
from pdcc.errors import PairDataError
from pdcc.fitted import Fitted
from pdcc.identifiability import conditions as c
from pdcc.identifiability.evidence import Evidence, gather
from pdcc.identifiability.given import Given, read_given
from pdcc.identifiability.verdict import Overall, Question, judge_memberships, reached, three
from pdcc.inference.variational import SampleStatus
from pdcc.metrics import membership_mse
from pdcc.posterior.squeeze import IdentifiedSet
from pdcc.sampled import Sample, sampled
from pdcc.storage.provenance import package_versions
from pdcc.validation import check_count, check_number

# Of data too large to be looked at as a whole (``pdcc.sampled``), about so many items.
DIAGNOSED_ITEMS = 40_000
CONDITIONAL = "if the true memberships are scattered: with a free confusion, answers cannot tell scattered memberships from squeezed ones"


@dataclass(frozen=True)
class Settings:
    """What a diagnosis was computed with."""

    draws: int
    n_restarts: int
    eps: float
    work: float
    level: float
    target: float
    quick: bool
    random_state: int


@dataclass(frozen=True)
class Diagnosis:
    """How far a fit can be trusted, question by question.

    accuracy: the share of labels that are right, up to renaming, with its 90 % interval; None where no claim is made, and then
    accuracy_reason says why. agreement: the share labelled as the annotators themselves would. items: item, label, probability, settled,
    set. doubt: what accuracy rests on where that is unusual; then no verdict goes by it. mixed: clusters that may hold two classes, or be one. clusters: purity, what each is confounded with, its purest items. verdicts: one of three words for every question, given a
    ``target`` for shares. trusted: whether accuracy rests on trusted labels or pairs; of pairs, purity is the share of items in their
    cluster's largest class.

    The soft memberships: conditions, one for each that the theorems ask for; identified: how far other memberships give
    every answer the same probability. conditional: under a free confusion support holds only if the true memberships are scattered,
    which no answers can show. score: 0 to 1, how likely a membership MSE of at most .03 is (for hard truth an accuracy of
    98.5 %), as set on simulated settings. sample: what part of many items and answers was looked at, or None for all; items and clusters are then those
    of the sample, and fits to parts of its answers know less than the fit did, so that shares are on the cautious side. folds_distance, posterior_distance: how far fits to most of the answers lie
    from the fitted memberships (the middle one), and posterior draws on average (membership MSE).

    Examples:
        >>> import numpy as np
        >>> from pdcc import VanillaDCC
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> similar = (pairs[:, 0] // 20 == pairs[:, 1] // 20) ^ (rng.random(300) < 0.1)  # a tenth is wrong
        >>> est = VanillaDCC(3, hidden=(16,), scale="standard", init="kmeans", epochs=5, random_state=0)
        >>> est = est.fit(X, pairs, similar)
        >>> found = est.diagnose(X, pairs, similar, quick=True, draws=2, work=0.1)
        >>> bool(0 <= found.accuracy.low <= found.accuracy.estimate <= found.accuracy.high <= 1)
        True
        >>> found.items.columns.tolist()
        ['item', 'label', 'probability', 'settled', 'set']
        >>> sorted(str(question) for question in found.verdicts)
        ['clusters', 'items', 'labels', 'memberships', 'model']
    """

    accuracy: Estimate
    accuracy_reason: str | None
    agreement: Estimate
    precision: Estimate
    recall: Estimate
    items: pd.DataFrame
    clusters: pd.DataFrame
    outlook: Outlook | None
    trusted: bool
    verdicts: dict[Question, Overall]
    conditional: bool
    score: float
    conditions: tuple[c.Condition, ...]
    identified: IdentifiedSet
    settings: Settings
    folds_distance: float | None
    posterior_distance: float
    posterior_status: SampleStatus
    posterior_message: str
    purity: Estimate = field(default_factory=Estimate)
    mixed: tuple[str, ...] = ()
    doubt: str | None = None
    sample: Sample | None = None

    @property
    def overall(self) -> Overall:
        """The verdict on the labels."""
        return self.verdicts[Question.LABELS]

    @property
    def advice(self) -> list[str]:
        """What to do, most pressing first. More answers come before the failing conditions' sentences, and these before the undecided ones'."""
        order = {c.FAILS: 0, c.CANNOT_TELL: 1, c.HOLDS: 2}
        rest = [r.advice for r in sorted(self.conditions, key=lambda r: order[r.verdict]) if r.advice]
        return rest if self.outlook is None else [str(self.outlook), *rest]

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

    @property
    def questions(self) -> pd.DataFrame:
        """One row per question, with the verdict and the sentence that answers it."""
        rows = [{"question": str(q), "verdict": str(self.verdicts[q]), "answer": self.answer(q)} for q in Question]
        return pd.DataFrame(rows)

    def answer(self, question: Question) -> str:
        """A question's answer in a sentence."""
        return {
            Question.LABELS: self._labels, Question.ITEMS: self._settled_items, Question.CLUSTERS: self._settled_clusters,
            Question.MEMBERSHIPS: self._memberships, Question.MODEL: self._model,
        }[question]()  # fmt: skip

    def _labels(self) -> str:
        if self.purity:
            low, high = (f"{100 * (v or 0.0):.0f}" for v in (self.accuracy.low, self.accuracy.high))
            return f"between {low} and {high} % right, by the trusted pairs; about {self.purity} of the items are in their cluster's largest class."
        if self.accuracy:
            by = "by the trusted labels" if self.trusted else "as far as answers can tell"
            return f"about {self.accuracy} right, {by}." + ("" if self.doubt is None else f" {self.doubt}")
        if self.agreement:
            return f"about {self.agreement} as the annotators themselves would label them; whether that is right, these answers cannot show. {self.accuracy_reason}"
        return f"no claim. {self.accuracy_reason}"

    def _settled_items(self) -> str:
        n = int(self.items["settled"].sum())
        return f"{n:,} of {len(self.items):,} are settled (one label has a probability of {self.settings.level:.0%})."

    def _settled_clusters(self) -> str:
        table = self.clusters
        n = int(table["settled"].sum())
        words = f"{n} of {len(table)} are settled (purity of {self.settings.target:.0%} or more)"
        open_ = table[~table["settled"] & table["purity"].notna()]
        if self.mixed:
            return f"{words}. {' '.join(self.mixed)}"
        if not len(open_):
            return f"{words}."
        worst = open_.iloc[int(open_["confounded_share"].to_numpy(dtype=np.float64).argmax())]
        a, b = sorted((int(worst["cluster"]), int(worst["confounded_with"])))
        return f"{words}; clusters {a} and {b} are the least told apart."

    def _memberships(self) -> str:
        words = {
            Overall.SUPPORTED: "determined by these answers",
            Overall.NOT_SUPPORTED: "not determined by these answers to a mean squared error of .03, which for clear-cut classes takes 98.5 % right labels",
            Overall.CANNOT_TELL: "whether these answers determine them cannot be told",
        }[self.verdicts[Question.MEMBERSHIPS]]
        if self.conditional and self.verdicts[Question.MEMBERSHIPS] is Overall.SUPPORTED:
            words += f", {CONDITIONAL}"
        return f"{words}; {self.identified}."

    def _model(self) -> str:
        rows = [r for r in self.conditions if r.id in (c.ConditionId.FUNCTION_CLASS, c.ConditionId.INDEPENDENCE)]
        return "; ".join(f"{r.title}: {r.verdict}" for r in rows) + "."

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        rows = [
            asdict(r) | {"title": r.title, "evidence": {k: _plain(v) for k, v in r.evidence.items()}}
            for r in self.conditions
        ]
        body: dict[str, Any] = {
            "accuracy": asdict(self.accuracy), "accuracy_reason": self.accuracy_reason, "agreement": asdict(self.agreement),
            "precision": asdict(self.precision), "recall": asdict(self.recall), "purity": asdict(self.purity), "trusted": self.trusted, "mixed": list(self.mixed), "doubt": self.doubt,
            "overall": self.overall, "verdicts": {str(q): str(v) for q, v in self.verdicts.items()},
            "answers": {str(q): self.answer(q) for q in Question}, "advice": self.advice,
            "outlook": None if self.outlook is None else _finite(asdict(self.outlook)),
            "conditional": self.conditional, "score": self.score, "conditions": rows, "identified": asdict(self.identified),
            "sample": None if self.sample is None else asdict(self.sample),
            "folds_distance": self.folds_distance, "posterior_distance": self.posterior_distance,
            "posterior_status": self.posterior_status, "posterior_message": self.posterior_message,
            "settings": asdict(self.settings), "versions": package_versions(),
            "clusters": json.loads(self.clusters.to_json(orient="records")),
            "items": json.loads(self.items.to_json(orient="records")),
        }  # fmt: skip
        found: dict[str, Any] = json.loads(json.dumps(body))
        return found

    def __str__(self) -> str:
        titles = {Question.MEMBERSHIPS: "Soft memberships"}
        lines = [f"{titles.get(q, q.capitalize())}: {self.answer(q)}" for q in Question]
        lines += [] if self.outlook is None else [f"Next: {self.outlook}"]
        if self.sample is not None:
            lines.append(f"Looked at: {self.sample}. Shares are on the cautious side, since the fit saw more answers.")
        pairs = (
            f"Pairs in one cluster: {self.precision} belong together, and {self.recall} of those that do are in one."
        )
        lines += ["", pairs if self.precision or self.recall else "Pairs: no claim."]
        lines += ["", "What the theorems on soft memberships ask for (labels do not depend on it):"]
        for r in self.conditions:
            p = "" if r.probability is None else f"P = {_interval(r.probability)}"
            prior = "" if r.prior is None else f"before: {_interval(r.prior)}"
            lines.append(f"  {r.title:<24}{r.verdict:<13}{p:<18}{prior:<22}{r.theorem}")
        rest = [r.advice for r in self.conditions if r.advice and r.verdict is not c.HOLDS]
        lines += ["", *(f"- {a}" for a in rest)] if rest else []
        if self.posterior_status is SampleStatus.NOT_CONVERGED:
            lines += ["", f"The posterior draws had not converged, so read P as rough ({self.posterior_message})"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        return str(self.questions.to_html(index=False, escape=True))


def diagnose(
    fitted: Fitted,
    data: PairData,
    *,
    trusted: Given | None = None,
    target: float = 0.8,
    level: float = 0.95,
    quick: bool = False,
    draws: int | None = None,
    n_restarts: int | None = None,
    eps: float = 0.05,
    work: float = 20.0,
    random_state: int = 0,
    progress: bool = False,
) -> Diagnosis:
    """How right the labels of a fit are, what is settled, and whether the conditions hold under which theorems identify soft memberships.

    Args:
        fitted: ``fitted_`` of a VolMaxDCC or VanillaDCC.
        data: what it was fitted to.
        trusted: true classes of some items, drawn at random, as {item: class}, a Series of classes by item, or a table with the columns item
            and label (or class): with them the accuracy holds whatever is wrong with the answers. Or a table of pairs i, j, similar that someone to trust answered,
            drawn by ``draw_trusted``: bounds that hold as well, though wider.
        target: the accuracy, purity and share of settled items that would do.
        level: how sure a set of labels must be.
        quick: fewer fits to parts of the answers, draws and restarts, so wider intervals.
        draws: posterior draws over confusion and last layer (60; quick: 12).
        n_restarts: fits of the same answers from new starts, in search of other optima (4; quick: 1, which supports nothing).
        eps: tolerance of the scatter condition.
        work: for the scatter checks in all, in units of about a second; draws they leave undecided widen the probability's interval.
        random_state: seed.
        progress: show a bar.

    Examples:
        >>> import numpy as np
        >>> from pdcc import PairData, VanillaDCC, diagnose
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> similar = (pairs[:, 0] // 20 == pairs[:, 1] // 20) ^ (rng.random(300) < 0.1)  # a tenth is wrong
        >>> est = VanillaDCC(3, hidden=(16,), scale="standard", init="kmeans", epochs=5, random_state=0)
        >>> est = est.fit(X, pairs, similar)
        >>> found = diagnose(est.fitted_, PairData.from_arrays(X, pairs, similar), quick=True, draws=2, work=0.1)
        >>> str(found.overall), len(found.table)
        ('supported', 7)
    """
    draws = (12 if quick else 60) if draws is None else draws
    n_restarts = (1 if quick else 4) if n_restarts is None else n_restarts
    check_count("draws", draws, 2)
    check_count("n_restarts", n_restarts)
    check_number("work", work, 0.0, open_low=True)
    for name, value in (("eps", eps), ("target", target), ("level", level)):
        check_number(name, value, 0.0, 1.0)
    check_count("random_state", random_state, 0)
    if not fitted.holds(data):
        raise ValueError(
            "pairs, similar: expected the answers that were fitted, in their order, found others. Pass what fit was given: answers that were fitted cannot serve as held out."
        )
    names = _names(data)
    known = None if trusted is None else read_given(trusted, names)
    if isinstance(known, TrustedPairs):
        check_drawn(known, fitted.memberships(data.features).argmax(axis=1))
    also = known.rows if isinstance(known, Trusted) else None
    fitted, data, part = sampled(fitted, data, DIAGNOSED_ITEMS, random_state, also)
    if part is not None:
        if isinstance(known, TrustedPairs):
            raise PairDataError(
                "trusted", "true classes of items", "pairs", f"Pairs are weighed by what is believed of all items, and only {part} is looked at: pass {{item: class}}.",
            )  # fmt: skip
        names = _names(data)
        known = None if trusted is None else read_given(trusted, names)
    labels = judge_labels(fitted, data, level=level, target=target, quick=quick, seed=random_state, progress=progress)
    e = gather(
        fitted, data, draws=draws, n_restarts=n_restarts, eps=eps, work=work, seed=random_state, progress=progress
    )
    settings = Settings(draws, n_restarts, eps, work, level, target, quick, random_state)
    return replace(put_together(fitted.memberships(data.features), labels, e, settings, data, known), sample=part)


def put_together(
    point: Float64,
    labels: LabelReport,
    e: Evidence,
    settings: Settings,
    data: PairData,
    trusted: Trusted | TrustedPairs | None,
) -> Diagnosis:
    """Verdicts from what was measured."""
    rows = (
        c.scatter_condition(e.of_draws, e.of_mean, e.of_averaged, e.of_prior.interval, settings.eps, e.free),
        c.anchor_condition(e.of_draws, e.of_prior, e.mean, e.of_mean, e.of_averaged, settings.eps, _names(data)),
        c.rank_condition(e.draws, e.agreement),
        c.alternatives_condition(e.alternatives),
        c.class_condition(*e.held_out),
        c.independence_condition(labels.dependence),
        c.alpha_condition(e.asked),
    )
    found = {r.id: r.verdict for r in rows}
    # The middle one: a single fit that ended in another optimum says nothing of sampling, and restarts look for those.
    folds = float(np.median([membership_mse(point, F) for F in labels.folds])) if len(labels.folds) else None
    memberships, score = judge_memberships(
        found, None if folds is None else folds + e.spread, settings.n_restarts, e.free
    )
    accuracy, reason, purity = labels.accuracy, labels.reason, Estimate()
    if isinstance(trusted, Trusted):
        assigned = point.argmax(axis=1)
        accuracy = with_trusted(assigned, labels.items["probability"].to_numpy(), trusted)
        labels = in_line(labels, assigned, data, accuracy, level=settings.level, target=settings.target)
    precision, recall = labels.precision, labels.recall
    if isinstance(trusted, TrustedPairs):
        by = with_trusted_pairs(point.argmax(axis=1), labels.beliefs, trusted)
        accuracy, purity, precision, recall = by.accuracy, by.purity, by.precision, by.recall
    doubt = labels.doubt if trusted is None else None
    if trusted is not None:
        reason = None
    checks = found[c.ConditionId.FUNCTION_CLASS], found[c.ConditionId.INDEPENDENCE]
    settled = float(labels.items["settled"].mean())
    pure = labels.clusters[["purity_low", "purity_high"]].astype(float).fillna(0.0).to_numpy()
    claim = bool(accuracy) and doubt is None
    verdicts = {
        Question.LABELS: reached(accuracy if doubt is None else Estimate(), settings.target),
        Question.ITEMS: three(claim and settled >= settings.target, claim and settled < settings.target),
        Question.CLUSTERS: three(claim and bool((pure[:, 0] >= settings.target).all()), claim and bool((pure[:, 1] < settings.target).any())),
        Question.MEMBERSHIPS: memberships,
        Question.MODEL: three(all(v is c.HOLDS for v in checks), c.FAILS in checks),
    }  # fmt: skip
    return Diagnosis(
        accuracy, reason, labels.agreement, precision, recall, labels.items, labels.clusters, labels.outlook,
        trusted is not None, verdicts, e.free, score, rows, e.identified, settings, folds, e.spread, e.posterior.status, e.posterior.message,
        purity, tuple(str(one) for one in (*labels.mixed, *labels.cut)), doubt,
    )  # fmt: skip


def _names(data: PairData) -> list[Any]:
    return list(range(data.n_items)) if data.item_ids is None else data.item_ids.tolist()


def _plain(value: float | str) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite(body: dict[str, Any]) -> dict[str, Any]:
    """None for what JSON has no number for."""
    ends = [_plain(v) for v in body["interval"]]
    return body | {"more": _plain(body["more"]), "interval": ends}


def _interval(pair: tuple[float, float]) -> str:
    low, high = pair
    return f"{low:.2f}" if abs(high - low) < 0.005 else f"{low:.2f} to {high:.2f}"
