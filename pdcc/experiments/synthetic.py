"""The paper's two synthetic figures (appendix): membership MSE against the number of pairs, clean and with the paper's A."""

import logging
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pdcc import datasets
from pdcc.estimator import VolMaxDCC
from pdcc.grid.runner import run_grid
from pdcc.metrics import membership_mse
from pdcc.plots.experiments import plot_study
from pdcc.storage.journal import read_lines, write_figure, write_table

logger = logging.getLogger(__name__)

PAIRS = tuple(range(1000, 10_001, 1000))
# What the paper chooses from, and its trials of either figure.
VOLUMES = ("0", "1e-5", "1e-4", "1e-3", "1e-2", "1e-1")
TRIALS = {"clean": 5, "noisy": 10}
# One hidden layer, Adam, random start; no scaling, dropout, early stopping or choice: only likelihood and volume differ.
FITTED: dict[str, Any] = {
    "hidden": (256,), "lr": 3e-3, "epochs": 100, "validation_fraction": 0.0, "dropout": 0.0, "scale": None, "init": "random",
    "partition_weight": 0.0, "progress": False, "device": "cpu",
}  # fmt: skip
# figure and name: (confusion of the data, form fitted, volume)
METHODS: dict[str, tuple[str | None, str, float]] = {
    "clean: Vanilla": (None, "none", 0.0),
    "noisy: Vanilla": ("paper", "none", 0.0),
    **{f"noisy: sigmoid B, volume {v}": ("paper", "sigmoid", float(v)) for v in VOLUMES},
    "noisy: stochastic A, volume 1e-2": ("paper", "stochastic", 1e-2),
}


def run_cell(cell: tuple[str, int, int]) -> dict[str, Any]:
    """Fit one method to one draw of the data, given as (method, pairs, seed): MSE on seen and unseen items."""
    method, n_pairs, seed = cell
    truth, form, volume = METHODS[method]
    data = datasets.synthetic(2000, truth, seed)
    answers = data.answers(n_pairs, seed)
    n = data.n_seen
    est = VolMaxDCC(3, confusion=form, volume=volume, random_state=seed, **FITTED)
    est.fit(data.X[:n], answers.pairs, answers.similar)
    return {
        "method": method,
        "pairs": n_pairs,
        "seed": seed,
        "seen": membership_mse(data.memberships[:n], est.memberships_),
        "unseen": membership_mse(data.memberships[n:], est.predict_proba(data.X[n:])),
        "flips": answers.flip_rate,
        "status": str(est.status_),
    }


def run_study(
    output: Path,
    *,
    trials: Mapping[str, int] = TRIALS,
    seed: int = 0,
    pairs: tuple[int, ...] = PAIRS,
    n_jobs: int = 1,
    dask: str | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Every method, number of pairs and trial that ``output`` does not hold yet; writes synthetic.jsonl and synthetic.csv there.

    ``trials``: how many of each figure, "clean" and "noisy"; they have the seeds from ``seed`` on.
    A cell that raises is recorded with its "error", has no row, and is tried again by the next run.
    """
    path = output / "synthetic.jsonl"
    have = {_key(r): r for r in read_lines(path) if "error" not in r}
    grid = [
        (m, n, seed + t) for t in range(max(trials.values())) for n in pairs for m in METHODS if t < trials[_figure(m)]
    ]
    todo = [cell for cell in grid if cell not in have]
    have |= run_grid(
        todo, run_cell, _key, path, n_jobs=n_jobs, dask=dask, progress=progress, label="synthetic study", failed=_failed
    )  # fmt: skip
    found = [have[cell] for cell in grid]
    finished = [record for record in found if "error" not in record]
    if not finished:
        raise RuntimeError(f"{path}: expected a cell that finished, found none (first: {found[0]['error']}).")
    if len(finished) < len(found):
        logger.warning("%d of %d cells failed: see %s", len(found) - len(finished), len(found), path)
    table = pd.DataFrame(finished)
    write_table(output / "synthetic.csv", table)
    return table


def _figure(method: str) -> str:
    return method.partition(":")[0]


def _key(record: dict[str, Any]) -> Hashable:
    return record["method"], record["pairs"], record["seed"]


def _failed(cell: tuple[str, int, int], error: Exception) -> dict[str, Any]:
    return dict(zip(("method", "pairs", "seed"), cell, strict=True)) | {"error": f"{type(error).__name__}: {error}"}


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Median seen and unseen MSE and the number of trials, by method and number of pairs."""
    return (
        table.groupby(["method", "pairs"], sort=False)
        .agg(seen=("seen", "median"), unseen=("unseen", "median"), seeds=("seed", "count"))
        .reset_index()
    )


def simulate_synthetic(
    output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool, dask: str | None = None
) -> str:
    """Run the study into ``output``: synthetic.jsonl, synthetic.csv, synthetic-clean.png and -noisy.png. Returns medians as text.

    ``size``: trials of either figure, where the paper has 5 and 10.
    """
    trials = TRIALS if size is None else dict.fromkeys(TRIALS, size)
    table = medians(run_study(output, trials=trials, seed=seed, n_jobs=n_jobs, dask=dask, progress=progress))
    for figure in TRIALS:
        part = table[table["method"].map(_figure) == figure]
        write_figure(output / f"synthetic-{figure}.png", plot_study(part).figure)
    return table.round(4).to_string(index=False)
