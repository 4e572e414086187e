"""A report's content made up in a moment: no fit, every section filled, texts as hostile as asked for."""

from pathlib import Path

import numpy as np
import pandas as pd

from pdcc.accuracy.estimate import Estimate
from pdcc.accuracy.outlook import Outlook
from pdcc.criticism.calibration import run_calibration
from pdcc.data.splits import HeldOut
from pdcc.fitted import FitReport, Usefulness
from pdcc.identifiability.conditions import Condition, ConditionId, Verdict
from pdcc.identifiability.diagnose import Diagnosis, Settings
from pdcc.identifiability.verdict import Overall, Question
from pdcc.inference.variational import SampleStatus
from pdcc.posterior.squeeze import IdentifiedSet
from pdcc.report.collect import draw
from pdcc.report.content import Facts, Looks, ReportContent
from pdcc.training import Source, Specification, Start

# Markup, quotes that would end an attribute, addresses that run, formulas, mathematics, and characters that steer a screen.
HOSTILE = (
    "<script>alert(1)</script>", "\" onmouseover=\"alert(1)", "' onfocus='alert(1)", "javascript:alert(1)", "</style><img src=x onerror=alert(1)>",
    "=1+1", "+2", "-3", "@SUM(A1)", "{{ 7 * 7 }}", "$\\frac{1}{0$", "a\u202eb\x1b[31m", "</svg></td></table><h1>", "&lt;b&gt;", "日本語 🙂",
)  # fmt: skip


def made_diagnosis(labels: np.ndarray, K: int, names: tuple, *, claim: str = "accuracy") -> Diagnosis:
    """claim: "accuracy", "agreement" (answers depend on each other) or "none"."""
    rng = np.random.default_rng(1)
    N = len(labels)
    probability = rng.beta(8, 1, N) if claim != "none" else np.full(N, 1 / K)
    settled = probability > 0.95
    items = pd.DataFrame(
        {"item": names, "label": labels, "probability": probability, "settled": settled, "set": ["{0}"] * N}
    )
    rows = []
    for k in range(K):
        mine = np.flatnonzero(labels == k)
        purity = float(probability[mine].mean()) if len(mine) else None
        ends = (None, None) if purity is None else (max(purity - 0.1, 0.0), min(purity + 0.05, 1.0))
        rows.append(
            {
                "cluster": k, "items": len(mine), "purity_low": ends[0], "purity": purity, "purity_high": ends[1], "settled": k % 2 == 0,
                "confounded_with": (k + 1) % K, "confounded_share": 0.07, "purest": [names[n] for n in mine[:3]], "answers": 17,
            }
        )  # fmt: skip
    share, none = Estimate(0.85, 0.94, 0.99), Estimate()
    told = claim != "none"
    verdicts = dict(zip(Question, [*Overall, Overall.SUPPORTED, Overall.CANNOT_TELL], strict=True))
    conditions = tuple(Condition(name, "Thm 4.1", Verdict.FAILS, (0.1, 0.3), None, {}, f"Ask about {names[0]}.") for name in ConditionId)  # fmt: skip
    outlook = Outlook({750: 0.84, 1500: 0.9, 3000: 0.94}, 0.99, 39_000.0, (1000.0, float("inf")), 3000)
    return Diagnosis(
        accuracy=share if claim == "accuracy" else none, accuracy_reason=None if claim == "accuracy" else "Answers go wrong together.",
        agreement=share if claim == "agreement" else none, precision=share if told else none, recall=share if told else none, items=items,
        clusters=pd.DataFrame(rows), outlook=outlook if told else None, trusted=False, verdicts=verdicts, conditional=True, score=0.4,
        conditions=conditions, identified=IdentifiedSet(0.8, 1.0, (0.8, 0.89), 0.89),
        settings=Settings(60, 4, 0.05, 20.0, 0.95, 0.8, False, 0), folds_distance=0.1, posterior_distance=0.1,
        posterior_status=SampleStatus.CONVERGED, posterior_message="",
    )  # fmt: skip


def made_content(
    n: int = 120,
    K: int = 4,
    M: int = 400,
    *,
    hostile: bool = False,
    images: dict | None = None,
    claim: str = "accuracy",
) -> ReportContent:
    rng = np.random.default_rng(0)
    words = HOSTILE if hostile else ("plain",)
    names = tuple(f"{words[k % len(words)]} {k}" if hostile else f"item-{k}" for k in range(n))
    labels = np.arange(n) % K
    F = rng.dirichlet(np.full(K, 0.2), n) * 0.3 + 0.7 * np.eye(K)[labels]
    rows = draw(labels, 0)
    X = rng.normal(size=(K, 12))[labels] * 3 + rng.normal(size=(n, 12))
    i, j = rng.integers(n, size=M), rng.integers(n, size=M)
    people = [words[k % len(words)] + f" {k}" for k in range(8)]
    doubtful = pd.DataFrame(
        {
            "i": i, "j": j, "similar": rng.random(M) < 0.3, "annotator": [people[k % 8] for k in range(M)], "expected": rng.random(M),
            "wrong": rng.random(M), "reason": [words[k % len(words)] for k in range(M)],
        }
    )  # fmt: skip
    annotators = pd.DataFrame(
        {
            "annotator": people, "answers": 50, "reliability": np.linspace(0.6, 0.95, 8), "low": np.linspace(0.5, 0.9, 8),
            "high": np.linspace(0.7, 0.99, 8), "confuses": words[0], "flag": [words[0], *[""] * 7],
        }
    )  # fmt: skip
    suggested = pd.DataFrame({"i": i[:40], "j": j[:40], "gain": rng.random(40), "chosen_by": words[-1], "probability": rng.random(40)})  # fmt: skip
    useful = Usefulness(0.24, 0.29, (30, 30), 0.6, 0.04, ("A cluster is empty.",))
    compared = tuple(
        {"setting": f"setting {k}", "nll": 0.3, "behind_best": 0.0, "standard_error": 0.0} for k in range(3)
    )
    fit = FitReport(
        HeldOut.PAIRS, 40, (), 80, "unit scale", Start(Source.GUIDED), False, 3, compared, Specification("sigmoid", 0.01, 0.0), "it predicts best", useful
    )  # fmt: skip
    history = tuple({"epoch": float(e), "loss": 1 / e, "held_out": 1.1 / e, "log_volume": -e} for e in range(1, 6))
    p = rng.random(200)
    texts = {k: words[(k + 3) % len(words)] for k in range(n)}
    return ReportContent(
        facts=Facts(
            run=words[0], written="2026-01-02", estimator="VolMaxDCC", seed=7, versions={"pdcc": "0.1.0"},
            hashes={f"pairs: {words[3 % len(words)]}.csv": "ab" * 32}, options={"init": words[1 % len(words)]},
        ),
        names=names, memberships=F / F.sum(axis=1, keepdims=True), labels=labels, sample=rows, sampled=X[rows], n_answers=M, n_annotators=8,
        agreement=np.full((K, K), 0.05) + 0.8 * np.eye(K), free=True, fit=fit, message="Kept the best epoch.", history=history,
        diagnosis=made_diagnosis(labels, K, names, claim=claim), calibration=run_calibration(p, rng.random(200) < p),
        annotators=annotators, doubtful=doubtful, suggested=suggested, stopping="Going on pays.", looks=Looks(texts, images or {}),
    )  # fmt: skip


def picture(path: Path, seed: int = 0, size: int = 200) -> Path:
    """An image file of noise: the hardest to make small."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, size=(size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path
