"""The one rule: answers decide, features may overrule them where they are sure, and the simplest of equal settings is taken."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcc import PairData
from pdcc.select.numbers import ERRORS, OVERRULED, SURE
from pdcc.select.rule import Evidence, choose, choose_simplest
from pdcc.select.score import standard_error

M = 400
# No two answers share an item: the standard error of a difference is its deviation over sqrt(M).
DATA = PairData.from_arrays(np.arange(2.0 * M).reshape(-1, 1), np.arange(2 * M).reshape(M, 2), np.arange(M) % 3 == 0)
BASE = np.random.default_rng(0).exponential(0.3, M)
STEP = np.random.default_rng(1).normal(size=M)
STEP -= STEP.mean()
STEP *= 0.01 * np.sqrt(M) / STEP.std()  # behind by b has a standard error of .01
SURE_OF_IT = {"support": (SURE + 0.01) * np.log(3), "entropy": np.log(3)}
UNSURE = {"support": (SURE - 0.01) * np.log(3), "entropy": np.log(3)}


def best(**features):
    return Evidence("best", BASE, **{"support": 0.0, "entropy": np.log(3)} | features)


def behind(errors, **features):
    """A candidate so many standard errors behind the best."""
    return Evidence(
        f"{errors:g} behind", BASE + STEP + 0.01 * errors, **{"support": 0.0, "entropy": np.log(3)} | features
    )


def test_the_standard_error_is_what_these_tests_take_it_for():
    assert standard_error(STEP, DATA) == pytest.approx(0.01)


@pytest.mark.parametrize("first", [0, 1])
def test_answers_decide(first):
    candidates = [behind(0.5), best()] if first == 0 else [best(), behind(0.5)]
    found = choose(candidates, DATA)
    assert candidates[found.index].name == "best"
    assert not found.overruled
    assert found.reason.startswith("best predicts left-out answers best")
    rows = {row["setting"]: row for row in found.table}
    assert rows["0.5 behind"]["behind_best"] == pytest.approx(0.005)
    assert rows["0.5 behind"]["standard_error"] == pytest.approx(0.01)
    assert rows["best"]["behind_best"] == 0
    assert rows["best"]["nll"] == pytest.approx(BASE.mean())


@pytest.mark.parametrize(
    ("errors", "features", "overruled"),
    [
        (OVERRULED - 0.1, SURE_OF_IT, True),
        (OVERRULED + 0.1, SURE_OF_IT, False),
        (OVERRULED - 0.1, UNSURE, False),
        (0.1, UNSURE, False),
        (0.1, {"support": 9.0, "entropy": 0.0}, False),  # one cluster is never sure
    ],
)
def test_features_overrule_answers_where_they_are_sure_and_answers_are_near(errors, features, overruled):
    found = choose([best(), behind(errors, **features)], DATA)
    assert (found.index, found.overruled) == (int(overruled), overruled)
    assert ("features show these clusters as separate ones" in found.reason) == overruled
    assert [row["near"] for row in found.table] == [True, errors < OVERRULED]


def test_of_several_near_ones_features_speak_for_the_one_that_they_support_most():
    three, four = SURE_OF_IT, {"support": (SURE + 0.02) * np.log(4), "entropy": np.log(4)}
    assert choose([best(), behind(1, **three), behind(2, **four)], DATA).index == 2
    # And if they are not sure of that one, answers decide, though they are sure of another.
    doubtful = {"support": (SURE - 0.02) * np.log(4), "entropy": np.log(4)}
    assert doubtful["support"] > three["support"]
    assert choose([best(), behind(1, **three), behind(2, **doubtful)], DATA).index == 0


def test_features_that_are_sure_of_the_best_overrule_nothing():
    found = choose([behind(1), best(**SURE_OF_IT)], DATA)
    assert (found.index, found.best, found.overruled) == (1, 1, False)
    assert found.reason.startswith("best predicts left-out answers best")


def test_the_first_of_equals_is_taken():
    assert choose([best(), best()], DATA).index == 0
    assert choose_simplest([best(), best()], DATA).index == 0
    rounding = SURE_OF_IT | {"support": SURE_OF_IT["support"] + 1e-13}
    assert choose([best(), behind(1, **SURE_OF_IT), behind(1, **rounding)], DATA).index == 1
    assert choose([best()], DATA).index == 0


@pytest.mark.parametrize(("errors", "index"), [(ERRORS - 0.1, 0), (ERRORS + 0.1, 1)])
def test_the_simplest_within_one_standard_error_is_taken(errors, index):
    found = choose_simplest([behind(errors), best(), behind(0.01)], DATA)
    assert found.index == index
    assert ("is the simplest within 1 standard error of the best, best" in found.reason) == (index == 0)
    assert not found.overruled
    assert choose_simplest([behind(errors, **SURE_OF_IT), best()], DATA).index == index  # features have no say


def test_answers_count_as_they_weigh():
    """Of two candidates each is better about half of the answers: those of weight 3 decide."""
    half = np.arange(M) % 2 == 0
    one, other = (Evidence(name, BASE + 0.5 * part, 0.0, 0.0) for name, part in (("one", half), ("other", ~half)))
    for heavy, index in ((half, 1), (~half, 0)):
        pairs = np.column_stack([DATA.i, DATA.j])
        data = PairData.from_arrays(DATA.features, pairs, DATA.similar, weights=np.where(heavy, 3.0, 1.0))
        found = choose([one, other], data)
        assert found.index == index
        assert found.table[index]["nll"] == pytest.approx(np.average([one, other][index].nll, weights=data.weight))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 6), st.floats(0, 1.2)), min_size=1, max_size=6), st.floats(-1, 1))
def test_what_all_candidates_share_decides_nothing(parts, shift):
    """The same nats more of every answer; and what is chosen is never out of reach."""
    candidates = [
        Evidence(f"{k}", BASE + 0.01 * errors + STEP * np.roll(STEP, k), support, np.log(3))
        for k, (errors, support) in enumerate(parts)
    ]
    harder = [Evidence(one.name, one.nll + shift * BASE, one.support, one.entropy) for one in candidates]
    for rule in (choose, choose_simplest):
        found, other = rule(candidates, DATA), rule(harder, DATA)
        assert found.index == other.index
        assert found.table[found.index]["near"]
        assert min(row["behind_best"] for row in found.table) == 0
