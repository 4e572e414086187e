"""Scores against hand-made answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcc import metrics


def test_acc_matches_clusters_to_classes():
    assert metrics.acc([0, 0, 1, 1, 2, 2], [5, 5, 7, 7, 7, 1]) == pytest.approx(5 / 6)
    assert metrics.acc(["a", "a", "b"], [1, 1, 0]) == 1.0
    # A greedy match (class 0 to cluster 0 by its count 4) would give 4 + 0; the best matching is 3 + 3.
    assert metrics.acc([0] * 7 + [1] * 3, [0] * 4 + [1] * 3 + [0] * 3) == pytest.approx(6 / 10)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.permutations(range(5)))
def test_scores_ignore_cluster_numbers(labels, order):
    renamed = [order[k] for k in labels]
    assert metrics.acc(labels, renamed) == 1.0
    assert metrics.nmi(labels, renamed) == pytest.approx(1.0)
    assert metrics.ari(labels, renamed) == pytest.approx(1.0)


def test_membership_mse_is_the_appendix_formula():
    rng = np.random.default_rng(0)
    F, G = rng.dirichlet(np.ones(3), 20), rng.dirichlet(np.ones(3), 20)
    from itertools import permutations

    def direct(p):
        a, b = F[:, list(p)], G
        return np.mean(
            [np.sum((a[:, k] / np.linalg.norm(a[:, k]) - b[:, k] / np.linalg.norm(b[:, k])) ** 2) for k in range(3)]
        )

    assert metrics.membership_mse(F, G) == pytest.approx(min(direct(p) for p in permutations(range(3))))
    assert metrics.membership_mse(F, F[:, [2, 0, 1]]) == pytest.approx(0.0, abs=1e-12)


def test_align_undoes_a_permutation():
    F = np.random.default_rng(1).dirichlet(np.full(4, 0.3), 50)
    shuffled = F[:, [3, 1, 0, 2]]
    np.testing.assert_array_equal(shuffled[:, metrics.align(F, shuffled)], F)


@pytest.mark.parametrize("bad", [([0, 1], [0]), ([], []), ([[0]], [[0]])])
def test_bad_labels(bad):
    with pytest.raises(ValueError, match="true, predicted"):
        metrics.acc(*bad)
