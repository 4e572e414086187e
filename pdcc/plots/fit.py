"""Pictures of a fit. Every function draws on ``ax`` or on a figure of its own, and returns the Axes it drew on.

Figures are made without pyplot, so nothing global is opened or has to be closed; save with
``ax.figure.savefig("fit.png")``. In a notebook pass an ``ax`` made by ``plt.subplots``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pdcc.arrays import Float64
from pdcc.plots.canvas import COLOURS, INK, PALE, axes_of, colour, marker, on_colour, plain
from pdcc.validation import check_matrix, check_memberships

if TYPE_CHECKING:  # matplotlib takes half a second to import: only when something is drawn
    from matplotlib.axes import Axes

    from pdcc.identifiability.learning_curve import PairsForScore
    from pdcc.select.count import Selection

# Cells of more clusters than this are too small for numbers.
_MOST_NUMBERED = 20
# Corners of the drawn triangle: a simplex scaled so that its sides, sqrt(2) in R^3, have length 1.
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def plot_simplex(
    memberships: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    hull: bool = True,
    cone: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Memberships (N, 3) in the triangle whose corners are the pure clusters.

    The hull is what the points span; the circle is where the cone C = {x : sqrt(K-1) |x| <= 1'x} cuts the simplex (for
    K = 3 the inscribed circle). The sufficiently scattered condition (Assumption 3.6) asks that the hull contain the
    circle. ``labels`` (N,) colour the points; by default the cluster of the largest membership does.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Polygon
    from scipy.spatial import ConvexHull, QhullError

    F = check_memberships(memberships)
    if F.shape[1] != 3:
        raise ValueError(
            f"memberships: expected 3 clusters to draw a triangle, found {F.shape[1]}. "
            "Use plot_purest, which draws any number."
        )
    names = [f"cluster {k}" for k in range(3)]
    if labels is None:
        group = F.argmax(axis=1)
    else:
        given = np.asarray(labels)
        if given.shape != (len(F),):
            raise ValueError(
                f"labels: expected one label per item, shape ({len(F)},), found {given.shape}. Give one per row of memberships."
            )
        found, group = np.unique(given, return_inverse=True)
        names = [str(name) for name in found]

    ax = axes_of(ax, (5.2, 4.9))
    points = F @ _CORNERS
    ax.add_patch(Polygon(_CORNERS, closed=True, fill=False, edgecolor=INK, linewidth=1.2, zorder=1))
    for k, name in enumerate(names):
        x, y = points[group == k].T
        ax.scatter(x, y, s=14, color=colour(k), marker=marker(k), alpha=0.75, linewidth=0, label=name, zorder=3)
    if hull and len(F) >= 3:
        try:
            rim = points[ConvexHull(points).vertices]
        except QhullError:
            rim = None  # points on one line span no area
        if rim is not None:
            face, edge = to_rgba(COLOURS[4], 0.15), COLOURS[4]
            ax.add_patch(Polygon(rim, closed=True, facecolor=face, edgecolor=edge, linewidth=1.4, label="hull"))
    if cone:
        # Radius 1/sqrt(6) in R^3, where the sides are sqrt(2) long.
        angle = np.linspace(0, 2 * np.pi, 200)
        circle = _CORNERS.mean(axis=0)[:, None] + np.array([np.cos(angle), np.sin(angle)]) / np.sqrt(12)
        label = "cone C: SSC asks\nthat the hull hold it"
        ax.plot(*circle, color=INK, linestyle="--", linewidth=1.2, label=label, zorder=4)
    for k, (x, y) in enumerate(_CORNERS):
        above = y > 0
        ax.text(x, y + (0.02 if above else -0.03), f"pure {k}", ha="center", va="bottom" if above else "top")
    ax.set(xlim=(-0.1, 1.1), ylim=(-0.1, 0.96), aspect="equal")
    ax.set_axis_off()
    ax.legend(loc="upper left", bbox_to_anchor=(-0.04, 1.04), frameon=False, fontsize=9)
    return ax


def plot_agreement(B: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """B = A'A (K, K): the probability that answers call a pure item of one cluster and one of another similar."""
    return _heat_map(
        B,
        "B",
        "agreement B = A'A\nP(answered similar)",
        "true cluster of item j",
        "true cluster of item i",
        ax,
    )


