"""The mixture that features and answers share: shapes learned from few answers, labels that go by features."""

import numpy as np
import pytest
import torch
from helpers import make_blobs

from pdcc import PairData, VolMaxDCC, metrics
from pdcc.annotators import draw_pairs
from pdcc.data.scaling import Scaler
from pdcc.select.mixture import Links, Shapes, mixture
from pdcc.select.search import prepare
from pdcc.select.starts import Partitioner
from pdcc.training import Shape, Source, Start


def stretched(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, PairData]:
    """Three long, thin classes side by side, as many answers as items, one of ten wrong: K-means cuts them across."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = np.column_stack([2.5 * y + 0.3 * rng.normal(size=n), 8 * rng.normal(size=n)]) @ rng.normal(size=(2, 2))
    pairs = draw_pairs(n, n, rng)
    similar = (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(len(pairs)) < 0.1)
    return X, y, PairData.from_arrays(X, pairs, similar)


def by_features(X, labels, n_clusters, data, *, own_shapes):
    return mixture(X.astype(np.float64), labels, n_clusters, data, own_shapes=own_shapes).by_features.argmax(axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_a_mixture_learns_the_shape_of_clusters_from_few_answers(seed):
    X, y, data = stretched(seed)
    way = Partitioner(Scaler.fit(X, "standard")(X), 3, seed)
    assert metrics.acc(y, way.plain) < 0.8
    chosen = prepare(data, VolMaxDCC(3, scale="standard").config(seed), torch.device("cpu")).chosen
    assert metrics.acc(y, chosen.labels) > 0.97
    assert metrics.acc(y, way.make(Start(Source.GUIDED, Shape.SHARED), data).labels) > 0.97


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_other_coordinates_give_the_same_clusters(own):
    """The metric is learned: units and directions of the features do not matter."""
    X, y, data = stretched(0)
    found = mixture(X, y, 3, data, own_shapes=own)
    for turned in (X @ np.array([[3.0, 1.0], [0.5, 2.0]]), X * [1e4, 1e-3] + 7):
        other = mixture(turned, y, 3, data, own_shapes=own)
        np.testing.assert_array_equal(other.by_features.argmax(axis=1), found.by_features.argmax(axis=1))
        np.testing.assert_allclose(other.beliefs, found.beliefs, atol=1e-5)


def test_an_items_own_answers_make_its_belief_and_not_its_label():
    """One item in the middle of class 0 is called one with all of class 1: its label by features goes by where it lies."""
    blobs = make_blobs(200, seed=0, n_clusters=2)
    X, y = blobs.X, blobs.y
    same = np.flatnonzero(y == 1)[:40]
    item = int(np.flatnonzero(y == 0)[0])
    rng = np.random.default_rng(0)
    pairs = draw_pairs(len(y), 400, rng)
    similar = y[pairs[:, 0]] == y[pairs[:, 1]]
    wrong = np.column_stack([np.full(len(same), item), same])
    kept = (pairs != item).all(axis=1)
    data = PairData.from_arrays(X, np.vstack([pairs[kept], wrong]), np.r_[similar[kept], np.ones(len(same), bool)])
    for own in (False, True):
        found = mixture(X.astype(np.float64), y, 2, data, own_shapes=own)
        labels = found.by_features.argmax(axis=1)
        assert metrics.acc(y, labels) > 0.97
        assert labels[item] == np.bincount(labels[y == 0]).argmax()
        believed = found.beliefs.argmax(axis=1)
        assert believed[item] == np.bincount(believed[y == 1]).argmax()


def test_a_mixture_copes_with_a_column_that_is_the_class_and_with_answers_that_contradict_it():
    X, y, data = stretched(1)
    named = np.hstack([X, np.eye(3)[y][:, :2]])
    assert metrics.acc(y, by_features(named, y, 3, data, own_shapes=True)) > 0.97
    against = PairData.from_arrays(X, np.column_stack([data.i, data.j]), y[data.i] != y[data.j])
    assert metrics.acc(y, by_features(X, y, 3, against, own_shapes=True)) > 0.97  # they do not turn it round


def test_items_without_a_label_get_one():
    X, y, data = stretched(2)
    labels = np.where(np.arange(len(y)) % 2 == 0, y, -1)
    assert metrics.acc(y, by_features(X, labels, 3, data, own_shapes=False)) > 0.97


def test_an_empty_cluster_and_as_many_columns_as_items_are_finite():
    X, y, data = stretched(0, n=40)
    rng = np.random.default_rng(0)
    for features in (X, rng.normal(size=(40, 39))):
        for own in (False, True):
            found = mixture(features, np.minimum(y, 1), 3, data, own_shapes=own)
            assert np.isfinite(found.by_features).all()
            np.testing.assert_allclose(found.beliefs.sum(axis=1), 1)


def test_log_densities_are_those_of_gaussians():
    """Up to a constant of each item: differences between clusters are those of log pi N(z; mean, covariance)."""
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(0)
    Z, R = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)), rng.dirichlet(np.ones(4), 50)
    for own in (False, True):
        shapes = Shapes.of(Z, np.ones(3), R, own)
        covariances = [shapes.factors[k if own else 0] @ shapes.factors[k if own else 0].T for k in range(4)]
        expected = np.column_stack(
            [
                multivariate_normal(mean, S).logpdf(Z) + size
                for mean, S, size in zip(shapes.means, covariances, shapes.log_size, strict=True)
            ]
        )
        found = shapes.log_joint(Z)
        np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-8)


def test_messages_are_expected_log_likelihoods():
    """Written out answer by answer, with annotators who come in no order and weights."""
    rng = np.random.default_rng(0)
    pairs = draw_pairs(12, 40, rng)
    names = rng.integers(3, size=40)
    data = PairData.from_arrays(rng.normal(size=(12, 2)), pairs, rng.random(40) < 0.4, names, rng.uniform(0.5, 2, 40))
    R = rng.dirichlet(np.ones(3), 12)
    answers = mixture(data.features, rng.integers(3, size=12), 3, data, own_shapes=False).answers
    expected = np.zeros((12, 3))
    for m in range(40):
        eta = answers.bias[data.annotator[m]] + answers.slope[data.annotator[m]] * answers.logits
        log_p = -np.log1p(np.exp(-eta)) if data.similar[m] else -np.log1p(np.exp(eta))
        expected[data.i[m]] += data.weight[m] * R[data.j[m]] @ log_p
        expected[data.j[m]] += data.weight[m] * R[data.i[m]] @ log_p
    np.testing.assert_allclose(Links.of(data, 12).messages(R, answers), expected, atol=1e-6)
