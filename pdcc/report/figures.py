"""The figures of a report: pictures of ``pdcc.plots`` as inline SVG, each with the words a screen reader says instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from pdcc import plots
from pdcc.report.content import ReportContent
from pdcc.report.sections import believed, unsettled
from pdcc.report.svg import as_svg
from pdcc.report.tables import least_reliable
from pdcc.report.words import estimate, interval, listed, number, share, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows of a figure; the tables have more.
MOST_ROWS = 40
WIDTH = 5.4


@dataclass(frozen=True)
class Drawing:
    """A picture, and what is written under it."""

    svg: Markup
    caption: str


def draw_all(content: ReportContent) -> dict[str, Drawing]:
    """Every figure there is material for, by its name."""
    found = {}
    for name, make in (
        ("accuracy", _accuracy), ("outlook", _outlook), ("purity", _purity), ("map", _map), ("simplex", _simplex),
        ("agreement", _agreement), ("annotators", _annotators), ("calibration", _calibration), ("history", _history),
    ):  # fmt: skip
        drawn = make(content)
        if drawn is not None:
            found[name] = drawn
    return found


def _drawn(
    name: str,
    height: float,
    plot: Callable[["Axes"], object],
    title: str,
    says: str,
    caption: str,
    width: float = WIDTH,
) -> Drawing:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=72)
    plot(figure.add_subplot())
    return Drawing(as_svg(figure, f"figure-{name}", title, says), caption)


def _accuracy(content: ReportContent) -> Drawing | None:
    found = content.diagnosis
    if found is None or not believed(found):
        return None
    right = found.accuracy or found.agreement
    return _drawn(
        "accuracy", 2.2, lambda ax: plots.plot_accuracy(found, ax=ax), "Estimated accuracy",
        f"Labels: {estimate(right)}. Pairs in one cluster that belong together: {estimate(found.precision)}. Pairs that belong together and are in one cluster: {estimate(found.recall)}.",
        "Estimates (dots) and 90 % intervals (lines), from answers that the judged fits had not seen.",
    )  # fmt: skip


def _outlook(content: ReportContent) -> Drawing | None:
    outlook = None if content.diagnosis is None else content.diagnosis.outlook
    if outlook is None:
        return None
    course = listed(f"{share(a)} with {m:,} answers" for m, a in sorted(outlook.accuracy.items()))
    return _drawn(
        "outlook", 3.0, lambda ax: plots.plot_outlook(outlook, ax=ax), "Accuracy by number of answers", f"{course}. {outlook}",
        "Accuracy of fits to a part of the answers and to all of them, and where the curve leads.",
    )  # fmt: skip


def _purity(content: ReportContent) -> Drawing | None:
    found = content.diagnosis
    if found is None or not believed(found):
        return None
    table = found.clusters
    cut = ""
    if len(table) > MOST_ROWS:
        table = table.sort_values("purity", kind="stable", na_position="last").iloc[:MOST_ROWS]
        cut = f" The {MOST_ROWS} least pure of {len(found.clusters)} clusters are drawn."
    says = "; ".join(
        f"cluster {row['cluster']}: {share(row['purity'])} ({interval(row['purity_low'], row['purity_high'])})"
        for row in table.to_dict(orient="records")
    )
    by = "of the right class" if found.accuracy else "of the class that annotators have in mind"
    return _drawn(
        "purity", 1.0 + 0.24 * len(table), lambda ax: plots.plot_purity(table, target=found.settings.target, ax=ax),
        "Purity of the clusters", says,
        f"Share of each cluster's items that are {by}, with 90 % intervals; filled: settled.{cut}",
    )  # fmt: skip


def _map(content: ReportContent) -> Drawing | None:
    rows = content.sample
    if len(rows) < 3:
        return None
    open_ = unsettled(content)
    labels, marked = content.labels[rows], None if open_ is None else open_[rows]
    whole = len(rows) == content.n_items
    of = (
        f"All {content.n_items:,} items"
        if whole
        else f"A random sample of {len(rows):,} of the {content.n_items:,} items"
    )
    ringed = "" if marked is None else f" {int(marked.sum()):,} of them, ringed, are not settled."
    return _drawn(
        "map", 4.6, lambda ax: plots.plot_map(content.sampled, labels, unsettled=marked, ax=ax), "Map of the items",
        f"{of}, coloured by cluster.{ringed} The cluster cards say in words which clusters are confounded.",
        f"{of} in the two directions of their features in which the clusters differ most.{ringed} Clusters may be further apart in other directions.",
        width=6.6,
    )  # fmt: skip


def _simplex(content: ReportContent) -> Drawing | None:
    if content.n_clusters != 3:
        return None
    rows = content.sample
    top = content.memberships.max(axis=1).mean()
    return _drawn(
        "simplex", 4.6, lambda ax: plots.plot_simplex(content.memberships[rows], ax=ax), "Memberships in the simplex",
        f"Memberships of {len(rows):,} items in a triangle whose corners are the pure clusters; the largest membership is {number(top, 2)} on average.",
        f"Memberships of {len(rows):,} of {content.n_items:,} items. Soft memberships can be determined only where the items' hull holds the dashed circle.",
    )  # fmt: skip


def _agreement(content: ReportContent) -> Drawing | None:
    B, K = content.agreement, content.n_clusters
    within, across = B.diagonal().mean(), (B.sum() - B.trace()) / max(K * K - K, 1)
    numbers = "" if K <= 20 else " The numbers are left out for want of room."

    def plot(ax: "Axes") -> None:
        plots.plot_agreement(B, ax=ax)
        ax.set_title("")
        ax.set(xlabel="cluster of item j", ylabel="cluster of item i")

    return _drawn(
        "agreement", WIDTH - 0.4, plot, "Probability that answers say same, by cluster",
        f"{K} by {K} clusters. On average {number(within, 2)} within a cluster and {number(across, 2)} across two.",
        f"B: the probability that an answer about two pure items says “same”.{numbers}",
    )  # fmt: skip


def _annotators(content: ReportContent) -> Drawing | None:
    table = content.annotators
    if table is None or not len(table):
        return None
    shown_ = least_reliable(table, MOST_ROWS)
    cut = "" if len(shown_) == len(table) else f" The {MOST_ROWS} least reliable of {len(table):,} are drawn."
    first = shown_.iloc[0]
    return _drawn(
        "annotators", 1.0 + 0.24 * len(shown_), lambda ax: plots.plot_reliability(shown_, ax=ax), "Reliability of annotators",
        f"The least reliable is {shown(first['annotator'])}: {share(first['reliability'])} ({interval(first['low'], first['high'])}). The table that follows has all numbers.",
        f"Estimated reliability with its interval, the least reliable first.{cut}",
    )  # fmt: skip


def _calibration(content: ReportContent) -> Drawing | None:
    found = content.calibration
    if found is None:
        return None
    bins = "; ".join(f"{number(p, 2)}: {number(o, 2)}" for p, o in zip(found.predicted, found.observed, strict=True))

    def plot(ax: "Axes") -> None:
        plots.plot_calibration(found, ax=ax)
        ax.spines[["top", "right"]].set_visible(False)

    return _drawn(
        "calibration", 4.0, plot, "Calibration of held-out answers",
        f"Predicted probability of “same” and the share of such answers: {bins}.",
        f"{len(found.similar):,} answers that were held out from training: on the diagonal, probabilities mean what they say. Grey: how often each probability was predicted.",
        width=4.6,
    )  # fmt: skip


def _history(content: ReportContent) -> Drawing | None:
    history = [dict(epoch) for epoch in content.history]
    if not history or "epoch" not in history[0]:
        return None

    def plot(ax: "Axes") -> None:
        plots.plot_history(history, ax=ax)
        for other in ax.figure.axes:
            other.yaxis.label.set_color("black")
            other.tick_params(colors="black")

    ends = [f"{k.replace('_', ' ')} {number(v)}" for k, v in history[-1].items() if k != "epoch"]
    return _drawn(
        "history", 3.2, plot, "Training history", f"After {len(history)} epochs: {listed(ends)}.",
        "Loss by epoch, that of held-out answers where some were held out, and the log volume (right axis).",
    )  # fmt: skip
