"""Pictures: that they draw what they say, without pyplot and without warnings."""

import io
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from made_up import made_diagnosis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pdcc import datasets, plots
from pdcc.accuracy.outlook import Outlook
from pdcc.identifiability.learning_curve import learning_curve, pairs_for_score
from pdcc.plots.planar import plane


def render(ax):
    """The figure as PNG bytes: drawing is where matplotlib warns and fails."""
    file = io.BytesIO()
    ax.figure.savefig(file, format="png", dpi=50)
    assert file.getvalue().startswith(b"\x89PNG")
    return ax


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def own_axes():
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def test_simplex_places_points_and_circle():
    F = np.vstack([np.eye(3), [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]]])
    ax = render(plots.plot_simplex(F, labels=[0] * 5))
    drawn = np.asarray(ax.collections[0].get_offsets())
    # Distances in the picture are those in R^3 over sqrt(2).
    for i in range(5):
        for j in range(5):
            expected = np.linalg.norm(F[i] - F[j]) / math.sqrt(2)
            assert np.linalg.norm(drawn[i] - drawn[j]) == pytest.approx(expected, abs=1e-12)
    (circle,) = [line for line in ax.lines if line.get_label().startswith("cone")]
    x, y = circle.get_data()
    np.testing.assert_allclose(np.hypot(x - drawn[4, 0], y - drawn[4, 1]), 1 / math.sqrt(6) / math.sqrt(2))
    # On the circle sqrt(K-1) |m| = 1'm = 1, and it touches the middle of a side: (1/2, 1/2, 0) is on it.
    assert np.linalg.norm(drawn[3] - drawn[4]) == pytest.approx(1 / math.sqrt(12))
    assert math.sqrt(2) * np.linalg.norm(F[3]) == pytest.approx(1.0)


def test_simplex_options():
    F = datasets.synthetic(60).memberships
    assert legend(render(plots.plot_simplex(F)))[:4] == ["cluster 0", "cluster 1", "cluster 2", "hull"]
    bare = legend(render(plots.plot_simplex(F, hull=False, cone=False, labels=["a", "b"] * 30)))
    assert bare == ["a", "b"]
    # A line spans no hull: the rest is drawn.
    line = np.column_stack([np.linspace(0, 1, 5), 1 - np.linspace(0, 1, 5), np.zeros(5)])
    assert "hull" not in legend(render(plots.plot_simplex(line)))
    given = own_axes()
    assert plots.plot_simplex(F, ax=given) is given


@pytest.mark.parametrize(
    ("memberships", "options", "match"),
    [
        (np.full((4, 4), 0.25), {}, "^memberships: expected 3 .*found 4"),
        (np.ones((4, 3)), {}, "^memberships: .*row 0"),
        (np.ones(3) / 3, {}, "^memberships: expected"),
        (np.full((4, 3), 1 / 3), {"labels": [0, 1]}, "^labels: expected"),
    ],
)
def test_bad_simplex(memberships, options, match):
    with pytest.raises(ValueError, match=match):
        plots.plot_simplex(memberships, **options)


def test_heat_maps_print_cells_in_the_stated_orientation():
    A = datasets.PAPER_CONFUSION
    ax = render(plots.plot_confusion(A))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("true cluster", "observed cluster")
    assert "A[observed, true]" in ax.get_title()
    assert "only through A'A" in ax.get_title()
    cells = {text.get_position(): text.get_text() for text in ax.texts}
    assert cells[(1, 0)] == "0.20"  # observed 0, true 1: column 1, row 0
    assert cells[(0, 1)] == "0.00"
    ax = render(plots.plot_agreement(A.T @ A))
    cells = {text.get_position(): text.get_text() for text in ax.texts}
    assert cells[(1, 1)] == "0.68"  # .2^2 + .8^2
    assert "true" in ax.get_xlabel()
    assert plots.plot_agreement(A.T @ A, ax=(given := own_axes())) is given


