"""The paper's two synthetic figures (appendix): membership MSE against the number of pairs, clean and with the paper's A."""

import logging
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pdcc import datasets
from pdcc.estimator import VolMaxDCC
from pdcc.grid.runner import run_grid
from pdcc.inference import PairTensors, memberships
from pdcc.metrics import membership_mse
from pdcc.plots.experiments import plot_study
from pdcc.storage.journal import read_lines, write_figure, write_table
from pdcc.together import Job, train_all
from pdcc.training import OUR_PARTS, Specification, Trainer, first_net

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
    **{f"noisy: paper's B, volume {v}": ("paper", "sigmoid-paper", float(v)) for v in VOLUMES},
    "noisy: symmetric B, volume 1e-3": ("paper", "sigmoid", 1e-3),
    "noisy: stochastic A, volume 1e-2": ("paper", "stochastic", 1e-2),
}
Cell = tuple[str, int, tuple[int, ...]]


def run_cell(cell: Cell) -> dict[str, Any]:
    """Fit one method to draws of the data, given as (method, pairs, seeds), all at once: MSE of every trial on seen and unseen items.

    Nothing is dropped and nothing is held out, so each ends where ``VolMaxDCC`` alone would have taken it, but for rounding.
    """
    method, n_pairs, seeds = cell
    truth, form, volume = METHODS[method]
    drawn = [datasets.synthetic(2000, truth, seed) for seed in seeds]
    answers = [data.answers(n_pairs, seed) for data, seed in zip(drawn, seeds, strict=True)]
    n = drawn[0].n_seen
    # One table of all trials' items: those that train at once share their items.
    x = torch.as_tensor(np.concatenate([data.X[:n] for data in drawn]).astype(np.float32))
    jobs = []
    for place, (seed, given) in enumerate(zip(seeds, answers, strict=True)):
        config = VolMaxDCC(3, confusion=form, volume=volume, **FITTED).config(seed)
        i, j = torch.as_tensor(given.pairs.T + n * place)
        pairs = PairTensors(x, i, j, torch.as_tensor(given.similar, dtype=torch.float32))
        net = first_net(config, x, None, seed, OUR_PARTS)
        spec = Specification(form, volume, 0.0)
        jobs.append(Job(Trainer(config, pairs, None, 0, OUR_PARTS), spec, net, None, seed, method))
    trials = []
    for seed, data, given, trial in zip(seeds, drawn, answers, train_all(jobs), strict=True):
        F = memberships(trial.model, torch.as_tensor(data.X.astype(np.float32))).numpy()
        seen, unseen = membership_mse(data.memberships[:n], F[:n]), membership_mse(data.memberships[n:], F[n:])
        told = {"flips": given.flip_rate, "status": str(trial.result.status)}
        trials.append({"seed": seed, "seen": seen, "unseen": unseen} | told)
    return {"method": method, "pairs": n_pairs, "trials": trials}


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
    have = _rows(record for record in read_lines(path) if "error" not in record)
    grid = [(m, n, range(seed, seed + trials[_figure(m)])) for n in pairs for m in METHODS]
    todo = [(m, n, tuple(s for s in seeds if (m, n, s) not in have)) for m, n, seeds in grid]
    found = run_grid(
        [cell for cell in todo if cell[2]], run_cell, _key, path,
        n_jobs=n_jobs, dask=dask, progress=progress, label="synthetic study", failed=_failed,
    )  # fmt: skip
    errors = [record["error"] for record in found.values() if "error" in record]
    have |= _rows(record for record in found.values() if "error" not in record)
    rows = [have[m, n, s] for m, n, seeds in grid for s in seeds if (m, n, s) in have]
    if not rows:
        raise RuntimeError(f"{path}: expected a cell that finished, found none (first: {errors[0]}).")
    if errors:
        logger.warning("%d of %d cells failed: see %s", len(errors), len(grid), path)
    table = pd.DataFrame(rows)
    write_table(output / "synthetic.csv", table)
    return table


def _rows(records: Iterable[dict[str, Any]]) -> dict[Hashable, dict[str, Any]]:
    """One row per trial, by method, pairs and seed."""
    each = (
        {"method": r["method"], "pairs": r["pairs"]} | trial
        for r in records
        for trial in r.get("trials", [r])  # once there was a record per trial
    )
    return {(row["method"], row["pairs"], row["seed"]): row for row in each}


def _figure(method: str) -> str:
    return method.partition(":")[0]


def _key(record: dict[str, Any]) -> Hashable:
    return record["method"], record["pairs"]


def _failed(cell: Cell, error: Exception) -> dict[str, Any]:
    return dict(zip(("method", "pairs", "seeds"), cell, strict=True)) | {"error": f"{type(error).__name__}: {error}"}


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
