"""K-means and its relatives at their roots: answers as links, centroids, seeds and single moves."""

import numpy as np
import pytest

from pdcc import PairData
from pdcc.baselines.kmeans import centroids
from pdcc.baselines.links import broken, close, signed_links
from pdcc.baselines.pck_means import neighbourhood_seeds, settle


def test_closure_and_contradictions():
    """0-1-2 are joined by a chain, 3-4 by an answer given both ways; rows 2 and 4 are the contradictions."""
    pairs = np.array([[0, 1], [2, 1], [0, 2], [3, 4], [4, 3], [0, 3]])
    data = PairData.from_arrays(np.zeros((6, 1)), pairs, np.array([1, 1, 0, 1, 0, 0]))
    closure = close(data)
    assert [set(np.flatnonzero(closure.component == c).tolist()) for c in closure.component[[0, 3, 5]]] == [
        {0, 1, 2},
        {3, 4},
        {5},
    ]
    assert closure.size[closure.component].tolist() == [3, 3, 3, 2, 2, 1]
    assert closure.contradictions.tolist() == [2, 4]


def test_signed_links_count_what_a_move_would_break(noisy_blobs):
    a = noisy_blobs.answers
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar)
    labels = np.random.default_rng(0).integers(3, size=150)
    votes = signed_links(np.arange(150), 150, data) @ np.eye(3)[labels]
    for item in range(0, 150, 10):
        counts = [sum(broken(np.where(np.arange(150) == item, k, labels), data).values()) for k in range(3)]
        np.testing.assert_array_equal(votes[item] - votes[item, 0], np.array(counts) - counts[0])


def test_empty_clusters_go_to_the_farthest_items():
    x = np.array([[0.0], [1.0], [2.0], [9.0], [20.0], [22.0]])
    np.testing.assert_array_equal(centroids(x, np.array([0, 0, 0, 0, 2, 2]), 4).ravel(), [3.0, 9.0, 21.0, 0.0])


@pytest.mark.parametrize("home", [0, 1, 2])
def test_must_links_pull_into_every_cluster_number(home):
    """A public package reads cluster 0 as "no cluster yet". Item 0 is nearer to another cluster; its links say ``home``."""
    away = (home + 1) % 3
    pairs = np.array([[0, 1], [2, 0], [0, 3], [1, 4]])
    data = PairData.from_arrays(np.zeros((5, 1)), pairs, np.array([1, 1, 1, 0]))
    labels = np.array([away, home, home, home, away])
    cost = np.full((5, 3), 9.0)
    cost[np.arange(5), labels] = 0.0
    cost[0, home] = 1.0
    settled = settle(cost, signed_links(np.arange(5), 5, data), labels, 0.5, np.random.default_rng(0))
    np.testing.assert_array_equal(settled, [home, home, home, home, away])
    cheap = settle(cost, signed_links(np.arange(5), 5, data), labels, 0.2, np.random.default_rng(0))
    assert cheap[0] == away


def line(n_items, pairs, similar):
    X = np.arange(float(n_items))[:, None]
    return X, PairData.from_arrays(X, np.array(pairs), np.array(similar))


def test_neighbourhoods_seed_largest_then_heavy_and_far():
    """Five items about 2, four about 14.5, two about 19.5: the second is nearer than the third, but weighs more."""
    chains = [[0, 1], [1, 2], [2, 3], [3, 4], [13, 14], [14, 15], [15, 16], [19, 20]]
    x, data = line(21, [*chains, [0, 13]], [1] * 8 + [0])
    np.testing.assert_array_equal(neighbourhood_seeds(x, 2, data, 0).ravel(), [2.0, 14.5])
    np.testing.assert_array_equal(neighbourhood_seeds(x, 3, data, 0).ravel(), [2.0, 14.5, 19.5])
    five = neighbourhood_seeds(x, 5, data, 0).ravel()
    np.testing.assert_array_equal(five[:3], [2.0, 14.5, 19.5])
    assert np.isin(five[3:], x).all()


def test_a_large_group_seeds_unless_answers_contradict_it():
    chain = [[i, i + 1] for i in range(14)]
    x, clean = line(20, [*chain, [0, 19]], [1] * 14 + [0])
    assert neighbourhood_seeds(x, 4, clean, 0)[0] == 7.0
    x, torn = line(20, [*chain, [0, 14]], [1] * 14 + [0])
    assert neighbourhood_seeds(x, 4, torn, 0) is None
    x, small = line(20, [*chain[:3], [0, 3]], [1] * 3 + [0])
    assert neighbourhood_seeds(x, 4, small, 0)[0] == 1.5