def test_bad_heat_maps():
    with pytest.raises(ValueError, match=r"^A: expected"):
        plots.plot_confusion(datasets.PAPER_CONFUSION.T)
    for bad in (np.ones((2, 3)), np.ones(3), [[np.nan, 0], [0, 1]]):
        with pytest.raises(ValueError, match=r"^B: expected a finite K x K matrix"):
            plots.plot_agreement(bad)


@pytest.mark.parametrize("K", [2, 16])
def test_purest_sorts_each_cluster(K):
    F = np.random.default_rng(0).dirichlet(np.full(K, 0.3), 50)
    ax = render(plots.plot_purest(F, n=12))
    assert len(legend(ax)) == K
    for k in range(K):
        np.testing.assert_allclose(ax.lines[k].get_ydata(), np.sort(F[:, k])[::-1][:12], rtol=1e-12)
    styles = {(line.get_color(), line.get_linestyle()) for line in ax.lines[:K]}
    render(plots.plot_purest(F[:1]))
    assert len(styles) == K  # told apart although there are seven colours
    assert len(plots.plot_purest(F, n=500).lines[0].get_ydata()) == 50
    with pytest.raises(ValueError, match="n: expected"):
        plots.plot_purest(F, n=0)


def test_learning_curve_shows_means_and_fit():
    frame = learning_curve(
        lambda m, s: {"acc": 0.95 - 4 * m**-0.5 + 0.001 * s, "nmi": 0.9 - 5 * m**-0.5}, [100, 400, 1600], range(3)
    )
    ax = render(plots.plot_learning_curve(frame))
    assert legend(ax) == ["acc", "nmi"]
    assert ax.get_xscale() == "log"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), frame.groupby("n_pairs")["acc"].mean())
    fit = pairs_for_score(frame, "acc", 0.9, n_bootstrap=5)
    ax = render(plots.plot_learning_curve(frame, scores=["acc"], fit=fit))
    assert legend(ax)[:2] == ["acc", "power law, acc"]
    assert "acc 0.9 at" in legend(ax)[2]
    assert ax.get_ylabel() == "acc"
    never = pairs_for_score(frame, "acc", 0.999, n_bootstrap=5)
    assert math.isinf(never.n_pairs)
    assert len(legend(render(plots.plot_learning_curve(frame, scores=["acc"], fit=never)))) == 2
    with pytest.raises(ValueError, match="scores: expected"):
        plots.plot_learning_curve(frame, scores=["ari"])
    with pytest.raises(ValueError, match="frame: expected"):
        plots.plot_learning_curve(pd.DataFrame({"acc": [1.0]}))


@pytest.mark.parametrize("name", ["held_out", "nll"])
def test_history_has_two_scales(name):
    history = [{"epoch": e, "loss": 1 / e, name: 1.1 / e, "log_volume": -9.0 + e} for e in range(1, 8)]
    history[2]["log_volume"] = -math.inf  # a collapse leaves a gap
    ax = render(plots.plot_history(history))
    assert legend(ax) == ["loss", name.replace("_", " "), "log volume (right)"]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [1.1 / e for e in range(1, 8)])
    (right,) = [other for other in ax.figure.axes if other is not ax]
    volume = right.lines[0].get_ydata()
    assert math.isnan(volume[2])
    assert volume[6] == -2.0
    render(plots.plot_history(history[:1]))
    render(plots.plot_history([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.4}]))
    with pytest.raises(ValueError, match="history: expected"):
        plots.plot_history([])


def test_bench_draws_means_and_errors_of_every_method():
    rows = [(t, m, "acc_seen", 0.5 + 0.1 * k, 0.01 * k) for t in ("one", "two") for k, m in enumerate(("a", "b", "c"))]
    rows.append(("one", "a", "nmi_seen", 0.1, 0.0))
    summary = pd.DataFrame(rows, columns=["task", "method", "measure", "mean", "se"])
    figure = plots.plot_bench(summary, "acc_seen", {"a": "First"})
    render(figure.axes[0])
    assert [axis.get_title() for axis in figure.axes] == ["one", "two"]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["First", "b", "c"]
    for axis in figure.axes:
        np.testing.assert_allclose(np.asarray(axis.lines[0].get_xdata(), float), [0.5, 0.6, 0.7])


