"""Pictures of studies: methods compared, wins and losses, the identifiability bank, the synthetic study. They take tables, not studies."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pdcc.plots.canvas import COLOURS, INK, axes_of, plain, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_bench(summary: pd.DataFrame, measure: str = "acc_seen", titles: Mapping[str, str] | None = None) -> "Figure":
    """Mean and standard error of every method, one panel per task; ``summary`` as ``experiments.compare.summarise`` makes it."""
    from matplotlib.figure import Figure

    table = summary[summary["measure"] == measure]
    tasks, methods = list(dict.fromkeys(table["task"])), list(dict.fromkeys(table["method"]))
    figure = Figure(figsize=(2.4 * max(len(tasks), 1) + 2, 0.32 * len(methods) + 1.2), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, max(len(tasks), 1), sharey=True))
    for axis, task in zip(axes, tasks, strict=False):
        part = table[table["task"] == task].set_index("method").reindex(methods)
        axis.errorbar(part["mean"], np.arange(len(methods)), xerr=part["se"], fmt="o", markersize=4, capsize=2)
        axis.set_title(task, fontsize=9)
        axis.set_xlabel(measure.replace("_", ", ").upper() if measure.startswith("acc") else measure, fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(np.arange(len(methods)), [(titles or {}).get(m, m) for m in methods], fontsize=8)
    axes[0].invert_yaxis()
    return figure


def plot_bars(
    summary: pd.DataFrame,
    task: str | None = None,
    measure: str = "acc_seen",
    titles: Mapping[str, str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """One task of a benchmark as bars from zero, with standard errors and numbers; ``summary`` as for ``plot_bench``."""
    table = summary[summary["measure"] == measure]
    known = list(dict.fromkeys(table["task"]))
    task = known[0] if task is None and known else task
    if task not in known:
        raise ValueError(f"task: expected one of {known} with the measure {measure!r}, found {task!r}. Choose another.")
    table = table[table["task"] == task]
    at, mean = np.arange(len(table)), table["mean"].to_numpy(dtype=np.float64)
    ax = axes_of(ax, (5.4, 0.36 * len(table) + 1.2))
    ax.barh(at, mean, height=0.62, xerr=table["se"], color=COLOURS[0], ecolor=INK, capsize=2)
    for row, (value, error) in enumerate(zip(mean, table["se"].fillna(0.0), strict=True)):
        ax.annotate(
            f"{value:.3f}", (max(value + error, 0.0), row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )  # fmt: skip
    names = [(titles or {}).get(m, m) for m in table["method"]]
    ax.set_yticks(at, names, parse_math=False)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlabel(measure.replace("_", ", "))
    titled(ax, str(task))
    plain(ax).grid(visible=False, axis="y")
    return ax


def plot_asking(summary: pd.DataFrame, data: str, ax: "Axes | None" = None) -> "Axes":
    """Accuracy against the number of answers, one line for each way of choosing pairs, with standard errors; dashed, what all the random answers reach.

    ``summary`` has the columns data, strategy, answers, accuracy and error.
    """
    table = summary[summary["data"] == data]
    if not len(table):
        raise ValueError(f"data: expected one of {sorted(set(summary['data']))}, found {data!r}. Choose another.")
    ax = axes_of(ax, (5.4, 3.6))
    for colour, (strategy, one) in zip(COLOURS, table.groupby("strategy", sort=False), strict=False):
        one = one.sort_values("answers")
        ax.errorbar(one["answers"], one["accuracy"], yerr=one["error"].fillna(0.0), marker="o", markersize=4, capsize=2, color=colour, label=strategy)  # fmt: skip
        if strategy == "random":
            ax.axhline(one["accuracy"].iloc[-1], color=INK, linestyle="--", linewidth=1)
    ax.set_xlabel("answers")
    ax.set_ylabel("accuracy")
    ax.legend(frameon=False)
    titled(ax, data)
    return plain(ax)


# One for each data set of the bank, apart also where colours are seen poorly.
MORE_COLOURS = (*COLOURS, "#222255", "#ee8866")


def plot_differences(cells: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Wins and losses: the paired difference of every cell, sorted, coloured by data set; those below the line are losses.

    ``cells`` has the columns data and difference; rows without a difference are left out.
    """
    from matplotlib.figure import Figure

    axes = ax if ax is not None else Figure(figsize=(8.5, 4.2), layout="constrained").add_subplot()
    table = cells[cells["difference"].notna()].sort_values("difference", kind="stable")
    rank = np.arange(len(table))
    for number, name in enumerate(sorted(set(table["data"]))):
        mine = (table["data"] == name).to_numpy()
        colour = MORE_COLOURS[number % len(MORE_COLOURS)]
        axes.bar(rank[mine], table["difference"][mine], width=1.0, color=colour, label=name)
    axes.axhline(0.0, color="black", lw=0.8)
    gaps = table["difference"]
    ahead, behind = int((gaps > 0).sum()), int((gaps < 0).sum())
    axes.set(
        xlabel="cells, sorted", ylabel="difference in ACC", title=f"ahead in {ahead} cells, behind in {behind}, level in {len(gaps) - ahead - behind}"
    )  # fmt: skip
    if len(table):
        axes.legend(fontsize=8, ncols=2)
    return axes


