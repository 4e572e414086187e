"""The paper's synthetic study (appendix): membership MSE against the number of pairs, clean and with the paper's A."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from pdcc import datasets
from pdcc.estimator import VolMaxDCC
from pdcc.metrics import membership_mse
from pdcc.records import append_line, one_thread, read_lines, write_figure, write_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAIRS = (1000, 4000, 10_000)
# One hidden layer, Adam, random start; no scaling, dropout, early stopping or choice: only likelihood and volume differ.
FITTED: dict[str, Any] = {
    "hidden": (256,), "lr": 3e-3, "epochs": 100, "validation_fraction": 0.0, "dropout": 0.0, "scale": None, "init": "random",
    "partition": 0.0, "progress": False, "device": "cpu",
}  # fmt: skip
# name: (confusion of the data, form fitted, volume)
METHODS: dict[str, tuple[str | None, str, float]] = {
    "clean: Vanilla": (None, "none", 0.0),
    "noisy: Vanilla": ("paper", "none", 0.0),
    "noisy: sigmoid B, volume 0": ("paper", "sigmoid", 0.0),
    "noisy: sigmoid B, volume 1e-4": ("paper", "sigmoid", 1e-4),
    "noisy: sigmoid B, volume 1e-3": ("paper", "sigmoid", 1e-3),
    "noisy: sigmoid B, volume 1e-2": ("paper", "sigmoid", 1e-2),
    "noisy: stochastic A, volume 1e-2": ("paper", "stochastic", 1e-2),
}


def run_cell(method: str, n_pairs: int, seed: int) -> dict[str, Any]:
    """Fit one method to one draw of the data: MSE on seen and unseen items."""
    truth, form, volume = METHODS[method]
    data = datasets.synthetic(2000, truth, seed)
    answers = data.answers(n_pairs, seed)
    n = data.n_seen
    with one_thread():
        est = VolMaxDCC(3, confusion=form, volume=volume, random_state=seed, **FITTED)
        est.fit(data.X[:n], answers.pairs, answers.similar)
    return {
        "method": method,
        "pairs": n_pairs,
        "seed": seed,
        "seen": membership_mse(data.memberships[:n], est.memberships_),
        "unseen": membership_mse(data.memberships[n:], est.predict_proba(data.X[n:])),
        "flips": answers.flip_rate,
        "status": est.status_,
    }


def run_study(
    output: Path,
    *,
    seeds: Sequence[int] = range(10),
    pairs: tuple[int, ...] = PAIRS,
    n_jobs: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Every method, number of pairs and seed that ``output`` does not hold yet; writes synthetic.jsonl and synthetic.csv there."""
    path = output / "synthetic.jsonl"
    have = {(r["method"], r["pairs"], r["seed"]): r for r in read_lines(path)}
    grid = [(m, n, s) for s in seeds for n in pairs for m in METHODS]
    todo = [cell for cell in grid if cell not in have]
    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(delayed(run_cell)(*cell) for cell in todo)
    for row in tqdm(work, total=len(todo), desc="synthetic study", disable=not progress):
        append_line(path, row)
        have[row["method"], row["pairs"], row["seed"]] = row
    table = pd.DataFrame([have[cell] for cell in grid])
    write_table(output / "synthetic.csv", table)
    return table


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Median seen and unseen MSE and the number of seeds, by method and number of pairs."""
    return (
        table.groupby(["method", "pairs"], sort=False)
        .agg(seen=("seen", "median"), unseen=("unseen", "median"), seeds=("seed", "count"))
        .reset_index()
    )


def plot_study(table: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """MSE against pairs on log scales, one line a method: solid seen, dashed unseen items."""
    from matplotlib.figure import Figure

    axes = ax if ax is not None else Figure(figsize=(7.5, 4.6), layout="constrained").add_subplot()
    colours = ("#4477aa", "#bbbbbb", "#ccbb44", "#66ccee", "#228833", "#ee6677", "#aa3377")
    found = medians(table)
    for method, colour in zip(METHODS, colours, strict=False):
        rows = found[found["method"] == method].sort_values("pairs")
        if len(rows):
            axes.loglog(rows["pairs"], rows["seen"], "o-", color=colour, label=method)
            axes.loglog(rows["pairs"], rows["unseen"], "--", color=colour, alpha=0.6)
    ticks = np.unique(found["pairs"])
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.minorticks_off()
    axes.set(
        xlabel="pairs M", ylabel="membership MSE (median)", title="Synthetic study: solid seen, dashed unseen items"
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return axes


def simulate_synthetic(output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool) -> str:
    """Run the study into ``output``: synthetic.jsonl, synthetic.csv, synthetic.png. Returns medians as text."""
    seeds = range(seed, seed + (10 if size is None else size))
    table = run_study(output, seeds=seeds, n_jobs=n_jobs, progress=progress)
    write_figure(output / "synthetic.png", plot_study(table).figure)
    return medians(table).round(4).to_string(index=False)