def test_bank_and_study_draw_every_row():
    kinds = [("none", 1.0), ("sigmoid", 0.99), ("sigmoid", 0.7), ("sigmoid", 0.99)]
    rows = [{"form": f, "true_rho": r, "mse": 0.01 * (k + 1), "score": 0.1 * k} for k, (f, r) in enumerate(kinds)]
    ax = render(plots.plot_bank([*rows, {"error": "broken"}], 0.03))
    assert [len(line.get_xdata()) for line in ax.lines[:3]] == [1, 2, 1]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [0.1, 0.3])
    assert ax.lines[3].get_xdata()[0] == 0.03
    medians = pd.DataFrame(
        {"method": ["a", "a", "b"], "pairs": [400, 100, 100], "seen": [0.1, 0.2, 0.3], "unseen": [0.4, 0.5, 0.6]}
    )
    ax = render(plots.plot_study(medians))
    assert legend(ax) == ["a", "b"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["100", "400"]
    drawn = [line.get_ydata().tolist() for line in ax.lines]
    assert drawn == [[0.2, 0.1], [0.5, 0.4], [0.3], [0.6]]  # by the number of pairs; seen, then unseen
    assert plots.plot_study(medians, ax=(given := own_axes())) is given


def test_numbers_in_a_heat_map_stand_out_and_are_left_out_where_cells_are_small():
    B = np.linspace(0, 1, 25).reshape(5, 5)
    ax = render(plots.plot_agreement(B))
    colours = [text.get_color() for text in ax.texts]
    assert (colours[0], colours[-1]) == ("#010101", "#ffffff")
    assert colours == sorted(colours)  # from black on pale cells to white on dark ones
    large = render(plots.plot_agreement(np.eye(45)))
    assert not large.texts
    assert len(large.get_xticks()) == 15


def test_accuracy_and_purity_draw_estimates_and_intervals():
    labels = np.arange(40) % 4
    found = made_diagnosis(labels, 4, tuple(range(40)))
    ax = render(plots.plot_accuracy(found))
    assert list(ax.lines[0].get_xdata()) == [0.85, 0.99]
    assert list(ax.lines[1].get_xdata()) == [0.94]
    assert "labels that are right" in [t.get_text() for t in ax.get_yticklabels()]
    (goal,) = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert goal.get_xdata()[0] == 0.8
    agreed = render(plots.plot_accuracy(made_diagnosis(labels, 4, tuple(range(40)), claim="agreement")))
    assert "annotators" in agreed.get_yticklabels()[0].get_text()
    silent = render(plots.plot_accuracy(made_diagnosis(labels, 4, tuple(range(40)), claim="none")))
    assert [t.get_text() for t in silent.texts] == ["no claim"] * 3
    table = found.clusters
    ax = render(plots.plot_purity(table, target=0.8))
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([line.get_xdata()[0] for line in dots], table["purity"].astype(float))
    assert [line.get_markerfacecolor() == "#ffffff" for line in dots] == [not s for s in table["settled"]]
    assert plots.plot_purity(table, ax=(given := own_axes())) is given
    with pytest.raises(ValueError, match=r"clusters: expected .*found no 'purity'"):
        plots.plot_purity(table.drop(columns="purity"))


def test_an_outlook_leads_to_its_goal():
    outlook = Outlook({100: 0.7, 200: 0.8, 400: 0.85}, 0.9, 600.0, (200.0, math.inf), 400)
    ax = render(plots.plot_outlook(outlook))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.7, 0.8, 0.85])
    assert "carried on" in legend(ax)
    (star,) = [line for line in ax.lines if line.get_marker() == "*"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (1000, 0.9)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["100", "200", "400", "1,000"]
    never = render(plots.plot_outlook(Outlook({100: 0.7, 400: 0.7}, 0.9, math.inf, (math.inf, math.inf), 400)))
    assert "carried on" not in legend(never)
    assert plots.plot_outlook(outlook, ax=(given := own_axes())) is given


def test_reliability_shows_names_as_they_are():
    names = ["$x_", "B" * 60, "line\nbreak"]
    numbers = {"reliability": [0.9, 0.6, 0.8], "low": [0.8, 0.4, 0.7], "high": [0.95, 0.7, 0.88]}
    table = pd.DataFrame({"annotator": names, **numbers, "flag": ["", "odd", None]})
    ax = render(plots.plot_reliability(table))
    shown = [t.get_text() for t in ax.get_yticklabels()]
    assert shown == ["$x_", "B" * 21 + "…", "line break"]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in dots] == [0.9, 0.6, 0.8]
    assert [line.get_markerfacecolor() for line in dots][1] == "#ffffff"
    assert "flagged" in ax.get_xlabel()
    assert plots.plot_reliability(table.drop(columns="flag"), ax=(given := own_axes())) is given
    with pytest.raises(ValueError, match=r"annotators: expected .*found no rows"):
        plots.plot_reliability(table.iloc[:0])