def plot_bank(rows: Sequence[dict[str, Any]], recovered: float, ax: "Axes | None" = None) -> "Axes":
    """Score against the true error, one point per setting; the line is the error up to which memberships count as recovered."""
    from matplotlib.figure import Figure

    axes = ax if ax is not None else Figure(figsize=(6.5, 4.4), layout="constrained").add_subplot()
    table = pd.DataFrame([r for r in rows if "error" not in r])
    for name, colour, pick in (
        ("no confusion", "#4477aa", table["form"] == "none"),
        ("confusion, true rho >= .95", "#228833", (table["form"] != "none") & (table["true_rho"] >= 0.95)),
        ("confusion, true rho < .95", "#ee6677", (table["form"] != "none") & (table["true_rho"] < 0.95)),
    ):
        axes.semilogx(table["mse"][pick], table["score"][pick], "o", color=colour, alpha=0.7, label=name)
    axes.axvline(recovered, color="#bbbbbb", lw=1)
    axes.set(xlabel="true membership MSE", ylabel="score of the diagnosis", ylim=(-0.03, 1.03))
    axes.legend(fontsize=8)
    return axes


def plot_labels(rows: Sequence[dict[str, Any]], ax: "Axes | None" = None) -> "Axes":
    """Estimated against true accuracy, one point and interval per setting; crosses: no claim, at the agreement with annotators."""
    from matplotlib.figure import Figure

    axes = ax if ax is not None else Figure(figsize=(5.6, 5.4), layout="constrained").add_subplot()
    table = pd.DataFrame([r for r in rows if "error" not in r])
    flagged = table["flagged"].astype(bool)
    told = table[~flagged]
    at = told["estimate"].astype(float)
    reach = [at - told["low"].astype(float), told["high"].astype(float) - at]
    axes.errorbar(told["accuracy"], at, reach, fmt="o", ms=4, lw=0.8, color="#4477aa", label="estimate, 90 %")
    silent = table[flagged]
    axes.plot(silent["accuracy"], silent["agreement"].astype(float), "x", color="#ee6677", label="no claim: agreement")
    axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=1)
    low = max(0.0, float(table["accuracy"].min()) - 0.05)
    axes.set(xlabel="true accuracy", ylabel="estimated without labels", xlim=(low, 1.01), ylim=(low, 1.01))
    axes.legend(fontsize=8, loc="lower right")
    return axes


def plot_study(medians: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """MSE against pairs on log scales, one line per method: solid seen, dashed unseen items.

    ``medians`` has the columns method, pairs, seen and unseen.
    """
    from matplotlib.figure import Figure

    axes = ax if ax is not None else Figure(figsize=(7.5, 4.6), layout="constrained").add_subplot()
    colours = cycle(
        ("#4477aa", "#bbbbbb", "#ccbb44", "#66ccee", "#228833", "#ee6677", "#aa3377", "#000000", "#ee7733", "#332288")
    )
    for method, colour in zip(dict.fromkeys(medians["method"]), colours, strict=False):
        rows = medians[medians["method"] == method].sort_values("pairs")
        axes.loglog(rows["pairs"], rows["seen"], "o-", color=colour, label=method)
        axes.loglog(rows["pairs"], rows["unseen"], "--", color=colour, alpha=0.6)
    ticks = np.unique(medians["pairs"])
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.minorticks_off()
    axes.set(
        xlabel="pairs M", ylabel="membership MSE (median)", title="Synthetic study: solid seen, dashed unseen items"
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return axes
