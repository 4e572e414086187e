"""PCK-Means pays for every answer it breaks: an objective that falls, and links that pull."""

import numpy as np
import pytest
from helpers import overlapping, recount, truth_of

from pdcc import metrics
from pdcc.baselines import KMeans, PCKMeans


@pytest.mark.parametrize("weight", [0.0, 0.5, 5.0])
def test_pck_objective_never_rises(weight):
    steps = 0
    for seed in range(4):
        world = overlapping(seed, flip=0.1)
        for n_init in (1, 3):
            est = PCKMeans(5, weight=weight, n_init=n_init, random_state=seed)
            history = np.array(est.fit(world.X, world.answers.pairs, world.answers.similar).objective_history_)
            assert (np.diff(history) <= 1e-9 * history[:-1]).all()
            assert est.n_iter_ == len(history) < 100
            steps += len(history) - 1
    assert steps > 20


def test_pck_objective_is_distances_plus_broken_answers():
    world = overlapping(0, flip=0.1)
    a, X = world.answers, world.X.astype(np.float64)

    def inertia(est):
        means = np.array([X[est.labels_ == k].mean(axis=0) for k in range(5)])
        np.testing.assert_allclose(means, est.cluster_centers_)
        return ((X - means[est.labels_]) ** 2).sum()

    free, priced = (
        PCKMeans(5, scale=None, weight=w, random_state=0).fit(world.X, a.pairs, a.similar) for w in (0.0, 0.5)
    )
    unit = inertia(free) / free.objective_history_[-1]
    between = (((X - X.mean(axis=0)) ** 2).sum() - inertia(free)) / 300
    # Two K-means solutions of one problem: the unit is one's variance between clusters, ``between`` the other's.
    assert unit == pytest.approx(between, rel=0.05)
    assert priced.violations_ == recount(priced.labels_, a.pairs, a.similar)
    expected = inertia(priced) / unit + 0.5 * sum(priced.violations_.values())
    assert priced.objective_history_[-1] == pytest.approx(expected, rel=1e-9)


def test_pck_keeps_more_answers_the_more_they_weigh():
    world = overlapping(0)
    kept = [
        sum(
            PCKMeans(5, weight=w, random_state=0)
            .fit(world.X, world.answers.pairs, world.answers.similar)
            .violations_.values()
        )
        for w in (0.0, 0.5, 5.0)
    ]
    assert kept[0] > 2 * kept[1] > 4 * kept[2]


def test_pck_fit_pulls_strays_into_every_cluster():
    """Each of three tight clusters has strays half way to the next, nearer to it, and must-links home."""
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 8.7]])
    core = np.repeat(np.arange(3), 40)
    stray = np.repeat(np.arange(3), 4)
    X = np.concatenate(
        [corners[core] + 0.3 * rng.normal(size=(120, 2)), 0.45 * corners[stray] + 0.55 * corners[(stray + 1) % 3]]
    )
    y = np.concatenate([core, stray])
    pairs = [[120 + s, 40 * stray[s] + 3 * s + m] for s in range(12) for m in range(3)] + [[0, 50], [50, 90], [0, 90]]
    pairs = np.array(pairs)
    assert truth_of(y, pairs)[:36].all()
    for seed in range(3):
        est = PCKMeans(3, random_state=seed).fit(X, pairs, truth_of(y, pairs))
        assert metrics.acc(y, est.labels_) == 1.0
        assert est.violations_ == {"must_link": 0, "cannot_link": 0}
        assert metrics.acc(y, KMeans(3, random_state=seed).fit(X, pairs, truth_of(y, pairs)).labels_) < 1.0
