"""How well features support a partition, by the clusters of neighbours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pdcc.select.features import support
from pdcc.select.numbers import NEIGHBOURS, SURE
from pdcc.select.starts import neighbour_graph


def blobs(K, n, distance, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return distance * np.eye(K)[y] + rng.normal(size=(n, K)), y


def graph(Z):
    return neighbour_graph(Z, weighed=False)


def test_one_cluster_is_told_nothing():
    Z, _ = blobs(3, 90, 10)
    np.testing.assert_allclose(support(graph(Z), np.zeros(90, int), 1), 0, atol=1e-12)
    np.testing.assert_allclose(support(graph(Z), np.zeros(90, int), 5), 0, atol=1e-12)


@pytest.mark.parametrize("K", [2, 3, 8])
def test_separate_clusters_are_told_nearly_all(K):
    """All neighbours are of the own cluster, and one more, shared among all: log K + log((n + 1 / K) / (n + 1))."""
    Z, y = blobs(K, 30 * K, 50)
    found = support(graph(Z), y, K)
    np.testing.assert_allclose(found, np.log(K) + np.log((NEIGHBOURS + 1 / K) / (NEIGHBOURS + 1)))
    assert found.mean() > SURE * np.log(K)


def test_labels_that_have_nothing_to_do_with_features_are_told_nothing():
    """Neighbours are then drawn like any other items: the mean is that of a binomial count, a little below 0."""
    rng = np.random.default_rng(0)
    K, N = 3, 3000
    labels = rng.permutation(np.arange(N) % K)
    found = support(graph(rng.normal(size=(N, 4))), labels, K)
    counted = np.arange(NEIGHBOURS + 1)
    expected = binom.pmf(counted, NEIGHBOURS, 1 / K) @ np.log((counted + 1 / K) / (NEIGHBOURS + 1) * K)
    assert -0.25 < expected < 0
    # Neighbours are shared, which makes items' values depend: twice the error of independent ones, four of these.
    assert found.mean() == pytest.approx(expected, abs=4 * 2 * found.std() / np.sqrt(N))


def test_support_grows_with_the_distance_of_clusters():
    means = []
    for distance in (0, 1, 2, 4, 8):
        Z, y = blobs(3, 300, distance)
        means.append(support(graph(Z), y, 3).mean())
    assert means == sorted(means)
    assert means[0] < 0.1 < 0.9 < means[-1]


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 10**6), st.integers(0, 3))
def test_numbers_of_clusters_do_not_matter_and_empty_ones_change_nothing(numbers, seed, more):
    rng = np.random.default_rng(seed)
    near, labels = graph(rng.normal(size=(60, 2))), rng.integers(4, size=60)
    found = support(near, labels, 4)
    np.testing.assert_allclose(support(near, np.array(numbers)[labels], 4), found, atol=1e-12)
    np.testing.assert_allclose(support(near, labels, 4 + more), found, atol=1e-12)


@pytest.mark.parametrize("weighed", [False, True])
def test_no_item_is_its_own_neighbour(weighed):
    """Items that coincide included: of these the nearest is not always the item itself."""
    rng = np.random.default_rng(0)
    for Z in (rng.normal(size=(50, 2)), np.repeat(rng.normal(size=(3, 2)), 20, axis=0), np.zeros((15, 1)), np.eye(4)):
        near = neighbour_graph(Z, weighed=weighed)
        assert near.shape == (len(Z), len(Z))
        np.testing.assert_array_equal(near.diagonal(), 0)
        assert np.isfinite(near.data).all()
        if weighed:
            assert abs(near - near.T).max() < 1e-15
        else:
            np.testing.assert_array_equal(near.sum(axis=1), min(NEIGHBOURS, len(Z) - 1))
