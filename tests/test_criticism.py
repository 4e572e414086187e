"""Predictive checks, calibration and leave-one-out: each sees the fault it is for, and stays quiet without it."""

import itertools
from typing import Any

import arviz
import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from pdcc.annotators import answer_by_labels, answer_through, draw_pairs
from pdcc.criticism import check_calibration, check_loo, check_predictive, run_calibration, run_loo, run_predictive
from pdcc.criticism.calibration import wilson
from pdcc.plots import plot_calibration, plot_loo, plot_predictive
from pdcc.select.score import holm

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def confusion(K: int, error: float) -> np.ndarray:
    return (1 - error) * np.eye(K) + error / (K - 1) * (1 - np.eye(K))


def posterior_of(
    F: np.ndarray,
    A: np.ndarray,
    pairs: np.ndarray,
    similar: np.ndarray,
    *,
    draws: int = 200,
    annotator: np.ndarray | None = None,
    seed: int = 0,
) -> Any:
    """A posterior that knows F and A exactly: the model's own answers are then exchangeable with its replicates."""
    rng = np.random.default_rng([seed, 1])  # another stream than the answers'
    i, j = pairs.T
    p = np.clip(((F @ A.T)[i] * (F @ A.T)[j]).sum(axis=1), 1e-6, 1 - 1e-6)
    constant = {"i": i, "j": j} | ({} if annotator is None else {"annotator": annotator})
    shape = (2, draws // 2)
    return arviz.from_dict(
        posterior={
            "memberships": np.broadcast_to(F.astype(np.float32), (*shape, *F.shape)),
            "agreement": np.broadcast_to(A.T @ A, (*shape, *A.shape)),
        },
        posterior_predictive={"similar": (rng.random((*shape, len(p))) < p).astype(np.int8)},
        observed_data={"similar": similar.astype(np.int8)},
        log_likelihood={
            "similar": np.broadcast_to(np.log(np.where(similar, p, 1 - p)), (*shape, len(p))).astype(np.float32)
        },
        constant_data=constant,
    )


def answers(kind: str, seed: int, *, n: int = 400, m: int = 400, K: int = 4, error: float = 0.1) -> tuple[Any, ...]:
    """Answers with the same rates, drawn one by one ("independent") or read off one label per item ("transitive")."""
    rng = np.random.default_rng(seed)
    F, A, pairs = rng.dirichlet(np.full(K, 0.15), size=n), confusion(K, error), draw_pairs(n, m, rng)
    if kind == "independent":
        return F, A, pairs, answer_through(F, pairs, A, rng).similar
    labels = (rng.random((n, 1)) > np.cumsum(F @ A.T, axis=1)[:, :-1]).sum(axis=1)
    return F, A, pairs, answer_by_labels(F.argmax(axis=1), labels, pairs).similar


def of(frame: pd.DataFrame, statistic: str) -> Any:
    return frame.set_index("statistic").loc[statistic]


def no_nan(frame: pd.DataFrame) -> bool:
    return not any(isinstance(v, float) and not np.isfinite(v) for v in frame.to_numpy().ravel())


def test_wedges_see_transitive_errors_in_sparse_random_pairs_and_rates_do_not():
    frames = {
        kind: [check_predictive(run_predictive(posterior_of(*answers(kind, s), seed=s))) for s in range(25)]
        for kind in ("independent", "transitive")
    }
    seen = {
        kind: {name: sum(of(f, name)["verdict"] == "misfit" for f in found) for name in found[0]["statistic"]}
        for kind, found in frames.items()
    }
    # Measured on 200 other data sets of two answers per item: wedges .985, cluster pairs .05. At those rates fewer
    # than 21, or more than 7, of 25 have probability below 1e-4.
    assert seen["transitive"]["wedge excess"] >= 21
    assert seen["transitive"]["positive rate by cluster pair"] <= 7
    # Level .01 each: 4 or more of 25 by chance has probability 1e-4.
    assert max(seen["independent"].values()) <= 3
    claimed = [of(f, "wedge excess")["power"] for f in frames["independent"]]
    # The power it claims is the power it has: standard error of the mean of 25 x 50 twins is .004, and of 200 data sets .009.
    assert abs(np.mean(claimed) - 0.985) < 4 * 0.01
    for frame in frames["independent"] + frames["transitive"]:
        assert no_nan(frame)
        assert of(frame, "broken triangles")["verdict"] == "no power"  # a handful of triangles, and it says so


def test_triangles_see_transitive_errors_where_there_are_triangles():
    for seed in range(3):
        frame = check_predictive(run_predictive(posterior_of(*answers("transitive", seed, n=100, m=1500), seed=seed)))
        broken, closure = of(frame, "broken triangles"), of(frame, "triangle closure")
        assert broken["observed"] == 0
        assert closure["observed"] == 1
        assert {broken["verdict"], closure["verdict"]} == {"misfit"}
        frame = check_predictive(run_predictive(posterior_of(*answers("independent", seed, n=100, m=1500), seed=seed)))
        assert of(frame, "broken triangles")["verdict"] == "fits"
        assert of(frame, "broken triangles")["power"] > 0.9


def test_triangles_are_counted_as_by_hand():
    rng = np.random.default_rng(0)
    pairs = draw_pairs(15, 70, rng)
    first: dict[frozenset[int], int] = {}
    for row, ends in enumerate(pairs.tolist()):
        first.setdefault(frozenset(ends), row)
    by_hand = [
        sorted(rows)
        for corners in itertools.combinations(range(15), 3)
        if None not in (rows := [first.get(frozenset(e)) for e in itertools.combinations(corners, 2)])
    ]
    assert len(first) < 70  # some pair is repeated, so the rule of the first answer is at work
    F = np.eye(3)[np.arange(15) % 3]
    for _ in range(5):  # no other set of triangles has these shares for all of them
        similar = rng.random(70) < 0.5
        n_similar = similar[np.array(by_hand)].sum(axis=1)
        two, three = (n_similar == 2).sum(), (n_similar == 3).sum()
        result = run_predictive(posterior_of(F, confusion(3, 0.3), pairs, similar))
        assert result["broken triangles"].observed[0] == pytest.approx(two / len(by_hand))
        assert result["triangle closure"].observed[0] == pytest.approx(3 * three / (3 * three + two))


def test_no_triangles_and_no_wedges_are_said_not_passed():
    pairs = np.arange(40).reshape(20, 2)
    F = np.eye(2)[np.arange(40) % 2]
    frame = check_predictive(run_predictive(posterior_of(F, confusion(2, 0.2), pairs, np.arange(20) % 2 == 0)))
    for name in ("triangle closure", "broken triangles", "wedge excess"):
        row = of(frame, name)
        assert row["p"] is None
        assert row["verdict"] == "no power"
    assert no_nan(frame)


def test_one_annotators_consistency_shows_within_annotators():
    rng = np.random.default_rng(3)
    F, A, pairs = np.eye(3)[np.arange(60) % 3], confusion(3, 0.25), draw_pairs(60, 3000, rng)
    who = rng.integers(4, size=3000)
    labels = (rng.random((4, 60, 1)) > np.cumsum(F @ A.T, axis=1)[:, :-1]).sum(axis=2)
    similar = labels[who, pairs[:, 0]] == labels[who, pairs[:, 1]]
    result = run_predictive(posterior_of(F, A, pairs, similar, annotator=who))
    assert result["broken triangles within annotator"].observed[0] == 0
    assert result["broken triangles"].observed[0] > 0.02  # heads disagree with each other
    frame = check_predictive(result)
    for name in ("broken triangles", "triangle closure", "wedge excess"):
        assert of(frame, f"{name} within annotator")["verdict"] == "misfit"


def test_a_cluster_pair_an_annotator_and_odd_items_are_named():
    rng = np.random.default_rng(4)
    F, A, pairs = np.eye(4)[np.arange(200) % 4], confusion(4, 0.1), draw_pairs(200, 3000, rng)
    who = rng.integers(5, size=3000)
    base = answer_through(F, pairs, A, rng).similar
    cluster = F.argmax(axis=1)[pairs]
    between = (np.sort(cluster, axis=1) == [1, 2]).all(axis=1)
    merged = np.where(between, rng.random(3000) < 0.4, base)
    guessing = np.where(who == 3, rng.random(3000) < 0.5, base)
    shunned = np.where((pairs < 15).any(axis=1), False, base)
    frames = [
        check_predictive(run_predictive(posterior_of(F, A, pairs, y, annotator=who)))
        for y in (base, merged, guessing, shunned)
    ]
    rates = "positive rate by cluster pair"
    assert of(frames[0], rates)["verdict"] == "fits"
    assert of(frames[1], rates)["where"] == "clusters 1 and 2"
    assert of(frames[1], rates)["verdict"] == "misfit"
    for name in ("positive rate by annotator", "disagreement by annotator"):
        assert of(frames[0], name)["verdict"] == "fits"
        assert of(frames[2], name)["where"] == "annotator 3"
        assert of(frames[2], name)["verdict"] == "misfit"
    assert of(frames[0], "item spread")["verdict"] == "fits"
    assert of(frames[3], "item spread")["verdict"] == "misfit"
    result = run_predictive(posterior_of(F, A, pairs, merged, annotator=who))
    detail = check_predictive(result, detail=True)
    assert (detail["statistic"] == rates).sum() == 10
    inside = base[(cluster == 0).all(axis=1)].mean()
    assert detail.set_index("where").loc["within cluster 0", "observed"] == pytest.approx(inside, abs=1e-6)


def test_too_few_draws_are_no_verdict():
    frame = check_predictive(run_predictive(posterior_of(*answers("independent", 0), draws=40)))
    spread = of(frame, "item spread")
    assert spread["verdict"] == "no power"
    assert "200 draws" in spread["sentence"]


def test_probability_comes_from_the_likelihood_whatever_the_answer():
    F, A, pairs, similar = answers("independent", 1)
    found = run_loo(posterior_of(F, A, pairs, similar)).probability
    q = F @ A.T
    np.testing.assert_allclose(found, (q[pairs[:, 0]] * q[pairs[:, 1]]).sum(axis=1), atol=1e-5)


def test_what_is_missing_is_named():
    idata = posterior_of(*answers("independent", 0))
    del idata.posterior_predictive
    with pytest.raises(ValueError, match=r"'similar' in group 'posterior_predictive'"):
        run_predictive(idata)
    with pytest.raises(ValueError, match=r"found dict"):
        run_loo({})
    with pytest.raises(ValueError, match="level"):
        check_predictive(run_predictive(posterior_of(*answers("independent", 0))), level=0)


def probabilities(n: int, seed: int, sharpen: float = 1.0, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Predictions with logits ``sharpen`` times the true ones plus ``shift``, and answers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 1.5, size=n)
    return 1 / (1 + np.exp(-(sharpen * x + shift))), rng.random(n) < 1 / (1 + np.exp(-x))


def test_calibration_scores_agree_with_scikit_learn():
    p, y = probabilities(500, 0)
    result = run_calibration(p, y)
    assert result.brier == pytest.approx(brier_score_loss(y, p))
    assert result.log_score == pytest.approx(log_loss(y, p))
    assert result.auc == pytest.approx(roc_auc_score(y, p))
    assert result.count.sum() == 500
    assert len(result.edges) == len(result.count) + 1
    assert (result.count == 50).all()
    assert run_calibration(p, y, bins="width").count.sum() == 500
    by_hand = sum(abs(y[c].mean() - p[c].mean()) * len(c) for c in np.array_split(np.argsort(p), 10)) / 500
    assert result.ece == pytest.approx(by_hand)


def test_calibration_tests_have_their_level_and_their_power():
    results = [run_calibration(*probabilities(400, s)) for s in range(300)]
    for z in (
        [r.spiegelhalter for r in results],
        [(r.slope - 1) / r.slope_se for r in results],
        [r.intercept / r.intercept_se for r in results],
    ):
        # Mean of 300 standard normals: standard error .058; their deviation: .041. Four of each, and .06 for finite-sample bias of the slope.
        assert abs(np.mean(z)) < 4 * 0.058 + 0.06
        assert abs(np.std(z) - 1) < 4 * 0.041
    rejected = sum((check_calibration(r)["verdict"] == "miscalibrated").any() for r in results)
    assert rejected <= 10  # expected at most 3 of 300; 11 or more has probability 3e-4
    over = run_calibration(*probabilities(2000, 1, sharpen=2.0))
    assert abs(over.slope - 0.5) < 4 * over.slope_se
    frame = check_calibration(over).set_index("test")
    assert frame.loc["slope", "verdict"] == "miscalibrated"
    assert "overconfident" in frame.loc["slope", "sentence"]
    shifted = check_calibration(run_calibration(*probabilities(2000, 1, shift=0.6))).set_index("test")
    assert shifted.loc["intercept", "verdict"] == "miscalibrated"
    # The expected ECE of calibrated probabilities is what they get on average: 300 of them, four standard errors.
    gaps = np.array([r.ece - r.ece_expected for r in results])
    assert abs(gaps.mean()) < 4 * gaps.std() / np.sqrt(300)


def test_calibration_without_information_is_undetermined():
    for p, y in (
        (np.full(50, 0.5), np.arange(50) % 2),
        (np.linspace(0.01, 0.99, 50), np.arange(50) >= 25),
        (np.full(50, 1.0), np.ones(50)),
        (np.linspace(0, 1, 50), np.zeros(50)),
    ):
        frame = check_calibration(run_calibration(p, y))
        assert (frame["verdict"] == "undetermined").any()
        assert no_nan(frame)
    for p, y, why in (([0.5, np.nan], [0, 1], "row 1"), ([0.5, 0.2], [0, 2], "found 2"), ([0.5], [0, 1], "shapes")):
        with pytest.raises(ValueError, match=why):
            run_calibration(p, y)


def test_wilson_and_holm_are_the_textbook_ones():
    low, high = wilson(np.array([0.1]), 10)
    assert (round(low[0], 4), round(high[0], 4)) == (0.0179, 0.4042)
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])