def plot_confusion(A: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """A[observed, true] (K, K), columns summing to 1. Pairs identify it only through B = A'A, and the title says so."""
    array = check_matrix("A", A, square=True)
    sums = array.sum(axis=0)
    if not np.allclose(sums, 1.0, atol=1e-3):
        worst = int(np.abs(sums - 1).argmax())
        raise ValueError(
            f"A: expected columns that sum to 1, A[observed, true], found {sums[worst]:.3g} in column {worst}. "
            "Transpose A if its rows do."
        )
    return _heat_map(
        array,
        "A",
        "confusion A[observed, true], columns sum to 1\n(identified only through A'A)",
        "true cluster",
        "observed cluster",
        ax,
    )


def plot_purest(memberships: ArrayLike, n: int = 100, *, ax: Axes | None = None) -> Axes:
    """The ``n`` largest memberships of every cluster, sorted: do anchors exist (Assumption 3.1)?

    memberships (N, K), any K. A curve that starts at 1 has an anchor; one that starts low has none, and where it drops
    shows how many items stand behind the purest.
    """
    F = check_memberships(memberships)
    if n < 1:
        raise ValueError(f"n: expected at least 1 item per cluster, found {n}. Ask for more.")
    n = min(n, len(F))
    ax = axes_of(ax, (6.0, 3.8))
    purest = -np.sort(-F, axis=0)[:n]
    rank = np.arange(1, n + 1)
    for k in range(F.shape[1]):
        ax.plot(
            rank,
            purest[:, k],
            color=colour(k),
            linestyle=("-", "--", ":")[k // len(COLOURS) % 3],
            marker="o" if n <= 20 else None,
            markersize=3.5,
            label=f"cluster {k}: {purest[0, k]:.2f}",
        )
    ax.axhline(1.0, color=INK, linewidth=0.8, linestyle=":", zorder=0)
    ax.set(xlabel="items, purest first", ylabel="membership", ylim=(0, 1.04), xlim=(1 if n > 1 else 0, max(n, 2)))
    ax.set_title("Purity of each cluster's purest items", fontsize=11)
    _legend_outside(ax, "purest item")
    return plain(ax)


def plot_learning_curve(
    frame: pd.DataFrame,
    *,
    scores: Sequence[str] | None = None,
    fit: PairsForScore | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Scores by number of pairs: runs as dots, their mean as a line (a frame of ``learning_curve``).

    ``scores`` are columns of the frame, by default all but n_pairs and seed. ``fit`` adds the power law of
    ``pairs_for_score``, its target and the number of pairs at which it gets there.
    """
    if "n_pairs" not in frame.columns or not len(frame):
        raise ValueError(
            f"frame: expected rows with a column 'n_pairs', found columns {list(frame.columns)}. Use learning_curve."
        )
    columns = [str(c) for c in frame.columns if c not in ("n_pairs", "seed")] if scores is None else list(scores)
    missing = [c for c in columns if c not in frame.columns]
    if missing or not columns:
        raise ValueError(
            f"scores: expected columns of the frame, found {missing or 'none'}. Choose from {list(frame.columns)}."
        )
    ax = axes_of(ax, (6.0, 3.8))
    ax.set_xscale("log")
    for c, column in enumerate(columns):
        means = frame.groupby("n_pairs")[column].mean()
        ax.scatter(frame["n_pairs"], frame[column], s=12, color=colour(c), alpha=0.35, linewidth=0)
        ax.plot(means.index, means, color=colour(c), marker="o", markersize=5, label=column)
    if fit is not None:
        end = fit.n_pairs if fit.n_pairs <= 1000 * fit.measured_to else 10 * fit.measured_to
        grid = np.geomspace(float(frame["n_pairs"].min()), max(1.5 * end, fit.measured_to), 200)
        ax.plot(grid, fit.predict(grid), color=INK, linewidth=1, linestyle="--", label=f"power law, {fit.score}")
        ax.axhline(fit.target, color=INK, linewidth=0.8, linestyle=":", zorder=0)
        if end == fit.n_pairs:
            ax.plot([end], [fit.target], marker="*", markersize=11, color=INK, linestyle="none", label=_reached(fit))
    ax.set(xlabel="pairs", ylabel=columns[0] if len(columns) == 1 else "score")
    ax.legend(frameon=False, fontsize=9)
    return plain(ax)


def plot_history(history: Sequence[dict[str, float]], *, ax: Axes | None = None) -> Axes:
    """Loss and held-out NLL by epoch, the log volume on an axis of its own at the right (``history_`` of a fit).

    A quantity that is missing or not finite in an epoch leaves a gap there.
    """
    from matplotlib.ticker import MaxNLocator

    if not history or "epoch" not in history[0]:
        raise ValueError(
            "history: expected a list of dicts with an 'epoch', found none. Pass history_ of a model that was trained: where "
            "report_.epochs is 0, a partition was kept, and there is no history."
        )
    table = pd.DataFrame(list(history))
    epoch = table["epoch"].to_numpy(dtype=np.float64)
    ax = axes_of(ax, (6.0, 3.8))
    left = [str(c) for c in table.columns if c not in ("epoch", "log_volume")]
    mark = "o" if len(table) == 1 else None  # a line of one point is invisible
    lines = []
    for c, column in enumerate(left):
        lines += ax.plot(epoch, _gaps(table[column]), color=colour(c), marker=mark, label=column.replace("_", " "))
    ax.set(xlabel="epoch", ylabel=" and ".join(c.replace("_", " ") for c in left))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain(ax)
    if "log_volume" in table.columns:
        right = ax.twinx()
        volume = _gaps(table["log_volume"])
        lines += right.plot(epoch, volume, color=COLOURS[2], linestyle="--", marker=mark, label="log volume (right)")
        right.set_ylabel("log volume", color=COLOURS[2])
        right.tick_params(axis="y", colors=COLOURS[2])
        right.spines[["top", "left"]].set_visible(False)
    ax.legend(handles=lines, frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(lines))
    return ax


def plot_selection(selection: Selection, *, ax: Axes | None = None) -> Axes:
    """Held-out nats per answer of every value compared, with standard errors against the best; the chosen one is filled."""
    ax = axes_of(ax, (5.0, 3.4))
    table = selection.table
    names = [f"{v:g}" for v in table[selection.parameter]]
    at = np.arange(len(names))
    ax.errorbar(
        at, table["held_out_nll"], yerr=table["standard_error"], fmt="o", color=COLOURS[0], mfc="white", capsize=3
    )
    chosen = table["chosen"].to_numpy(dtype=bool)
    ax.plot(at[chosen], table["held_out_nll"][chosen], "o", color=COLOURS[0], label="chosen")
    for x, nll, stability in zip(at, table["held_out_nll"], table["stability"], strict=True):
        if np.isfinite(stability):
            ax.annotate(f"{stability:.2f}", (x, nll), xytext=(6, 6), textcoords="offset points", fontsize=8, color=INK)
    ax.set_xticks(at, names)
    ax.set_xlabel(f"{selection.parameter} (numbers: agreement of restarts)")
    ax.set_ylabel(f"nats per answer, held-out {selection.held_out}")
    ax.legend(frameon=False)
    return plain(ax)


def _reached(fit: PairsForScore) -> str:
    from pdcc.identifiability.complexity import in_words

    return f"{fit.score} {fit.target:g} at {in_words(fit.n_pairs)} pairs"


def _heat_map(value: ArrayLike, name: str, title: str, x: str, y: str, ax: Axes | None) -> Axes:
    from matplotlib.colors import LinearSegmentedColormap

    array = check_matrix(name, value, square=True)
    K = len(array)
    side = 2.6 + 0.42 * min(K, 20)
    ax = axes_of(ax, (side + 0.4, side))
    blues = LinearSegmentedColormap.from_list("pdcc", ["#ffffff", COLOURS[0], "#1b2f47"])
    top = max(1.0, float(array.max()))
    ax.imshow(array, cmap=blues, vmin=0.0, vmax=top)
    size = 10 if K <= 6 else 8 if K <= 12 else 6
    for row, column in np.ndindex(array.shape) if K <= _MOST_NUMBERED else ():
        value_here = array[row, column]
        shade = on_colour(np.asarray(blues(value_here / top)).tolist())
        words = ax.text(column, row, f"{value_here:.2f}", ha="center", va="center", color=shade, fontsize=size)
        words.set_in_layout(False)  # they lie inside, and measuring a few hundred takes time
    step = -(-K // _MOST_NUMBERED)
    ax.set_xticks(range(0, K, step))
    ax.set_yticks(range(0, K, step))
    ax.set(xlabel=x, ylabel=y)
    ax.set_title(title, fontsize=11)
    ax.tick_params(length=0)
    ax.spines[:].set_color(PALE)
    return ax


def _legend_outside(ax: Axes, title: str) -> None:
    ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, title_fontsize=9)


def _gaps(column: pd.Series[Any]) -> Float64:
    values = column.to_numpy(dtype=np.float64, copy=True)
    values[~np.isfinite(values)] = np.nan
    return values
