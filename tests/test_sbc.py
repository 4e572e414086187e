"""Simulation-based calibration on a model whose posterior is known: right engines pass, wrong ones do not."""

import logging
from typing import Any

import joblib
import matplotlib
import numpy as np
import pytest
from scipy.stats import binom

from pdcc.criticism import check_sbc, run_sbc
from pdcc.criticism.sbc import replicates_needed
from pdcc.experiments.sbc_prior import Simulator, engine
from pdcc.plots import plot_sbc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

N_DATA = 4


def simulate(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """mu ~ N(0, 1); y ~ N(mu, 1), four of them."""
    mu = rng.normal()
    return rng.normal(mu, 1, size=N_DATA), {"mu": mu}


def engine_with(width: float = 1.0, shift: float = 0.0, draws: int = 99) -> Any:
    def engine(problem: Any, seed: int) -> dict[str, Any]:
        mean, sd = problem.sum() / (N_DATA + 1), (N_DATA + 1) ** -0.5
        return {"mu": np.random.default_rng(seed).normal(mean + shift * sd, width * sd, size=draws)}

    return engine


def test_the_exact_posterior_passes():
    result = run_sbc(simulate, engine_with(), replicates=400)
    row = check_sbc(result).iloc[0]
    assert row["verdict"] == "uniform"  # seeded; by chance 1 % of seeds would fail
    assert result.ranks.min() >= 0
    assert result.ranks.max() <= 99
    for level in (50, 80, 90):
        # Binomial, four standard errors.
        assert abs(row[f"coverage_{level}"] - level / 100) < 4 * np.sqrt(level / 100 * (1 - level / 100) / 400)
        assert row[f"coverage_{level}_low"] < row[f"coverage_{level}"] < row[f"coverage_{level}_high"]


def test_the_check_keeps_its_level():
    verdicts = [
        check_sbc(run_sbc(simulate, engine_with(), replicates=100, seed=s)).iloc[0]["verdict"] for s in range(40)
    ]
    assert verdicts.count("biased") <= 3  # level .01: 4 or more of 40 has probability 7e-4


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (engine_with(width=0.6), "too narrow"),
        (engine_with(width=1.7), "too wide"),
        (engine_with(shift=-0.5), "too low"),
        (engine_with(shift=0.5), "too high"),
    ],
)
def test_wrong_posteriors_fail_and_the_sentence_says_how(engine: Any, said: str):
    row = check_sbc(run_sbc(simulate, engine, replicates=200)).iloc[0]
    assert row["verdict"] == "biased"
    assert said in row["sentence"]