def coin(draws: int = 1000, n: int = 60) -> tuple[Any, float]:
    """Answers of one coin under a uniform prior, exact posterior draws, and the exact leave-one-out log density."""
    rng = np.random.default_rng(5)
    y = rng.random(n) < 0.4
    theta = rng.beta(1 + y.sum(), 1 + (~y).sum(), size=(2, draws // 2, 1))
    others = (1 + y.sum() - y) / (n + 1)
    idata = arviz.from_dict(
        posterior={"theta": theta[..., 0]},
        observed_data={"similar": y.astype(np.int8)},
        log_likelihood={"similar": np.log(np.where(y, theta, 1 - theta)).astype(np.float32)},
        constant_data={"i": np.arange(n), "j": np.arange(n) + 1},
    )
    return idata, float(np.log(np.where(y, others, 1 - others)).sum())


def test_loo_of_a_coin_is_the_exact_one():
    idata, exact = coin()
    result = run_loo(idata)
    # 1000 draws give each term a relative error near sd(theta) / theta / sqrt(1000) = .005, shared: .005 * 60 / 2 = .15.
    assert abs(result.elpd - exact) < 4 * 0.15
    assert abs(result.p_loo - 1) < 0.3
    verdict, sentence, _ = check_loo(result)
    assert verdict == "reliable"
    assert f"{result.elpd:.1f}" in sentence


def test_loo_names_the_answers_that_sway_the_posterior():
    idata, _ = coin()
    heavy = idata.log_likelihood["similar"].values.copy()
    heavy[..., 7] = -np.random.default_rng(0).pareto(0.8, size=heavy.shape[:2]) * 10
    idata.log_likelihood["similar"] = (idata.log_likelihood["similar"].dims, heavy)
    result = run_loo(idata)
    assert result.warnings
    verdict, sentence, table = check_loo(result)
    assert verdict == "unreliable"
    assert "1 of 60" in sentence
    assert table.iloc[0][["i", "j"]].tolist() == [7, 8]
    assert len(table) == 10


def test_loo_judges_flat_weights_and_few_draws():
    flat = run_loo(posterior_of(*answers("independent", 0)))
    assert check_loo(flat)[0] == "reliable"
    few = run_loo(coin(draws=20)[0])
    assert np.isfinite(few.pareto_k).all()
    verdict, sentence, _ = check_loo(few)
    assert verdict == "unreliable"
    assert "20 draws" in sentence


def test_plots_draw_what_was_measured():
    rng = np.random.default_rng(0)
    F, A, pairs, similar = answers("transitive", 0, n=100, m=1500)
    result = run_predictive(posterior_of(F, A, pairs, similar, annotator=rng.integers(3, size=1500)))
    figure = plot_predictive(result)
    titles = [ax.get_title() for ax in figure.axes]
    assert {"wedge excess", "positive rate by cluster pair", "item spread"} <= set(titles)
    wedge = figure.axes[titles.index("wedge excess")]
    assert wedge.lines[0].get_xdata()[0] == result["wedge excess"].observed[0]
    calibration = run_calibration(*probabilities(500, 0))
    ax = plot_calibration(calibration)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), calibration.observed)
    loo = run_loo(coin()[0])
    assert sum(len(c.get_offsets()) for c in plot_loo(loo).collections) == 60
    plt.close("all")


def test_the_normal_tail_is_two_sided():
    # Guards check_calibration's p: z = 2.576 is 1 % two-sided.
    p, y = probabilities(300, 3)
    frame = check_calibration(run_calibration(p, y))
    raw = sorted(2 * norm.sf(abs(z)) for z in frame["z"])
    assert min(frame["p"]) == pytest.approx(min(1.0, 3 * raw[0]))
