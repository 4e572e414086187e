"""What the printed tests say where nothing is wrong: shares of p < .05 over sets with independent answers of the model itself.

And how often the test of dependence sees labels in mind, by answers per item.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from pdcc.accuracy.estimate import judge_labels
from pdcc.annotators import (
    answer_by_labels,
    answer_through,
    draw_pairs,
    mistaken_labels,
    mixed_annotators,
    uniform_confusion,
)
from pdcc.criticism.calibration import check_calibration, run_calibration
from pdcc.criticism.predictive import check_predictive, run_predictive
from pdcc.data.pairs import PairData
from pdcc.estimator import VolMaxDCC
from pdcc.experiments.grid import run_study
from pdcc.experiments.labels_bank import features
from pdcc.metrics import acc
from pdcc.storage.journal import write_table

RATIOS = (2, 5, 30)
WRONG = 0.2


@dataclass(frozen=True)
class Setting:
    """kind: "null" (independent answers about items of one class each), "null, eight" (of eight annotators), "null, net" (about memberships
    that a net gave, as the model has it), or "mind" (a label in mind per item)."""

    kind: str
    ratio: int
    seed: int
    data: str = "blobs4"

    @property
    def name(self) -> str:
        """Unique among settings."""
        return "-".join(map(str, asdict(self).values()))


def run_cell(setting: Setting) -> dict[str, Any]:
    """Fit, and keep the p-value of every test there is."""
    rng = np.random.default_rng([setting.seed, setting.ratio, *map(ord, setting.kind)])
    X, y, F = features(setting.data, 300, rng)
    X, y, F = X[:300], y[:300], F[:300]
    K, pairs = F.shape[1], draw_pairs(300, setting.ratio * 300, rng)
    if setting.kind == "mind":
        answers = answer_by_labels(y, mistaken_labels(y, WRONG, rng), pairs)
    elif setting.kind == "null, eight":
        rates = np.linspace(0.05, 0.3, 8)
        answers = mixed_annotators(F, pairs, np.stack([uniform_confusion(K, e) for e in rates]), rng)
    else:
        answers = answer_through(F, pairs, uniform_confusion(K, WRONG), rng)
    new = VolMaxDCC(K, hidden=(64,), random_state=setting.seed, progress=False, device="cpu")
    if setting.kind == "null, net":
        told = clone(new).fit(X, answers.pairs, answers.similar)
        y, F = told.labels_, told.memberships_.astype(np.float64)
        answers = answer_through(F, pairs, uniform_confusion(K, WRONG), rng)
    given = X, answers.pairs, answers.similar, answers.annotators
    est = new.fit(*given)
    data = PairData.from_arrays(*given)
    labels = judge_labels(est.fitted_, data, seed=setting.seed)
    p: dict[str, float | None] = {"dependence": None if labels.dependence is None else labels.dependence.p}
    idata = est.posterior(*given, draws=24, random_state=setting.seed)
    table = check_predictive(run_predictive(idata, twins=0, seed=setting.seed))
    p |= dict(zip(table["statistic"].tolist(), table["p"].tolist(), strict=True))
    held = est.fitted_.split.test(data)
    if held is not None and len(held) >= 30:
        asked = est.predict_pairs(X, np.column_stack([held.i, held.j]), held_names(held))
        found = check_calibration(run_calibration(asked, held.similar))
        p |= {f"calibration: {test}": value for test, value in zip(found["test"], found["p"].tolist(), strict=True)}
    return asdict(setting) | {"name": setting.name, "p": p, "accuracy": acc(y, est.labels_)}


def held_names(data: PairData) -> Any:
    """Who gave these answers, or None."""
    return None if data.annotator is None else np.array(data.annotator_names, dtype=object)[data.annotator]


def summarise(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per kind, answers per item and test: sets, share of p < .05, median p."""
    flat = [
        {"kind": r["kind"], "per item": r["ratio"], "test": test, "p": p}
        for r in rows
        if "error" not in r
        for test, p in r["p"].items()
        if p is not None
    ]
    table = pd.DataFrame(flat)
    grouped = table.groupby(["kind", "test", "per item"])["p"]
    return grouped.agg(sets="size", below=lambda p: float((p < 0.05).mean()), median="median").reset_index()


def simulate_nulls(
    output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool, dask: str | None = None
) -> str:
    """Run the study into ``output``: nulls.jsonl, nulls.csv. Returns the summary as text."""
    path, n = output / "nulls.jsonl", 200 if size is None else size
    asked = [
        Setting(kind, ratio, 1000 * seed + r)
        for r in range(max(1, n // 9))
        for kind in ("null", "null, eight", "null, net", "mind")
        for ratio in RATIOS
    ]
    rows = run_study(asked, run_cell, path, n_jobs=n_jobs, dask=dask, progress=progress, label="nulls")
    failed = sum("error" in r for r in rows)
    if failed == len(rows):
        return f"{len(rows)} sets, none finished: see {path}."
    table = summarise(rows)
    write_table(output / "nulls.csv", table)
    return f"{len(rows)} sets, {failed} failed.\n{table.round(3).to_string(index=False)}"