def test_correlated_draws_need_thinning():
    def chain(problem: Any, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        steps = rng.normal(size=2000)
        z = [rng.normal()]
        for step in steps:
            z.append(0.95 * z[-1] + np.sqrt(1 - 0.95**2) * step)
        return {"mu": problem.sum() / 5 + np.array(z) * 5**-0.5}

    raw = run_sbc(simulate, lambda problem, seed: {"mu": chain(problem, seed)["mu"][:100]}, replicates=200)
    assert check_sbc(raw).iloc[0]["verdict"] == "biased"
    thinned = run_sbc(simulate, chain, replicates=200, thin=80)
    assert thinned.draws == 26
    assert check_sbc(thinned).iloc[0]["verdict"] == "uniform"


def test_ties_are_broken_at_random():
    def flip(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        return None, {"heads": float(rng.random() < 0.5)}

    def guess(problem: Any, seed: int) -> dict[str, Any]:
        return {"heads": (np.random.default_rng(seed).random(50) < 0.5).astype(float)}

    result = run_sbc(flip, guess, replicates=400)
    assert check_sbc(result).iloc[0]["p"] > 0.01
    assert len(np.unique(result.ranks)) > 40  # without it ranks would pile up on 0 and about 25


class Counted:
    """Counts its calls, and can be interrupted."""

    def __init__(self, stop: int | None = None):
        self.calls, self.stop = 0, stop

    def __call__(self, problem: Any, seed: int) -> dict[str, Any]:
        if self.calls == self.stop:
            raise KeyboardInterrupt
        self.calls += 1
        return dict(engine_with()(problem, seed))


def test_an_interrupted_run_continues(tmp_path: Any, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "deep" / "sbc.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_sbc(simulate, Counted(stop=12), replicates=30, path=path)
    whole = path.read_bytes()
    assert whole.count(b"\n") == 12
    path.write_bytes(whole[:-20])  # killed while writing the twelfth
    rest = Counted()
    resumed = run_sbc(simulate, rest, replicates=30, path=path)
    assert rest.calls == 30 - 11
    assert "not whole" in caplog.text
    straight = run_sbc(simulate, engine_with(), replicates=30)
    np.testing.assert_array_equal(resumed.ranks, straight.ranks)
    np.testing.assert_array_equal(resumed.covered, straight.covered)
    again = Counted()
    more = run_sbc(simulate, again, replicates=32, path=path)
    assert again.calls == 2
    np.testing.assert_array_equal(more.ranks[:30], straight.ranks)
    with pytest.raises(ValueError, match=r"^path: expected .*'seed': 1"):
        run_sbc(simulate, engine_with(), replicates=30, path=path, seed=1)


def test_failures_are_reported_and_tried_again(tmp_path: Any, caplog: pytest.LogCaptureFixture):
    def fragile(problem: Any, seed: int) -> dict[str, Any]:
        if problem.sum() > 3:
            raise RuntimeError("diverged")
        if problem.sum() < -6:
            return {"mu": np.full(99, np.nan)}
        return dict(engine_with()(problem, seed))

    path = tmp_path / "sbc.jsonl"
    with caplog.at_level(logging.WARNING):
        result = run_sbc(simulate, fragile, replicates=60, path=path)
    messages = {message for _, message in result.failures}
    assert messages == {"RuntimeError: diverged", "mu has draws that are not finite"}
    assert len(result.ranks) + len(result.failures) == 60
    assert "diverged" in caplog.text
    frame = check_sbc(result)
    assert frame.iloc[0]["failures"] == len(result.failures)
    assert f"{len(result.failures)} of 60 replicates failed" in frame.iloc[0]["sentence"]
    mended = run_sbc(simulate, engine_with(), replicates=60, path=path)
    assert not mended.failures
    np.testing.assert_array_equal(mended.ranks, run_sbc(simulate, engine_with(), replicates=60).ranks)

    def broken(problem: Any, seed: int) -> dict[str, Any]:
        raise RuntimeError("never works")

    with pytest.raises(ValueError, match="never works"):
        run_sbc(simulate, broken, replicates=3)


def test_arrays_are_named_by_index_and_workers_change_nothing():
    def pair(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        return None, {"B": rng.normal(size=(2, 2)), "scale": rng.random()}

    def prior(problem: Any, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {"B": rng.normal(size=(30, 2, 2)), "scale": rng.random(30)}

    one = run_sbc(pair, prior, replicates=20)
    with joblib.parallel_config(backend="threading"):  # processes take seconds to start
        two = run_sbc(pair, prior, replicates=20, n_jobs=2)
    assert one.names == ("B[0, 0]", "B[0, 1]", "B[1, 0]", "B[1, 1]", "scale")
    assert one.ranks.shape == (20, 5)
    np.testing.assert_array_equal(one.ranks, two.ranks)
    for wrong, why in (({"B": np.zeros((30, 2)), "scale": 0}, r"shape \(2, 2\)"), ({"C": 0}, "found none of B, scale")):
        with pytest.raises(ValueError, match=why):
            run_sbc(pair, lambda problem, seed, wrong=wrong: wrong, replicates=2)


def test_too_few_replicates_are_underpowered_and_the_number_is_right():
    row = check_sbc(run_sbc(simulate, engine_with(), replicates=30)).iloc[0]
    assert row["verdict"] == "underpowered"
    assert str(row["needed"]) in row["sentence"]
    n = replicates_needed(0.01)
    low = binom.ppf(0.005, n, 0.9) - 1
    assert binom.cdf(low, n, 0.9) <= 0.005  # the test keeps its level
    assert binom.cdf(low, n, 0.8) >= 0.8
    assert binom.cdf(binom.ppf(0.005, n - 30, 0.9) - 1, n - 30, 0.8) < 0.8


def test_the_plot_shows_the_ranks():
    result = run_sbc(simulate, engine_with(width=0.3), replicates=100)
    figure = plot_sbc(result)
    top, bottom = figure.axes
    assert top.patches[1].get_data().values.sum() == 100
    assert np.abs(bottom.lines[0].get_ydata()).max() > 1.628 / 10  # leaves the band
    plt.close("all")


OPTIONS = {
    "svi": {"draws": 20, "steps": 60},
    "normal": {"draws": 20, "steps": 60},
    "nuts": {"draws": 20, "warmup": 20, "chains": 1},
    "ensemble": {"chains": 2, "draws": 10},
}


@pytest.mark.parametrize("method", OPTIONS)
def test_every_engine_learns_from_answers_drawn_from_the_prior(method):
    simulator = Simulator(n_items=40, n_pairs=600)
    problem, truth = simulator(np.random.default_rng(3))
    assert float(problem.pairs.similar.mean()) == pytest.approx(truth["rate"], abs=4 * 0.5 / np.sqrt(600))
    drawn = engine(problem, 0, method=method, **OPTIONS[method])
    assert drawn["B"].shape == (20, 6)  # the upper triangle of a 3 x 3 matrix
    assert drawn["rate"].mean() == pytest.approx(truth["rate"], abs=0.01)  # .016 from one draw of the prior to another
    error = np.abs(drawn["B"].mean(axis=0) - truth["B"]).mean()
    others = [simulator(np.random.default_rng(s))[1]["B"] for s in range(20, 40)]
    by_the_prior = np.mean([np.abs(other - truth["B"]).mean() for other in others])
    # Refits know no prior, and 600 answers hardly pin B down.
    assert (error < by_the_prior / 1.5) == (method != "ensemble")
