"""The studies of intervals and of tests where nothing is wrong: what they count, and that they go on after a kill."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import beta

from pdcc import VolMaxDCC
from pdcc.criticism.predictive import _moved
from pdcc.experiments import asking_curves, coverage, nulls
from pdcc.plots import plot_asking
from pdcc.posterior.inference_data import Posterior
from pdcc.posterior.measured import Covered


def test_a_refit_moves_the_mean_as_far_as_a_new_fit_would():
    """One rate for all answers, Beta(2, 3) before: to first order a refit to other answers moves its mean by n / (n + 5) of the difference."""
    n, S, rng = 200, 4000, np.random.default_rng(0)
    y = rng.random(n) < 0.4
    drawn = beta(2 + y.sum(), 3 + n - y.sum()).rvs(S, random_state=1)
    likelihood = np.where(y, drawn[:, None], 1 - drawn[:, None])
    posterior = Posterior(y, np.arange(n), np.arange(n), None, np.log(likelihood).astype(np.float32))
    p = np.full(n, drawn.mean())
    other = (rng.random((n, 3)) < 0.7).astype(np.float32)
    moved = _moved(posterior, p, np.column_stack([y, other]).astype(np.float32))
    moved = moved[:, 1:] - moved[:, :1]
    exact = (2 + other.sum(axis=0)) / (n + 5) - (2 + y.sum()) / (n + 5)
    # 4,000 draws know a variance to 2.2 % (one standard error).
    np.testing.assert_allclose(moved, np.broadcast_to(exact, moved.shape), rtol=0.09)


def test_coverage_counts_intervals_that_hold_the_truth():
    draws = np.tile(np.linspace(0, 1, 101)[:, None], (1, 3))
    assert coverage.covered(draws, np.array([0.5, 0.04, 0.96])).tolist() == [True, False, False]
    X, F, A, answers = coverage.simulate(50, 80, 1)
    np.testing.assert_allclose(F.sum(axis=1), 1)
    np.testing.assert_allclose(A.sum(axis=0), 1)
    assert len(answers.pairs) == 80
    assert X.shape == (50, 4)


def test_a_study_goes_on_where_it_was_and_counts_what_failed(tmp_path, monkeypatch):
    calls = []

    def cell(setting):
        calls.append(setting)
        if setting.seed == 1 and setting.engine == "nuts":
            raise ValueError("no")
        numbers = {"B": 0.9, "memberships": 0.8, "B_error": 0.1, "memberships_error": 0.1}
        return vars(setting) | {"name": setting.name, "status": "converged", **numbers}

    monkeypatch.setattr(coverage, "run_cell", cell)
    first = coverage.simulate_coverage(tmp_path, size=10, seed=0, n_jobs=1, progress=False)
    assert "1 failed" in first
    assert (tmp_path / "coverage.csv").exists()
    n = len(calls)
    coverage.simulate_coverage(tmp_path, size=10, seed=0, n_jobs=1, progress=False)
    assert len(calls) == n + 1  # only the one that failed


@pytest.mark.parametrize("strategy", asking_curves.STRATEGIES)
def test_a_curve_asks_for_new_pairs_until_it_has_enough(monkeypatch, noisy_blobs, strategy):
    """Random pairs go on to the goal, chosen ones stop at the last size; every strategy begins with the same answers."""
    monkeypatch.setitem(asking_curves.SIZES, "digits", (120, 60, 180, 300))
    monkeypatch.setattr(
        asking_curves,
        "VolMaxDCC",
        partial(VolMaxDCC, hidden=(8,), epochs=3, scale="standard", confusion="stochastic", volume=0.0),
    )
    asked = []

    def answer(pairs, rng):
        asked.append(pairs)
        return noisy_blobs.y[pairs[:, 0]] == noisy_blobs.y[pairs[:, 1]]

    monkeypatch.setattr(asking_curves, "problem", lambda data, seed: (noisy_blobs.X, noisy_blobs.y, answer))
    found = asking_curves.run_cell(asking_curves.Setting("digits", strategy, 0))
    sizes = [120, 180, 300] if strategy == "random" else [120, 180]
    assert [at["answers"] for at in found["curve"]] == sizes
    everything = np.sort(np.concatenate(asked), axis=1)
    assert len(np.unique(everything, axis=0)) == sizes[-1]  # no pair twice
    table = asking_curves.summarise([found, {"error": "no"}])
    assert table["answers"].tolist() == sizes
    assert plot_asking(table, "digits").get_ylabel() == "accuracy"


def test_null_tables_hold_the_share_below_a_twentieth():
    rows = [{"kind": "null", "ratio": 2, "p": {"dependence": p, "wedge": None}} for p in (0.01, 0.5, 0.9, 1.0)]
    table = nulls.summarise(rows)
    assert table["test"].tolist() == ["dependence"]
    assert table["below"].tolist() == [0.25]


@pytest.mark.slow
def test_a_null_set_gives_a_p_value_of_every_test():
    found = nulls.run_cell(nulls.Setting("null", 5, 0))
    assert {"dependence", "wedge excess", "positive rate by cluster pair"} <= set(found["p"])
    assert all(p is None or 0 <= p <= 1 for p in found["p"].values())


def test_figures_say_when_intervals_are_too_narrow():
    assert "too narrow" in str(Covered(0.9, 0.6, 40))
    assert "too narrow" not in str(Covered(0.9, 0.88, 40))
