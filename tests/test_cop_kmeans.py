"""COP-KMeans keeps every answer or says which it cannot, and relaxed reports what it broke."""

import pickle

import numpy as np
import pytest
from helpers import overlapping, recount, truth_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcc import PairData, metrics
from pdcc.annotators import draw_pairs
from pdcc.baselines import COPKMeans, InfeasibleError
from pdcc.baselines.cop_kmeans import Groups, Sweep
from pdcc.baselines.kmeans import squared_distances
from pdcc.baselines.links import close


@given(
    seed=st.integers(0, 10_000), n_clusters=st.integers(2, 5), n_items=st.integers(6, 25), n_pairs=st.integers(4, 120)
)
@settings(max_examples=60, deadline=None)
def test_cop_keeps_every_answer_it_does_not_refuse(seed, n_clusters, n_items, n_pairs):
    """Features say nothing here, so answers are kept on purpose or not at all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_clusters, size=n_items)
    y[:2] = 0
    y[2] = 1
    pairs = np.concatenate([[[0, 1], [0, 2]], draw_pairs(n_items, n_pairs, rng)])
    X = rng.normal(size=(n_items, 2))
    est = COPKMeans(n_clusters, n_init=2, random_state=seed)
    refusal = None
    try:
        est.fit(X, pairs, truth_of(y, pairs))
    except InfeasibleError as error:
        refusal = str(error)
    if refusal is not None:
        assert "no contradiction" in refusal  # greedy: a dead end, never a claim that the answers disagree
        return
    assert recount(est.labels_, pairs, truth_of(y, pairs)) == {"must_link": 0, "cannot_link": 0}
    assert est.feasible_
    assert est.violations_ == {"must_link": 0, "cannot_link": 0}


def test_cop_hardly_ever_refuses_answers_that_can_be_kept():
    """Dense answers about 60 small problems, one run each. Without promotions 10 are refused, in random order 43."""
    refused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y = np.arange(30) % 5
        pairs = draw_pairs(30, 150, rng)
        try:
            COPKMeans(5, n_init=1, random_state=seed).fit(rng.normal(size=(30, 2)), pairs, truth_of(y, pairs))
        except InfeasibleError:
            refused += 1
    assert refused <= 1


def test_cop_says_which_answers_contradict_each_other(blobs):
    pairs = np.array([[7, 7], [0, 1], [1, 2], [4, 5], [0, 2], [5, 4], [0, 4]])
    similar = np.array([1, 1, 1, 1, 0, 0, 0])
    # Two of them; the pair of an item with itself was dropped, and does not count.
    with pytest.raises(InfeasibleError, match=r"^similar: expected .*found 2 .*row 3: items 0 and 2") as caught:
        COPKMeans(3, random_state=0).fit(blobs.X, pairs, similar)
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_cop_says_where_it_found_no_cluster(blobs):
    """Four items, all different, and three clusters."""
    pairs = np.array([[8, 9], [0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    similar = np.array([1, 0, 0, 0, 0, 0, 0])
    with pytest.raises(InfeasibleError, match=r"3 clusters.*no contradiction.*row [1-3]: items 0"):
        COPKMeans(3, random_state=0).fit(blobs.X, pairs, similar)
    relaxed = COPKMeans(3, on_infeasible="relax", random_state=0).fit(blobs.X, pairs, similar)
    assert relaxed.violations_ == {"must_link": 0, "cannot_link": 1}
    assert not relaxed.feasible_
    assert COPKMeans(4, random_state=0).fit(blobs.X, pairs, similar).feasible_


def test_cop_relaxed_is_strict_where_it_can_be(blobs):
    a = blobs.answers
    strict, relaxed = (
        COPKMeans(3, on_infeasible=how, random_state=0).fit(blobs.X, a.pairs, a.similar) for how in ("raise", "relax")
    )
    np.testing.assert_array_equal(strict.labels_, relaxed.labels_)
    assert relaxed.feasible_


def test_cop_relaxed_reports_what_it_broke_and_does_not_collapse(noisy_blobs):
    """Wrong "similar" answers chain nearly all items: kept as one component, they would make one cluster, ACC 1/3."""
    a = noisy_blobs.answers
    assert close(PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar)).size.max() > 100
    est = COPKMeans(3, on_infeasible="relax", random_state=0).fit(noisy_blobs.X, a.pairs, a.similar)
    assert est.violations_ == recount(est.labels_, a.pairs, a.similar)
    assert not est.feasible_
    assert 0 < sum(est.violations_.values()) < len(a.similar) / 3
    assert metrics.acc(noisy_blobs.y, est.labels_) > 0.8


def test_cop_settles_because_its_order_is_fixed():
    """The fit stops by itself, though from the same centroids another order assigns differently; so would reshuffling."""
    differ = 0
    for seed in range(5):
        world = overlapping(seed)
        est = COPKMeans(5, scale=None, n_init=1, max_iter=60, random_state=seed).fit(
            world.X, world.answers.pairs, world.answers.similar
        )
        assert est.n_iter_ < 60
        data = PairData.from_arrays(world.X, world.answers.pairs, world.answers.similar)
        groups = Groups.make(close(data), data)
        cost = groups.member @ squared_distances(world.X, est.cluster_centers_)
        linked = np.flatnonzero(np.diff(groups.links.indptr))
        other = Sweep(groups.links, np.random.default_rng(seed).permutation(linked))(cost, strict=False)
        differ += not np.array_equal(other[groups.of], est.labels_)
    assert differ >= 4
