"""Standard errors of paired differences, against the spread of their means in simulations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcc import PairData
from pdcc.annotators import draw_pairs
from pdcc.select.score import contradictions, similar_rates, standard_error

SIMULATIONS = 400
# Variances of so many means are off by a share of sqrt(2 / 400) = .07; four of these.
ERROR = 4 * np.sqrt(2 / SIMULATIONS)


def answers(n_items, n_pairs, n_annotators=0, seed=0):
    rng = np.random.default_rng(seed)
    names = np.arange(n_pairs) % n_annotators if n_annotators else None
    pairs = draw_pairs(n_items, n_pairs, rng)
    return PairData.from_arrays(np.arange(2.0 * n_items).reshape(-1, 2), pairs, rng.random(n_pairs) < 0.5, names)


def ratio(data, draw):
    """The mean squared standard error over the variance of means, and the same of errors that take answers as independent."""
    rng = np.random.default_rng(1)
    drawn = [draw(rng) for _ in range(SIMULATIONS)]
    true = np.var([one.mean() for one in drawn])
    found = np.mean([standard_error(one, data) ** 2 for one in drawn])
    naive = np.mean([one.var() / len(one) for one in drawn])
    return found / true, naive / true


def test_independent_differences():
    data = answers(150, 600)
    found, _ = ratio(data, lambda rng: rng.normal(size=len(data)))
    # The larger of two estimates is too large by chance: by less than a quarter.
    assert 1 - ERROR < found < 1.25 + ERROR


def test_differences_that_share_items():
    """An answer has two items, and depends on all that are about either."""
    data = answers(150, 1500)

    def draw(rng):
        own = rng.normal(size=150)
        return own[data.i] + own[data.j] + rng.normal(size=len(data))

    found, naive = ratio(data, draw)
    # Centring takes a share of about 4 / 150 of the variance away.
    assert found == pytest.approx(1 - 4 / 150, abs=ERROR)
    assert naive < 0.3


def test_differences_that_share_annotators():
    data = answers(2000, 1500, n_annotators=20)

    def draw(rng):
        return rng.normal(size=20)[data.annotator] + rng.normal(size=len(data))

    found, naive = ratio(data, draw)
    assert found == pytest.approx(1, abs=ERROR)
    assert naive < 0.1


def test_one_annotator_is_no_reason_to_take_answers_as_dependent():
    data = answers(2000, 500, n_annotators=1)
    d = np.random.default_rng(0).normal(size=500)
    pairs = np.column_stack([data.i, data.j])
    nameless = PairData.from_arrays(data.features, pairs, data.similar)
    assert standard_error(d, data) == standard_error(d, nameless) > 0


def test_sums_written_out():
    d = np.array([1.0, 1.0, -1.0, -1.0])
    X, similar = np.arange(8.0).reshape(8, 1), [1, 0, 1, 0]
    apart = PairData.from_arrays(X, [[0, 1], [2, 3], [4, 5], [6, 7]], similar)
    assert standard_error(d, apart) == pytest.approx(0.5)
    # Two answers share item 1, and two item 5: each two count as one, of twice the size.
    shared = PairData.from_arrays(X, [[0, 1], [1, 2], [4, 5], [5, 6]], similar)
    assert standard_error(d, shared) == pytest.approx(np.sqrt(4 + 2 * 2) / 4)
    # Two annotators: sqrt(2^2 + 2^2) / 4, times sqrt(2 / 1) for there being only two.
    named = PairData.from_arrays(X, [[0, 1], [2, 3], [4, 5], [6, 7]], similar, ["a", "a", "b", "b"])
    assert standard_error(d, named) == pytest.approx(np.sqrt(8) / 4 * np.sqrt(2))
    # Effects that cancel do not make it less than that of independent answers.
    against = PairData.from_arrays(X, [[0, 1], [2, 3], [4, 5], [6, 7]], similar, ["a", "b", "a", "b"])
    assert standard_error(d, against) == pytest.approx(0.5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(-5, 5), st.floats(0.01, 100))
def test_shifts_change_nothing_and_units_scale_it(seed, shift, unit):
    data = answers(20, 60, n_annotators=4, seed=seed)
    d = np.random.default_rng(seed).normal(size=60)
    found = standard_error(d, data)
    assert standard_error(d + shift, data) == pytest.approx(found)
    assert standard_error(unit * d, data) == pytest.approx(unit * found)
    assert found >= d.std() / np.sqrt(60) - 1e-12


def test_rates_have_half_an_answer_each_way():
    data = PairData.from_arrays(np.eye(4), [[0, 1], [0, 2], [2, 3], [1, 3]], [1, 0, 1, 0], weights=[1, 1, 2, 1])
    together = np.array([True, False, True, False])
    assert similar_rates(together, data) == pytest.approx([3.5 / 4, 0.5 / 3])
    assert similar_rates(np.zeros(4, bool), data) == pytest.approx([0.5, 3.5 / 6])


def test_one_label_in_mind_never_contradicts_itself():
    """Independent answers contradict each other as often as expected; answers by one label of every item never do."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    pairs = draw_pairs(60, 900, rng)
    truth = y[pairs[:, 0]] == y[pairs[:, 1]]
    expected = np.where(truth, 0.8, 0.2)
    X = np.arange(60.0)[:, None]
    independent = [PairData.from_arrays(X, pairs, rng.random(900) < expected) for _ in range(20)]
    found = np.array([contradictions(expected, data) for data in independent])
    error = found[:, 0].std(ddof=1) / np.sqrt(20)
    assert abs(found[:, 0].mean() - found[0, 1]) < 4 * error
    mind = np.where(rng.random(60) < 0.3, rng.integers(3, size=60), y)
    consistent = PairData.from_arrays(X, pairs, mind[pairs[:, 0]] == mind[pairs[:, 1]])
    assert contradictions(expected, consistent)[0] == 0
