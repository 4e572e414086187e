"""The rivals: they cluster, keep the answers they promise to keep, and refuse what VolMaxDCC refuses."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import REFUSED, Blobs, follows_scikit_learn, make_blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from pdcc import PairData, PairDataError, VolMaxDCC, datasets, metrics
from pdcc.annotators import Answers, draw_pairs
from pdcc.baselines import COPKMeans, InfeasibleError, KMeans, PCKMeans, base
from pdcc.baselines.cop_kmeans import Groups, Sweep
from pdcc.partition.kmeans import centroids, squared_distances
from pdcc.partition.links import broken, close, signed_links
from pdcc.partition.pck_means import neighbourhood_seeds, settle

RIVALS = [KMeans, COPKMeans, PCKMeans]
RELAXED = [KMeans(3, random_state=0), COPKMeans(3, on_infeasible="relax", random_state=0), PCKMeans(3, random_state=0)]


def truth_of(classes, pairs):
    return classes[pairs[:, 0]] == classes[pairs[:, 1]]


def recount(labels, pairs, similar):
    """Broken answers, one by one."""
    found = {"must_link": 0, "cannot_link": 0}
    for (i, j), same in zip(pairs.tolist(), similar.tolist(), strict=True):
        if same != (labels[i] == labels[j]):
            found["must_link" if same else "cannot_link"] += 1
    return found


def overlapping(seed: int, flip: float = 0.0) -> Blobs:
    """Five clusters that K-means cannot tell apart by features alone, and as many pairs as items."""
    rng = np.random.default_rng(seed)
    y = np.arange(300) % 5
    X = (1.2 * rng.normal(size=(5, 4))[y] + rng.normal(size=(300, 4))).astype(np.float32)
    pairs = draw_pairs(300, 300, rng)
    return Blobs(X, y, Answers(pairs, truth_of(y, pairs) ^ (rng.random(300) < flip), flip))


@pytest.mark.parametrize("rival", RIVALS)
def test_recovers_blobs_seen_and_unseen(rival, blobs):
    unseen = make_blobs(n=90)
    est = rival(3, random_state=0).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    assert metrics.acc(blobs.y, est.labels_) >= 0.95
    assert metrics.acc(unseen.y, est.predict(unseen.X)) >= 0.95
    assert est.cluster_centers_.shape == (3, 4)
    nearest = ((unseen.X[:, None] - est.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(est.predict(unseen.X), nearest)


def test_clean_answers_help_on_digits():
    """Three seeds, M = 2 N. COP-KMeans gains more than a standard error over K-means, PCK-Means at least loses no more.

    Over ten seeds the gains are .098 +- .012 and .026 +- .009.
    """
    gains = []
    for seed in range(3):
        data = datasets.digits(seed=seed)
        pairs = draw_pairs(len(data.X), 2600, np.random.default_rng(seed))
        similar = truth_of(data.y, pairs)
        scores = [
            metrics.acc(data.y, est.fit(data.X, pairs, similar).labels_)
            for est in (
                KMeans(10, random_state=seed),
                COPKMeans(10, n_init=5, random_state=seed),
                PCKMeans(10, n_init=5, random_state=seed),
            )
        ]
        gains.append([scores[1] - scores[0], scores[2] - scores[0]])
    mean, error = np.mean(gains, axis=0), np.std(gains, axis=0, ddof=1) / np.sqrt(3)
    assert mean[0] > error[0], (mean, error)
    assert mean[1] >= -error[1], (mean, error)


# --- the answers as links ---------------------------------------------------------------------------------------------


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


# --- COP-KMeans -------------------------------------------------------------------------------------------------------


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
    with pytest.raises(InfeasibleError) as caught:
        COPKMeans(3, random_state=0).fit(blobs.X, pairs, similar)
    said = str(caught.value)
    assert 'found 2 "different" answer(s)' in said
    assert "first at row 3: items 0 and 2, not counting 1 pair(s) of an item with itself" in said
    assert 'on_infeasible="relax"' in said
    assert "VolMaxDCC" in said
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == said


def test_cop_says_where_it_found_no_cluster(blobs):
    """Four items, all different, and three clusters."""
    pairs = np.array([[8, 9], [0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    similar = np.array([1, 0, 0, 0, 0, 0, 0])
    with pytest.raises(
        InfeasibleError, match=r"assignment to 3 clusters.*no contradiction.*first at row [1-3]: items 0"
    ):
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
        est = COPKMeans(5, n_init=1, max_iter=60, random_state=seed).fit(
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


def test_empty_clusters_go_to_the_farthest_items():
    x = np.array([[0.0], [1.0], [2.0], [9.0], [20.0], [22.0]])
    np.testing.assert_array_equal(centroids(x, np.array([0, 0, 0, 0, 2, 2]), 4).ravel(), [3.0, 9.0, 21.0, 0.0])


@pytest.mark.parametrize("est", RELAXED, ids=lambda est: type(est).__name__)
def test_fewer_distinct_items_than_clusters(est):
    X = np.repeat([[0.0], [1.0]], 6, axis=0)
    pairs, similar = np.array([[0, 1], [0, 7], [2, 3], [4, 9]]), np.array([1, 0, 1, 0])
    for features in (X, np.zeros_like(X)):
        labels = est.fit(features, pairs, similar).labels_
        assert set(labels.tolist()) <= {0, 1, 2}
        assert np.isfinite(est.cluster_centers_).all()


# --- PCK-Means --------------------------------------------------------------------------------------------------------


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

    free, priced = (PCKMeans(5, weight=w, random_state=0).fit(world.X, a.pairs, a.similar) for w in (0.0, 0.5))
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


def test_more_runs_never_end_higher():
    world = overlapping(1, flip=0.1)
    rivals = [
        (COPKMeans(5, on_infeasible="relax", random_state=0), lambda e: (sum(e.violations_.values()), e.inertia_)),
        (PCKMeans(5, random_state=0), lambda e: e.objective_history_[-1]),
    ]
    for est, end in rivals:
        fits = [
            clone(est).set_params(n_init=n).fit(world.X, world.answers.pairs, world.answers.similar) for n in (1, 2, 8)
        ]
        ends = [end(fitted) for fitted in fits]
        assert ends[0] >= ends[1] >= ends[2]
        assert ends[0] > ends[2]


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


# --- one contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("est", RELAXED, ids=lambda est: type(est).__name__)
def test_a_seed_fixes_every_bit(est):
    est = clone(est).set_params(n_init=1)
    world = overlapping(0, flip=0.3)
    X, a = world.X, world.answers
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - that the global stream is left alone is what is tested
    runs = [clone(est).fit(X, a.pairs, a.similar) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].labels_, runs[1].labels_)
    np.testing.assert_array_equal(runs[0].cluster_centers_, runs[1].cluster_centers_)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    turned = clone(est).fit(X, a.pairs[:, ::-1], a.similar)
    np.testing.assert_array_equal(turned.labels_, runs[0].labels_)


def test_seeds_matter():
    world = overlapping(0, flip=0.1)
    for est in (KMeans(5, n_init=1), COPKMeans(5, n_init=1, on_infeasible="relax"), PCKMeans(5, n_init=1)):
        found = [clone(est).set_params(random_state=s) for s in range(4)]
        labels = {e.fit(world.X, world.answers.pairs, world.answers.similar).labels_.tobytes() for e in found}
        assert len(labels) > 1


def useless_columns() -> Blobs:
    """Two columns of noise in units a thousand times larger: only standard scaling shows the clusters."""
    blobs = make_blobs(n=200, n_pairs=800)
    noise = 1e4 * np.random.default_rng(0).normal(size=(200, 2))
    return Blobs(np.hstack([blobs.X, noise]), blobs.y, blobs.answers)


@pytest.mark.parametrize("est", RELAXED, ids=lambda est: type(est).__name__)
def test_scale_auto_is_chosen_by_the_answers(est):
    world = useless_columns()
    a = world.answers
    auto = clone(est).set_params(scale="auto").fit(world.X, a.pairs, a.similar)
    assert auto.fitted_.scaler.kind == "standard"
    assert metrics.acc(world.y, auto.labels_) > 0.95
    assert metrics.acc(world.y, auto.predict(world.X)) > 0.95
    assert metrics.acc(world.y, clone(est).fit(world.X, a.pairs, a.similar).predict(world.X)) < 0.6


@pytest.mark.parametrize("est", RELAXED, ids=lambda est: type(est).__name__)
@pytest.mark.parametrize("init", ["kmeans", "pairs"])
def test_a_given_start_is_where_they_set_out_from(est, init, blobs, monkeypatch):
    """The start is replaced by a partition with the clusters numbered backwards: the fit keeps those numbers."""
    real, asked = base.make_start, []

    def backwards(*args, **options):
        asked.append(options["init"])
        return replace(real(*args, **options), labels=2 - blobs.y)

    monkeypatch.setattr(base, "make_start", backwards)
    fitted = clone(est).set_params(init=init).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    assert asked == [init]
    assert (fitted.labels_ == 2 - blobs.y).mean() > 0.95


BAD_DATA = [
    lambda X, p, s: (X[:, 0], p, s),
    lambda X, p, s: (np.where(np.arange(len(X))[:, None] == 3, np.nan, X), p, s),
    lambda X, p, s: (X, p + 150, s),
    lambda X, p, s: (X, p.astype(float), s),
    lambda X, p, s: (X, p[:, :1], s),
    lambda X, p, s: (X, p[:-1], s),
    lambda X, p, s: (X, p, np.ones_like(s)),
    lambda X, p, s: (X, p, s * 2),
    lambda X, p, s: (X[:2], p[:2] * 0 + [0, 1], s[:2]),
]


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("spoil", BAD_DATA)
def test_bad_data_is_refused_in_the_words_of_volmaxdcc(rival, spoil, blobs):
    bad = spoil(blobs.X, blobs.answers.pairs, blobs.answers.similar.astype(int))
    with pytest.raises(PairDataError) as ours:
        VolMaxDCC(3, progress=False).fit(*bad)
    with pytest.raises(PairDataError, match=re.escape(str(ours.value))):
        rival(3).fit(*bad)


BAD_PARAMS = [
    (KMeans, {"n_init": 0}, ValueError), (KMeans, {"n_init": 2.5}, TypeError),
    (COPKMeans, {"n_init": 0}, ValueError), (COPKMeans, {"max_iter": True}, TypeError), (COPKMeans, {"on_infeasible": "ignore"}, ValueError),
    (PCKMeans, {"weight": -1.0}, ValueError), (PCKMeans, {"weight": "auto"}, TypeError), (PCKMeans, {"max_iter": 0}, ValueError),
    (PCKMeans, {"n_init": None}, TypeError),
    *[(rival, change, ValueError) for rival in RIVALS for change in ({"scale": "row"}, {"init": "random"}, {"random_state": -1}, {"n_clusters": 1})],
]  # fmt: skip


@pytest.mark.parametrize(("rival", "change", "error"), BAD_PARAMS)
def test_bad_parameters_are_refused_in_fit(rival, change, error, blobs):
    with pytest.raises(error, match=rf"^{next(iter(change))}: expected"):
        rival(**({"n_clusters": 3} | change)).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)


@pytest.mark.parametrize("est", RELAXED, ids=lambda est: type(est).__name__)
def test_clone_pickle_and_new_items(est, noisy_blobs):
    a = noisy_blobs.answers
    with pytest.raises(NotFittedError):
        clone(est).predict(noisy_blobs.X)
    fitted = clone(est).set_params(scale="standard").fit(noisy_blobs.X, a.pairs, a.similar)
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "labels_")
    unseen = make_blobs(n=30, seed=1).X
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(unseen), fitted.predict(unseen))
    with pytest.raises(PairDataError, match="expecting 4 features"):
        fitted.predict(unseen[:, :2])


class FromLabels:
    """An adapter for scikit-learn's checks, whose ``fit(X, y)`` knows no pairs: neighbours in X make them up."""

    def fit(self, X, y=None):
        n = max(np.asarray(X).shape[0] if np.asarray(X).ndim else 0, 1)
        i = np.arange(n)
        pairs = np.concatenate([np.column_stack([i, (i + 1) % n]), np.column_stack([i, (i + 2) % n])])
        return super().fit(X, pairs, np.arange(2 * n) < n)

    def fit_predict(self, X, y=None):
        return self.fit(X, y).labels_


class FromLabelsKMeans(FromLabels, KMeans):
    pass


class FromLabelsCOPKMeans(FromLabels, COPKMeans):
    pass


class FromLabelsPCKMeans(FromLabels, PCKMeans):
    pass


BELIEVES = {"check_clustering": "the made-up answers are wrong, and COP-KMeans believes answers, not features"}


@pytest.mark.parametrize(
    ("est", "expected"),
    [
        (FromLabelsKMeans(2, random_state=0), REFUSED),
        (FromLabelsCOPKMeans(2, on_infeasible="relax", n_init=1, random_state=0), REFUSED | BELIEVES),
        (FromLabelsPCKMeans(2, n_init=1, random_state=0), REFUSED),
    ],
    ids=["KMeans", "COPKMeans", "PCKMeans"],
)
def test_scikit_learn_conventions(est, expected):
    follows_scikit_learn(est, expected)