@pytest.mark.parametrize("d", [6, 300], ids=["few columns", "more columns than items"])
def test_a_map_tells_clusters_apart_and_is_the_same_again(d):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, d))
    X[:, :2] += 6 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    X[:, 2:] *= 1.5  # directions that vary more, and tell nothing
    at = plane(X, y)
    np.testing.assert_array_equal(at, plane(X.copy(), y))
    np.testing.assert_allclose(plane(1000 * X + 5, y), at, atol=1e-6)  # units and origin do not matter
    centres = np.stack([at[y == k].mean(axis=0) for k in range(3)])
    nearest = np.linalg.norm(at[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == y).mean() > 0.95
    ax = render(plots.plot_map(X, y, unsettled=y == 1))
    assert legend(ax) == ["cluster 0", "cluster 1", "cluster 2", "not settled"]
    np.testing.assert_allclose(ax.collections[3].get_offsets(), at[y == 1])
    assert plots.plot_map(X, y, ax=(given := own_axes())) is given


def test_a_map_of_odd_data():
    y = np.array([0, 1] * 5)
    for X in (np.ones((10, 3)), np.arange(10.0)[:, None], np.eye(10)[:, :2], np.full((10, 2), 1e-200)):
        assert np.isfinite(plane(X, y)).all()
        render(plots.plot_map(X, y))
    render(plots.plot_map(np.random.default_rng(0).normal(size=(10, 4)), np.zeros(10, dtype=int)))
    for X, labels, options, match in (
        (np.ones(3), y, {}, "features: expected"),
        (np.full((10, 2), np.nan), y, {}, "features: expected"),
        (np.ones((10, 2)), y[:3], {}, "labels: expected"),
        (np.ones((10, 2)), y, {"unsettled": [True]}, "unsettled: expected"),
    ):
        with pytest.raises(ValueError, match=match):
            plots.plot_map(X, labels, **options)


def test_bars_start_at_zero_and_show_their_numbers():
    rows = [(t, m, "acc_seen", 0.5 + 0.1 * k, 0.01) for t in ("one", "two") for k, m in enumerate("abc")]
    summary = pd.DataFrame(rows, columns=["task", "method", "measure", "mean", "se"])
    ax = render(plots.plot_bars(summary, "two", titles={"b": "$B_"}))
    assert [(bar.get_x(), round(bar.get_width(), 9)) for bar in ax.patches] == [(0, 0.5), (0, 0.6), (0, 0.7)]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "$B_", "c"]
    assert [t.get_text() for t in ax.texts] == ["0.500", "0.600", "0.700"]
    assert ax.get_title() == "two"
    assert plots.plot_bars(summary, ax=(given := own_axes())) is given
    assert given.get_title() == "one"
    with pytest.raises(ValueError, match=r"task: expected one of .*found 'three'"):
        plots.plot_bars(summary, "three")


@pytest.mark.slow
def test_matplotlib_comes_late_and_pyplot_never():
    code = (
        "import sys\n"
        "from pdcc.plots import plot_agreement\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plot_agreement([[1, 0], [0, 1]]).figure.canvas.draw()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)
