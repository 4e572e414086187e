"""Pictures of what can be trusted: accuracy, purity of clusters, what more answers would do, reliability of annotators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pdcc.accuracy.outlook import FARTHEST
from pdcc.errors import printable
from pdcc.plots.canvas import COLOURS, INK, axes_of, plain, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pdcc.accuracy.estimate import Estimate
    from pdcc.accuracy.outlook import Outlook
    from pdcc.identifiability.diagnose import Diagnosis

# Names longer than this would leave no room for what they name.
LONGEST = 22
CUT = "…"


def plot_accuracy(diagnosis: Diagnosis, *, ax: Axes | None = None) -> Axes:
    """Estimate and 90 % interval of the labels' accuracy and of the pairs in one cluster, and the accuracy that would do.

    Where no claim of accuracy is made, the share labelled as the annotators would; where that is not known either, the words.
    """
    right, name = diagnosis.accuracy, "labels that are right"
    if not right and diagnosis.agreement:
        right, name = diagnosis.agreement, "labels as annotators\nwould give them"
    rows = [
        (name, right),
        ("pairs in one cluster\nthat belong together", diagnosis.precision),
        ("pairs that belong together\nand are in one cluster", diagnosis.recall),
    ]
    ax = axes_of(ax, (5.4, 2.3))
    _intervals(ax, [n for n, _ in rows], [_three(e) for _, e in rows])
    _goal(ax, diagnosis.settings.target)
    ax.set_xlabel("share, with its 90 % interval")
    return ax


def plot_purity(clusters: pd.DataFrame, *, target: float | None = None, ax: Axes | None = None) -> Axes:
    """Purity of every cluster with its 90 % interval (``clusters`` of a Diagnosis), first cluster on top; settled ones are filled."""
    _columns(clusters, "clusters", ("cluster", "items", "purity_low", "purity", "purity_high", "settled"))
    ax = axes_of(ax, (5.4, 1.0 + 0.27 * len(clusters)))
    numbers = clusters[["purity_low", "purity", "purity_high"]].astype(float).to_numpy()
    names = [f"cluster {k} ({n:,})" for k, n in zip(clusters["cluster"], clusters["items"], strict=True)]
    _intervals(ax, names, numbers.tolist(), filled=clusters["settled"].to_numpy(dtype=bool))
    if target is not None:
        _goal(ax, target)
    ax.set_xlabel("purity, with its 90 % interval (items)")
    return ax


def plot_outlook(outlook: Outlook, *, ax: Axes | None = None) -> Axes:
    """Accuracy by number of answers (``outlook`` of a Diagnosis), carried on to the goal where so many answers are in reach."""
    ax = axes_of(ax, (5.4, 3.2))
    answers = np.array(sorted(outlook.accuracy), dtype=np.float64)
    accuracy = np.array([outlook.accuracy[int(m)] for m in answers])
    ax.set_xscale("log")
    ax.plot(answers, accuracy, color=COLOURS[0], marker="o", markersize=5, label="as estimated")
    ax.axhline(outlook.goal, color=INK, linewidth=0.9, linestyle=":", zorder=0, label=f"goal, {_percent(outlook.goal)}")
    end = outlook.n_answers + outlook.more if outlook.more <= FARTHEST * outlook.n_answers else math.inf
    if math.isfinite(end):
        ax.plot([answers[-1], end], [accuracy[-1], outlook.goal], color=COLOURS[0], linestyle="--", label="carried on")
        reach = [outlook.n_answers + min(m, FARTHEST * outlook.n_answers) for m in outlook.interval]
        ax.plot(
            reach, [outlook.goal] * 2, color=COLOURS[1], linewidth=2.5, solid_capstyle="butt", label="90 % interval"
        )
        ax.plot([end], [outlook.goal], marker="*", markersize=11, color=COLOURS[1], linestyle="none")
    ends = [answers[-1], end] if math.isfinite(end) else [answers[-1]]
    ticks = [m for m in answers if m <= 0.6 * answers[-1]] + [m for m in ends if m == ends[-1] or m <= 0.6 * ends[-1]]
    ax.set_xticks(ticks, [f"{float(f'{m:.2g}') if m == end else m:,.0f}" for m in ticks])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(_percent)
    ax.set(xlabel="answers", ylabel="labels that are right")
    ax.legend(frameon=False, fontsize=9)
    return plain(ax)


def plot_reliability(annotators: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Reliability of each annotator with its interval, in the order of the table, first on top; flagged ones are drawn hollow.

    annotators: a table with the columns annotator, reliability, low, high and, optionally, flag (words, or empty).
    """
    _columns(annotators, "annotators", ("annotator", "reliability", "low", "high"))
    ax = axes_of(ax, (5.4, 1.0 + 0.27 * len(annotators)))
    flagged = [bool(f) and f == f for f in annotators["flag"]] if "flag" in annotators else [False] * len(annotators)
    numbers = annotators[["low", "reliability", "high"]].astype(float).to_numpy()
    _intervals(ax, [short(str(name)) for name in annotators["annotator"]], numbers.tolist(), filled=~np.array(flagged))
    ax.set_xlabel("reliability, with its interval" + (" (hollow: flagged)" if any(flagged) else ""))
    return ax


def short(name: str, longest: int = LONGEST) -> str:
    """A name that fits beside an axis, as it may be shown."""
    text = printable(name.replace("\n", " "))
    return text if len(text) <= longest else text[: longest - 1] + CUT


def _intervals(ax: Axes, names: Sequence[str], rows: Sequence[Sequence[float]], filled: Any = None) -> None:
    """One line per name: (low, value, high), the first on top; "no claim" where there is no value."""
    filled = np.ones(len(names), dtype=bool) if filled is None else np.asarray(filled, dtype=bool)
    for at, (low, value, high) in enumerate(rows):
        if not math.isfinite(value):
            ax.text(0.02, at, "no claim", va="center", fontsize=9, color=INK, transform=ax.get_yaxis_transform())
            continue
        ax.plot([low, high], [at, at], color=COLOURS[0], linewidth=2.2, solid_capstyle="round", zorder=3)
        face = COLOURS[0] if filled[at] else "#ffffff"
        ax.plot([value], [at], marker="o", markersize=7, color=COLOURS[0], markerfacecolor=face, zorder=4)
    finite = [v for row in rows for v in row if math.isfinite(v)]
    ax.set_xlim(max(0.0, min([*finite, 0.75]) - 0.04), 1.005)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(_percent)
    plain(ax).grid(visible=False, axis="y")


def _goal(ax: Axes, target: float) -> None:
    ax.axvline(target, color=INK, linewidth=0.9, linestyle=":", zorder=1)
    if ax.get_xlim()[0] > target:
        ax.set_xlim(left=target - 0.04)
    titled(ax, f"dotted: {_percent(target)}, what would do")


def _percent(value: float, _: Any = None) -> str:
    return f"{round(100 * value, 1):g} %"


def _three(found: Estimate) -> tuple[float, float, float]:
    if found.low is None or found.estimate is None or found.high is None:
        return math.nan, math.nan, math.nan
    return found.low, found.estimate, found.high


def _columns(table: pd.DataFrame, name: str, wanted: Sequence[str]) -> None:
    missing = [c for c in wanted if c not in table.columns]
    if missing or not len(table):
        found = f"no {missing[0]!r}" if missing else "no rows"
        raise ValueError(
            f"{name}: expected a table with the columns {', '.join(wanted)} and at least one row, found {found}. Pass the table that pdcc made."
        )
