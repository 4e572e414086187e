"""Settings that look like life, with known labels: does the diagnosis know how right a fit's labels are?

Thresholds and priors of ``pdcc.accuracy`` were set on the data of half A; half B is for reporting.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from pdcc.accuracy.trusted import Trusted, named, with_trusted
from pdcc.annotators import (
    Answers,
    answer_by_labels,
    answer_through,
    answer_with_flips,
    draw_pairs,
    flip_rate,
    machine_annotator,
    mistaken_labels,
    mixed_annotators,
    uniform_confusion,
)
from pdcc.arrays import Bools, Float64, Ints
from pdcc.estimator import VolMaxDCC
from pdcc.experiments.bank import labelled
from pdcc.experiments.grid import run_study
from pdcc.plots.experiments import plot_labels
from pdcc.storage.journal import write_figure, write_table

HALVES = {
    "A": ("digits", "wine", "satellite", "vowel", "blobs5", "uneven5", "blobs20"),
    "B": ("iris", "breast_cancer", "cifar10n", "labelme", "dna", "blobs8", "uneven10", "soft6"),
}
LARGE = 10_000
RATIOS = (1, 2, 5, 10)
TRUSTED = 100


@dataclass(frozen=True)
class Setting:
    """data, kind of answers, answers per item, and a seed; of the larger data sets at most ``most`` items are drawn."""

    data: str
    kind: str
    ratio: int
    seed: int
    most: int = 1300

    @property
    def name(self) -> str:
        """Unique among settings."""
        return f"{self.data}-{self.kind}-{self.ratio}-{self.seed}-{self.most}"


Asked = tuple[NDArray[np.float32], Ints, Float64, Ints, np.random.Generator]


def _chain(K: int, rate: float) -> Float64:
    """Every class is taken for the next one, and for no other."""
    return np.asarray((1 - rate) * np.eye(K) + rate * np.roll(np.eye(K), 1, axis=0))


def _hard(asked: Asked) -> Answers:
    """Items near others of another class are taken for these more often."""
    X, y, F, pairs, rng = asked
    Z = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    seen = LogisticRegression(max_iter=500, C=0.01).fit(Z, y).predict_proba(Z)
    return answer_through(0.6 * F + 0.4 * seen, pairs, np.eye(F.shape[1]), rng)


def _people(asked: Asked, n: int) -> Answers:
    _, _, F, pairs, rng = asked
    return mixed_annotators(
        F, pairs, np.stack([uniform_confusion(F.shape[1], e) for e in np.linspace(0.05, 0.35, n)]), rng
    )


def _minds(asked: Asked) -> Answers:
    """Ten annotators, each with a label of every item in mind."""
    _, y, _, pairs, rng = asked
    by = rng.integers(10, size=len(pairs))
    minds = np.stack([mistaken_labels(y, 0.2, rng) for _ in range(10)])
    similar = minds[by, pairs[:, 0]] == minds[by, pairs[:, 1]]
    return Answers(pairs, similar, flip_rate(y, pairs, similar), by)


def _machine(asked: Asked) -> Answers:
    X, y, F, pairs, rng = asked
    Z = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    n = max(5 * F.shape[1], round(0.04 * len(y)))
    return machine_annotator(Z, y, pairs, n_labels=n, seed=int(rng.integers(2**31)))


INDEPENDENT: dict[str, Callable[[Asked], Answers]] = {
    "flips10": lambda a: answer_with_flips(a[1], a[3], 0.10, a[4]),
    "flips20": lambda a: answer_with_flips(a[1], a[3], 0.20, a[4]),
    "confusion": lambda a: answer_through(a[2], a[3], uniform_confusion(a[2].shape[1], 0.15), a[4]),
    "structured": lambda a: answer_through(a[2], a[3], _chain(a[2].shape[1], 0.2), a[4]),
    "hard": _hard,
    "eight": lambda a: _people(a, 8),
    "fifty": lambda a: _people(a, 50),
}
TRANSITIVE: dict[str, Callable[[Asked], Answers]] = {
    "mind": lambda a: answer_by_labels(a[1], mistaken_labels(a[1], 0.2, a[4]), a[3]),
    "minds": _minds,
    "machine": _machine,
}
KINDS = INDEPENDENT | TRANSITIVE


def features(name: str, most: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], Ints, Float64]:
    """(X (N, d), classes (N,), memberships (N, K)) of a data set; the last are one-hot but for "soft"."""
    kind = name.rstrip("0123456789")
    if kind not in ("blobs", "uneven", "soft"):
        X, y = labelled(name, rng)
        rows = rng.permutation(len(y))[:most]
        return X[rows], y[rows], np.eye(int(y.max()) + 1)[y[rows]]
    K = int(name[len(kind) :])
    n, d = max(600, 100 * K) if most < LARGE else most, max(10, K)
    share = np.geomspace(1, 8, K) if kind == "uneven" else np.ones(K)
    y = rng.choice(K, size=n, p=share / share.sum())
    y[:K] = np.arange(K)
    F = np.eye(K)[y]
    if kind == "soft":
        F = 0.7 * F + 0.3 * rng.dirichlet(np.full(K, 0.3), size=n)
        y = F.argmax(axis=1)
    centres = rng.normal(size=(K, d))
    centres *= 3.5 / np.linalg.norm(centres, axis=1, keepdims=True)
    return (F @ centres + rng.normal(size=(n, d))).astype(np.float32), np.asarray(y), F


def settings(half: str, size: int | None, seed: int) -> list[Setting]:
    """The settings of a half, shuffled; the first ``size`` of them."""
    every = [Setting(d, k, r, seed) for d in HALVES[half] for k in KINDS for r in RATIOS]
    every += (
        [Setting("blobs8", k, r, seed, LARGE) for k in ("flips10", "structured") for r in (1, 2)] if half == "B" else []
    )
    order = np.random.default_rng(seed).permutation(len(every))
    return [every[n] for n in order[: len(every) if size is None else size]]


def run_cell(setting: Setting, quick: bool = False) -> dict[str, Any]:
    """Generate, fit, diagnose (which never sees a label), and only then look at the labels."""
    rng = np.random.default_rng([setting.seed, *map(ord, f"{setting.data}-{setting.kind}-{setting.ratio}")])
    X, y, F = features(setting.data, setting.most, rng)
    n_pairs = min(setting.ratio * len(y), len(y) * (len(y) - 1) // 2)
    answers = KINDS[setting.kind]((X, y, F, draw_pairs(len(y), n_pairs, rng, distinct=True), rng))
    given = X, answers.pairs, answers.similar, answers.annotators
    est = VolMaxDCC(F.shape[1], random_state=setting.seed, progress=False).fit(*given)
    found = est.diagnose(*given, quick=quick, work=4.0)
    right = named(est.labels_, y)
    p, one = found.items["probability"].to_numpy(), found.items["settled"].to_numpy(dtype=bool)
    known = rng.permutation(len(y))[: min(TRUSTED, len(y) // 2)]
    trusted = _trusted(est.labels_, p, known, y)
    return asdict(setting) | {
        "name": setting.name, "n_items": len(y), "n_clusters": F.shape[1], "n_pairs": n_pairs, "flip_rate": answers.flip_rate, "accuracy": float(right.mean()),
        "low": found.accuracy.low, "estimate": found.accuracy.estimate, "high": found.accuracy.high, "agreement": found.agreement.estimate,
        "flagged": found.accuracy.estimate is None, "auc": float(roc_auc_score(right, p)) if 0 < right.mean() < 1 else None,
        "ece": ece(p, right), "settled": float(one.mean()), "settled_right": float(right[one].mean()) if one.any() else None,
        "right_settled": float(one[right].mean()), **trusted,
        "verdicts": {str(q): str(v) for q, v in found.verdicts.items()}, "score": found.score, "chosen": str(est.report_.chosen),
        "failures": list(est.report_.useful.failures),
    }  # fmt: skip


def _trusted(labels: Ints, p: Float64, rows: Ints, y: Ints) -> dict[str, Any]:
    """The interval by trusted labels, and how wide one by these labels alone is."""
    found, alone = (with_trusted(labels, q, Trusted(rows, y[rows])) for q in (p, np.full(len(p), 0.5)))
    widths = [float((f.high or 0) - (f.low or 0)) for f in (found, alone)]
    return {"trusted_low": found.low, "trusted_high": found.high, "trusted_width": widths[0], "alone_width": widths[1]}


def ece(p: Float64, right: Bools, bins: int = 10) -> float:
    """Expected calibration error over bins of equal width."""
    at = np.minimum((p * bins).astype(int), bins - 1)
    gaps = [abs(right[at == b].mean() - p[at == b].mean()) * (at == b).mean() for b in np.unique(at)]
    return float(np.sum(gaps))


def summarise(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per kind of answers and for all: coverage, error, width, and how items fare."""
    table = pd.DataFrame([r for r in rows if "error" not in r])
    groups = {"independent": table["kind"].isin(INDEPENDENT), "transitive": table["kind"].isin(TRANSITIVE)}
    groups |= {kind: table["kind"] == kind for kind in KINDS}
    out = []
    for name, pick in groups.items():
        t, claimed = table[pick], table[pick & ~table["flagged"].astype(bool)]
        row: dict[str, Any] = {"answers": name, "settings": len(t), "flagged": t["flagged"].mean()}
        if len(claimed):
            miss = claimed["estimate"].astype(float) - claimed["accuracy"]
            low, high = claimed["low"].astype(float), claimed["high"].astype(float)
            row |= {
                "covered": ((low <= claimed["accuracy"]) & (claimed["accuracy"] <= high)).mean(), "bias": miss.mean(), "error": miss.abs().mean(),
                "width (median)": (high - low).median(), "AUC": claimed["auc"].astype(float).mean(), "ECE": claimed["ece"].mean(),
                "settled": claimed["settled"].mean(), "of these right": claimed["settled_right"].astype(float).mean(), "right ones settled": claimed["right_settled"].mean(),
            }  # fmt: skip
        held = (t["trusted_low"] <= t["accuracy"]) & (t["accuracy"] <= t["trusted_high"])
        out.append(row | {"covered, trusted": held.mean() if len(t) else None})
    return pd.DataFrame(out)


def simulate_labels(
    output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool, dask: str | None = None, half: str = "B"
) -> str:
    """Run a half of the bank into ``output``: labels.jsonl, labels.csv, labels-summary.csv, labels.png. Returns the summary as text."""
    path = output / "labels.jsonl"
    asked = settings(half, size, seed)
    rows = run_study(asked, run_cell, path, n_jobs=n_jobs, dask=dask, progress=progress, label="labels")
    write_table(output / "labels.csv", pd.DataFrame([{k: v for k, v in r.items() if k != "verdicts"} for r in rows]))
    failed = sum("error" in r for r in rows)
    if failed == len(rows):
        return f"{len(rows)} settings, none finished: see {output / 'labels.csv'}."
    summary = summarise(rows)
    write_table(output / "labels-summary.csv", summary)
    write_figure(output / "labels.png", plot_labels(rows).figure)
    return f"{len(rows)} settings, {failed} failed.\n{summary.round(3).to_string(index=False)}"
