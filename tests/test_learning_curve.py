"""Learning curves: one row per run, a power law found again, and intervals that say when they know nothing."""

import math

import numpy as np
import pandas as pd
import pytest

from pdcc.identifiability.learning_curve import learning_curve, pairs_for_score


def curve(floor, scale, exponent, noise=0.0, sizes=(100, 300, 1000, 3000), seeds=range(5)):
    def fit_score(n_pairs, seed):
        wobble = np.random.default_rng([n_pairs, seed]).normal(scale=noise) if noise else 0.0
        error = floor + scale * n_pairs**-exponent + wobble
        return {"acc": 1 - error, "error": error}

    return learning_curve(fit_score, sizes, seeds)


def test_learning_curve_has_a_row_per_run():
    calls = []
    frame = learning_curve(lambda m, s: calls.append((m, s)) or {"acc": 0.5}, [10, 20], range(3))
    assert list(frame.columns) == ["n_pairs", "seed", "acc"]
    assert calls == [(10, 0), (10, 1), (10, 2), (20, 0), (20, 1), (20, 2)]
    assert list(zip(frame["n_pairs"], frame["seed"], strict=True)) == calls
    with pytest.raises(ValueError, match="sizes, seeds"):
        learning_curve(lambda m, s: {}, [], [0])


def test_pairs_for_score_recovers_a_power_law():
    frame = curve(0.05, 4.0, 0.5)
    answer = pairs_for_score(frame, "acc", 0.9, n_bootstrap=5)
    # The exponent is searched on a grid of 7 % steps, hence the tolerance on a number within the range measured.
    assert answer.n_pairs == pytest.approx((4.0 / 0.05) ** 2, rel=0.1)
    np.testing.assert_allclose(answer.predict([100, 3000]), [1 - 0.45, 1 - 0.05 - 4 / 3000**0.5], atol=0.01)
    mirrored = pairs_for_score(frame, "error", 0.1, best=0.0, n_bootstrap=5)
    assert mirrored.n_pairs == pytest.approx(answer.n_pairs)
    np.testing.assert_allclose(mirrored.predict([100.0, 1e4]), 1 - answer.predict([100.0, 1e4]))
    assert str(answer).startswith("acc 0.9: about 6,")


def test_pairs_for_score_says_when_it_cannot():
    level = pairs_for_score(curve(0.2, 30.0, 1.0), "acc", 0.9, n_bootstrap=5)
    assert math.isinf(level.n_pairs)
    assert "levels off at 0.8" in str(level)
    far = pairs_for_score(curve(0.0, 4.0, 0.5), "acc", 0.99, n_bootstrap=5)
    assert far.n_pairs == pytest.approx(160_000, rel=0.3)
    assert "Extrapolated" in far.reason
    assert pairs_for_score(curve(0.0, 4.0, 0.5), "acc", -20.0, n_bootstrap=5).n_pairs == 1.0


def test_interval_covers_and_widens_with_noise():
    # A fixed draw at each noise: a 90 % interval misses the truth one time in ten, and in these two it does not.
    truth = (4.0 / 0.1) ** 2
    widths = []
    for noise in (0.005, 0.02):
        answer = pairs_for_score(curve(0.05, 4.0, 0.5, noise, seeds=range(10)), "acc", 0.85, n_bootstrap=60)
        low, high = answer.interval
        assert low <= truth <= high
        widths.append(math.log(high / low))
    assert widths[0] < widths[1]
    alone = pairs_for_score(curve(0.05, 4.0, 0.5, seeds=[0]), "acc", 0.85)
    assert alone.interval == (1.0, math.inf)
    assert "interval" in alone.reason
    assert alone.n_pairs == pytest.approx(truth, rel=0.1)  # the curve itself is known


@pytest.mark.parametrize(
    ("frame", "target", "match"),
    [
        (pd.DataFrame({"n_pairs": [1, 2, 3]}), 0.9, "frame: expected a column"),
        (pd.DataFrame({"n_pairs": [1, 2, 2], "acc": [0.1, 0.2, 0.3]}), 0.9, "at least 3 sizes"),
        (pd.DataFrame({"n_pairs": [1, 2, 3], "acc": [0.1, 0.2, 0.3]}), 1.0, "target: expected"),
        (pd.DataFrame({"n_pairs": [1, 2, 3], "acc": [0.1, np.nan, 0.3]}), 0.9, "finite"),
        (pd.DataFrame({"n_pairs": [1, 2, 3], "acc": [0.1, 1.2, 0.3]}), 0.9, "one side"),
    ],
)
def test_bad_learning_curves(frame, target, match):
    with pytest.raises(ValueError, match=match):
        pairs_for_score(frame, "acc", target)
