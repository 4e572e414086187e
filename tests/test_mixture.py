"""The mixture that features and answers share: shapes learned from few answers, labels that go by features."""

import numpy as np
from helpers import make_blobs

from pdcc import PairData, metrics
from pdcc.annotators import draw_pairs
from pdcc.auto.initialise import Partitioner, make_start
from pdcc.auto.mixture import mixture
from pdcc.data.scaling import Scaler
from pdcc.rows import blocks_of


def stretched(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, PairData]:
    """Three long, thin classes side by side, as many answers as items, one of ten wrong: K-means cuts them across."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = np.column_stack([2.5 * y + 0.3 * rng.normal(size=n), 8 * rng.normal(size=n)]) @ rng.normal(size=(2, 2))
    pairs = draw_pairs(n, n, rng)
    similar = (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(len(pairs)) < 0.1)
    return X, y, PairData.from_arrays(X, pairs, similar)


def test_a_mixture_learns_the_shape_of_clusters_from_few_answers():
    for seed in range(3):
        X, y, data = stretched(seed)
        way = Partitioner(Scaler.fit(X, "standard")(X), 3, seed)
        assert metrics.acc(y, way.make("plain", data)) < 0.8
        start = make_start(way, "pairs", data)
        assert metrics.acc(y, start.labels) > 0.97
        assert start.name.startswith("mixture")
        # Other coordinates, the same clusters: the metric is learned.
        turned = X @ np.array([[3.0, 1.0], [0.5, 2.0]])
        other = mixture(turned, y, 3, data, own_shapes=False, rng=np.random.default_rng(0))
        np.testing.assert_array_equal(other, mixture(X, y, 3, data, own_shapes=False, rng=np.random.default_rng(0)))


def test_an_items_own_answers_do_not_make_its_label():
    """One item in the middle of class 0 is called one with all of class 1: its label goes by where it lies."""
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
        found = mixture(X.astype(np.float64), y, 2, data, own_shapes=own, rng=rng)
        assert metrics.acc(y, found) > 0.97
        assert found[item] == np.bincount(found[y == 0]).argmax()


def test_a_mixture_of_many_items_is_fitted_to_some(monkeypatch):
    X, y, data = stretched(0)
    whole = mixture(X, y, 3, data, own_shapes=False, rng=np.random.default_rng(0))
    monkeypatch.setattr("pdcc.auto.mixture.TRIAL_ITEMS", 200)
    some = mixture(X, y, 3, data, own_shapes=False, rng=np.random.default_rng(0))
    assert len(some) == len(y)
    assert metrics.acc(whole, some) > 0.97


def test_a_mixture_copes_with_a_column_that_is_the_class_and_with_answers_that_say_nothing():
    X, y, data = stretched(1)
    named = np.hstack([X, np.eye(3)[y][:, :2]])
    assert metrics.acc(y, mixture(named, y, 3, data, own_shapes=True, rng=np.random.default_rng(0))) > 0.97
    against = PairData.from_arrays(X, np.column_stack([data.i, data.j]), y[data.i] != y[data.j])
    found = mixture(X, y, 3, against, own_shapes=True, rng=np.random.default_rng(0))
    assert metrics.acc(y, found) > 0.97  # what the features say; answers that contradict them do not turn it round


def test_many_clusters_are_computed_some_items_at_a_time(monkeypatch):
    X, y, data = stretched(2)
    whole = mixture(X, y, 3, data, own_shapes=True, rng=np.random.default_rng(0))
    sizes = []
    monkeypatch.setattr("pdcc.auto.mixture.NUMBERS", 7 * 3 * 2)
    blocks = blocks_of
    monkeypatch.setattr("pdcc.auto.mixture.blocks_of", lambda Z, size: sizes.append(size) or blocks(Z, size))
    np.testing.assert_array_equal(mixture(X, y, 3, data, own_shapes=True, rng=np.random.default_rng(0)), whole)
    assert 7 in sizes
