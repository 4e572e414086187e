"""Pictures of model criticism: predictive checks, calibration, leave-one-out and simulation-based calibration."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom

from pdcc.criticism.calibration import Calibration
from pdcc.criticism.loo import Loo
from pdcc.criticism.predictive import Predictive, deviations
from pdcc.criticism.sbc import SBC, rank_histogram
from pdcc.plots.canvas import COLOURS, INK, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_calibration(result: Calibration, ax: "Axes | None" = None) -> "Axes":
    """Reliability curve with Wilson 95 % intervals over the diagonal, and where the probabilities lie."""
    from matplotlib import pyplot as plt

    ax = plt.subplots(figsize=(4.6, 4.6), layout="constrained")[1] if ax is None else ax
    bars = np.histogram(result.probability, bins=30, range=(0, 1))[0]
    ax.bar(np.linspace(0, 1, 30, endpoint=False), 0.25 * bars / bars.max(), 1 / 30, align="edge", color=PALE)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--", label="calibrated")
    ends = np.abs(np.stack([result.observed - result.lower, result.upper - result.observed]))
    ax.errorbar(
        result.predicted, result.observed, ends, fmt="o-", ms=4, capsize=2, color=COLOURS[0], label="answers, 95 % interval"
    )  # fmt: skip
    ax.set(xlabel="predicted P(similar)", ylabel="share answered similar", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    slope = "" if result.slope is None else f", slope {result.slope:.2f}"
    ax.set_title(f"ECE {result.ece:.3f} ({result.ece_expected:.3f} by chance){slope}", fontsize="medium")
    ax.legend(loc="upper left", frameon=False)
    return ax


def plot_predictive(result: Predictive) -> "Figure":
    """Replicated distributions with the observed value: histograms for single statistics, 90 % bars for families."""
    from matplotlib import pyplot as plt

    shown = [s for s in result.statistics if not s.absent]
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.8 * columns, 2.7 * lines), squeeze=False, layout="constrained"
    )
    for ax, s in zip(axes.flat, shown, strict=False):
        ax.set_title(s.name, fontsize="medium")
        if len(s.labels) == 1:
            ax.hist(s.replicated[:, 0], bins=20, color="0.75", label="replicated")
            ax.axvline(s.observed[0], color="C3", label="observed")
            if s.twin is not None and len(s.twin):
                ax.axvline(s.twin.mean(), color="C0", linestyle=":", label="if errors were transitive")
            ax.set_yticks([])
            continue
        # The members furthest from their replicates, at most 15, so that names stay legible.
        far = np.argsort(-deviations(s, s.observed), kind="stable")[:15][::-1]
        low, high = np.quantile(s.replicated[:, far], [0.05, 0.95], axis=0)
        ax.hlines(np.arange(len(far)), low, high, color="0.75", linewidth=5)
        ax.plot(s.observed[far], np.arange(len(far)), "o", color="C3", markersize=4)
        ax.set_yticks(np.arange(len(far)), [s.labels[c] for c in far], fontsize="x-small")
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    handles: dict[str, Any] = {}
    for ax in axes.flat:
        handles |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def plot_loo(result: Loo, ax: "Axes | None" = None) -> "Axes":
    """Pareto k of every answer against its leave-one-out log density."""
    from matplotlib import pyplot as plt

    ax = plt.subplots(figsize=(5.4, 3.8), layout="constrained")[1] if ax is None else ax
    for kind, colour in ((True, "C0"), (False, "C1")):
        chosen = result.similar == kind
        label = f"{'similar' if kind else 'different'} ({int(chosen.sum())})"
        ax.scatter(
            result.pointwise[chosen], result.pareto_k[chosen], s=8, alpha=0.5, color=colour, label=label, linewidths=0
        )
    ax.axhline(result.good_k, color="0.4", linestyle="--", linewidth=1, label=f"trusted up to {result.good_k:.2f}")
    ax.set(xlabel="leave-one-out log density of the answer", ylabel="Pareto k")
    ax.set_title(f"elpd {result.elpd:.1f} ± {result.se:.1f}", fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_sbc(result: SBC, *, most: int = 6) -> "Figure":
    """Rank histograms with a 99 % binomial band (above) and ECDF minus the diagonal with its 99 % band (below).

    A hump means too wide, a valley too narrow, a slope biased. Shows the first ``most`` quantities.
    """
    from matplotlib import pyplot as plt

    n, names = len(result.ranks), result.names[:most]
    counts, expected = rank_histogram(result.ranks, result.draws)
    low, high = binom.ppf(0.005, n, expected / n), binom.ppf(0.995, n, expected / n)
    edges = np.cumsum(np.append(0.0, expected / n))
    figure, axes = plt.subplots(
        2, len(names), figsize=(2.6 * len(names) + 0.6, 4.6), squeeze=False, layout="constrained", sharey="row"
    )
    grid = np.linspace(0, 1, 201)
    # Kolmogorov's distance is below 1.628 / sqrt(n) with probability 0.99.
    band = np.full_like(grid, 1.628 / math.sqrt(n))
    for q, name in enumerate(names):
        top, bottom = axes[0, q], axes[1, q]
        top.stairs(high, edges, baseline=low, fill=True, color="0.6", alpha=0.5)
        top.stairs(counts[q], edges, fill=True, color="C0", alpha=0.6)
        top.stairs(expected, edges, baseline=None, color="0.3", linewidth=1)
        top.set_title(name, fontsize="medium")
        place = np.sort((result.ranks[:, q] + 0.5) / (result.draws + 1))
        bottom.fill_between(grid, -band, band, color="0.6", alpha=0.4, linewidth=0)
        bottom.step(grid, np.searchsorted(place, grid, side="right") / n - grid, where="post", color="C0")
        bottom.axhline(0, color="0.3", linewidth=1)
        bottom.set_xlabel("rank / draws")
    axes[0, 0].set_ylabel("replicates")
    axes[1, 0].set_ylabel("ECDF - uniform")
    figure.suptitle(f"{n} replicates, {result.draws} draws, 99 % bands", fontsize="medium")
    return figure
