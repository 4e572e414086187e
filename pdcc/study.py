"""The paper's synthetic study (appendix): membership MSE against the number of pairs, clean and with the paper's A."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from pdcc import datasets
from pdcc.estimator import VolMaxDCC
from pdcc.metrics import membership_mse

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


def run_cell(method: str, n_pairs: int, seed: int, n_items: int = 2000, epochs: int | None = None) -> dict[str, Any]:
    """Fit one method to one draw of the data: MSE on seen and unseen items."""
    import torch

    torch.set_num_threads(1)
    truth, form, volume = METHODS[method]
    data = datasets.synthetic(n_items, truth, seed)
    answers = data.answers(n_pairs, seed)
    n = data.n_seen
    setting = FITTED | ({} if epochs is None else {"epochs": epochs})
    est = VolMaxDCC(3, confusion=form, volume=volume, random_state=seed, **setting)
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
    path: Path,
    *,
    seeds: int = 10,
    pairs: tuple[int, ...] = PAIRS,
    n_jobs: int = 1,
    progress: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """Every method, number of pairs and seed that the CSV at ``path`` does not hold yet; a killed run goes on."""
    have = set()
    if path.exists():
        table = pd.read_csv(path)
        have = set(zip(table["method"], table["pairs"], table["seed"], strict=True))
    todo = [(m, n, s) for s in range(seeds) for n in pairs for m in METHODS if (m, n, s) not in have]
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(delayed(run_cell)(*one, **options) for one in todo)
    for row in tqdm(work, total=len(todo), desc="synthetic study", disable=not progress):
        fresh = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(row))
            if fresh:
                writer.writeheader()
            writer.writerow(row)
    return pd.read_csv(path)


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
