"""Machine annotators: classifiers trained on few labels that hit a flip rate, with errors that agree."""

import numpy as np
import pytest
from helpers import FLIP_TOLERANCE

from pdcc.annotators import answer_through, draw_pairs, machine_annotator, machine_annotators
from pdcc.datasets import digits


def contradictions(answers, who=None):
    """How many "different" answers join two items that chains of the annotator's "similar" ones join."""
    mine = slice(None) if who is None else answers.annotators == who
    pairs, similar = answers.pairs[mine], answers.similar[mine]
    parent = list(range(pairs.max() + 1))

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in pairs[similar]:
        parent[root(i)] = root(j)
    return sum(root(i) == root(j) for i, j in pairs[~similar])


@pytest.fixture(scope="module")
def asked():
    data = digits()
    return data, draw_pairs(len(data.X), 20_000, np.random.default_rng(0))


@pytest.mark.parametrize("target", [0.05, 0.10, 0.15])
def test_machine_annotator_hits_its_flip_rate_with_consistent_errors(asked, target):
    data, pairs = asked
    for seed in (0, 1):
        answers = machine_annotators(data.X, data.y, pairs, flip_rate=target, seed=seed)
        wrong = (data.y[pairs[:, 0]] == data.y[pairs[:, 1]]) != answers.similar
        assert answers.flip_rate == pytest.approx(wrong.mean())
        assert abs(wrong.mean() - target) <= FLIP_TOLERANCE
        assert answers.annotators is None
        assert contradictions(answers) == 0
    again = machine_annotators(data.X, data.y, pairs, flip_rate=target, seed=1)
    np.testing.assert_array_equal(again.similar, answers.similar)
    # Independent errors at the same rate contradict each other: the check above can fail.
    A = np.full((10, 10), target / 18) + (1 - target * 10 / 18) * np.eye(10)
    independent = answer_through(np.eye(10)[data.y], pairs, A, np.random.default_rng(0))
    assert contradictions(independent) > 100


def test_machine_annotator_is_one_trained_on_some_number_of_labels(asked):
    data, pairs = asked
    found = machine_annotators(data.X, data.y, pairs[:4000], flip_rate=0.1, seed=3)
    alone = [machine_annotator(data.X, data.y, pairs[:4000], n_labels=n, seed=3).similar for n in range(20, 60)]
    assert any(np.array_equal(found.similar, similar) for similar in alone)


def test_several_machine_annotators_have_ids_and_errors_of_their_own(asked):
    data, pairs = asked
    answers = machine_annotators(data.X, data.y, pairs, flip_rate=0.1, seed=0, n_annotators=3)
    assert sorted(set(answers.annotators)) == [0, 1, 2]
    for who in range(3):
        mine = answers.annotators == who
        wrong = (data.y[pairs[mine, 0]] == data.y[pairs[mine, 1]]) != answers.similar[mine]
        assert abs(wrong.mean() - 0.1) <= FLIP_TOLERANCE
        assert contradictions(answers, who) == 0
    assert contradictions(answers) > 0
    assert abs(answers.flip_rate - 0.1) <= FLIP_TOLERANCE


def test_machine_annotator_limits(asked):
    data, pairs = asked
    pairs = pairs[:2000]
    true = machine_annotators(data.X, data.y, pairs, flip_rate=0.0)
    assert true.flip_rate == 0.0
    np.testing.assert_array_equal(true.similar, data.y[pairs[:, 0]] == data.y[pairs[:, 1]])
    # More noise than one label per class gives: some classes are unknown to the annotator.
    assert abs(machine_annotators(data.X, data.y, pairs, flip_rate=0.25).flip_rate - 0.25) <= FLIP_TOLERANCE
    with pytest.raises(ValueError, match="1297 labels"):
        machine_annotators(data.X, data.y, pairs, flip_rate=0.001, tolerance=1e-4)
    for bad in (-0.1, 1.0):
        with pytest.raises(ValueError, match="flip_rate"):
            machine_annotators(data.X, data.y, pairs, flip_rate=bad)
    with pytest.raises(ValueError, match="n_annotators"):
        machine_annotators(data.X, data.y, pairs, flip_rate=0.1, n_annotators=0)
