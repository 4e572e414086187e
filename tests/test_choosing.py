"""The start and the automatic choices: made from answers alone, and for the reasons given."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_blobs
from sklearn.metrics import adjusted_rand_score

from pdcc import PairData, VolMaxDCC, metrics
from pdcc.annotators import answer_by_labels, answer_through, draw_pairs, worker_pairs
from pdcc.auto.calibration import AUTO_PARTITION_WEIGHT, AUTO_VOLUME
from pdcc.auto.initialise import Partitioner, answer_counts, answer_nll, evidence, make_start
from pdcc.auto.rules import choose, specifications, standard_error, with_free_b
from pdcc.auto.signals import Neighbourhood, transitive
from pdcc.data.scaling import SCALES, Scaler
from pdcc.data.splits import hold_out, split
from pdcc.inference import FitStatus, fit
from pdcc.partition.kmeans import kmeans
from pdcc.training import EPOCHS, FEWEST_STEPS, LONGEST, Specification


def hidden_direction(seed: int = 0, flip: float = 0.1) -> tuple[np.ndarray, np.ndarray, PairData]:
    """Classes differ in three weak features, beside two strong ones that mean nothing: K-means alone must fail."""
    rng = np.random.default_rng(seed)
    y = np.arange(600) % 3
    X = np.hstack([2.0 * np.eye(3)[y] + 0.5 * rng.normal(size=(600, 3)), rng.uniform(-6, 6, size=(600, 2))])
    A = np.full((3, 3), flip / 3) + (1 - flip) * np.eye(3)
    a = answer_through(np.eye(3)[y], draw_pairs(600, 3000, rng), A, rng)
    return X, y, PairData.from_arrays(X, a.pairs, a.similar)


def test_answers_guide_the_start_where_kmeans_cannot_see():
    for seed in range(3):
        X, y, data = hidden_direction(seed)
        plain = kmeans(X, 3, tries=10, seed=seed)
        start = make_start(data.features, 3, data, scales=(None,), init="pairs", seed=seed)
        assert metrics.acc(y, plain) < 0.6
        assert metrics.acc(y, start.labels) > 0.9
        assert "guided" in start.name
        assert not start.as_annotator


def crowd(seed: int = 4) -> tuple[np.ndarray, np.ndarray, PairData]:
    """Clear blobs, and six workers who each label 60 items with a third of the labels wrong."""
    blobs = make_blobs(n=300, n_pairs=10, seed=seed)
    rng = np.random.default_rng(seed)
    given = np.full((300, 6), -1)
    for worker in range(6):
        items = rng.choice(300, 60, replace=False)
        given[items, worker] = np.where(rng.random(60) < 0.33, rng.integers(3, size=60), blobs.y[items])
    a = worker_pairs(blobs.y, given, 3000, rng)
    return blobs.X, blobs.y, PairData.from_arrays(blobs.X, a.pairs, a.similar, a.annotators)


def test_answers_read_off_labels_are_told_from_answers_that_err_one_by_one():
    assert transitive(crowd()[2])
    rng = np.random.default_rng(0)
    A = 0.2 / 3 + 0.8 * np.eye(3)
    dense = answer_through(np.eye(3)[np.arange(60) % 3], draw_pairs(60, 1000, rng), A, rng)
    assert transitive(PairData.from_arrays(np.zeros((60, 1)), dense.pairs, dense.similar)) is False
    sparse = make_blobs(n=300, n_pairs=300).answers  # consistent, but hardly a triangle to show it
    assert transitive(PairData.from_arrays(np.zeros((300, 1)), sparse.pairs, sparse.similar)) is None


def test_people_who_contradict_each_other_are_not_all_wrong_together():
    data = crowd()[2]
    assert transitive(data, pooled=True) is False
    start = make_start(data.features, 3, data, scales=(None,), init="pairs", seed=0)
    assert start.as_annotator  # each of them is consistent
    assert start.stable is None
    alone = data.subset(data.annotator == 0)
    assert transitive(alone, pooled=True)


def test_a_stable_kmeans_is_kept_when_answers_do_not_contradict_it():
    _X, y, data = crowd()
    start = make_start(data.features, 3, data, scales=(None,), init="pairs", seed=0)
    assert "plain K-means" in start.name
    assert "stable partition" in start.reason
    assert start.as_annotator
    assert metrics.acc(y, start.labels) > 0.97


def test_scale_is_chosen_by_the_answers():
    """Two useless columns in units a thousand times larger: only standard scaling lets K-means see the clusters."""
    blobs = make_blobs(n=300, n_pairs=2000)
    noise = 1e4 * np.random.default_rng(0).normal(size=(300, 2))
    data = PairData.from_arrays(np.hstack([blobs.X, noise]), blobs.answers.pairs, blobs.answers.similar)
    start = make_start(data.features, 3, data, scales=SCALES, init="kmeans", seed=0)
    assert start.scaler.kind == "standard"
    assert len(start.table) == 3


def test_scaler_standard_uses_the_seen_items():
    X = np.array([[1.0, 5.0, -2.0], [3.0, 5.0, 2.0]], np.float32)
    new = np.array([[5.0, 5.0, 0.0]], np.float32)
    np.testing.assert_allclose(Scaler.fit(X, "standard")(new), [[3.0, 0.0, 0.0]])
    np.testing.assert_allclose(np.linalg.norm(Scaler.fit(X, "unit")(new), axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(Scaler.fit(X, None)(new), new)
    assert np.isfinite(Scaler.fit(X, "unit")(np.zeros((1, 3), np.float32))).all()


def test_answer_counts_and_evidence():
    data = PairData.from_arrays(np.eye(4), [[0, 1], [0, 2], [2, 3], [1, 0], [3, 1]], [1, 0, 1, 0, 0])
    counts = answer_counts(np.array([0, 0, 1, 1]), 2, data)
    np.testing.assert_array_equal(counts[0], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(counts[1], [[1, 2], [2, 0]])
    # Beta(1, 1) marginals: within 0: B(2, 2) = 1/6; between: B(1, 3) = 1/3; within 1: B(2, 1) = 1/2.
    assert evidence(np.array([0, 0, 1, 1]), 2, data) == pytest.approx(np.log(1 / 6) + np.log(1 / 3) + np.log(1 / 2))


def test_the_true_partition_predicts_held_out_answers_best():
    _X, y, data = hidden_direction(7)
    found = split(data, 0.3, 0)
    train, test = found.train(data), found.test(data)
    truth = answer_nll(y, train, test).mean()
    shuffled = answer_nll(np.random.default_rng(0).permutation(y), train, test).mean()
    merged = answer_nll(np.minimum(y, 1), train, test).mean()
    assert truth < merged < shuffled


def test_partitions_do_not_depend_on_thread_timing():
    _X, _, data = hidden_direction(1)
    way = [Partitioner(data.features, None, 3, 0) for _ in range(2)]
    assert adjusted_rand_score(way[0].guided(data, tries=3), way[1].guided(data, tries=3)) == 1.0
    assert way[0].stability() == way[1].stability()


def test_what_is_compared():
    def found(confusion, volume, *, annotators=False, enough=True, weight=0.0):
        listed = specifications(confusion, volume, weight, annotators=annotators, enough=enough)
        assert all(c.partition_weight == weight for c in listed)
        return [(c.confusion, c.volume) for c in listed]

    free, none = ("sigmoid", AUTO_VOLUME), ("none", 0.0)
    assert found("auto", "auto") == [free, none]
    assert found("auto", "auto", annotators=True, weight=1.0) == [free, ("per-annotator", AUTO_VOLUME), none]
    assert found("auto", 0.5) == [("sigmoid", 0.5), ("none", 0.5)]
    assert found("sigmoid", "auto", annotators=True) == [free, ("sigmoid", 0.0)]
    assert found("none", 0.0, annotators=True) == [none]
    assert found("per-annotator", 0.1) == [("stochastic", 0.1)]
    # Too few held-out answers to choose by: one specification, and no more freedom than columns that sum to 1.
    assert found("auto", "auto", enough=False) == [("stochastic", AUTO_VOLUME)]
    assert found("auto", 0.5, annotators=True, enough=False) == [("per-annotator", 0.5)]
    assert found("sigmoid", "auto", enough=False) == [free]


def test_choose_prefers_volume_within_one_standard_error():
    rng = np.random.default_rng(0)
    base = rng.exponential(0.3, 400)
    step = rng.normal(0, 0.1, 400)
    step -= step.mean()  # a difference of mean 0 and standard error .005
    options = [Specification("stochastic", 1e-2, 0.0), Specification("stochastic", 0.0, 0.0)]
    assert choose(options, [base + step + 0.004, base], None).index == 0
    behind = choose(options, [base + step + 0.006, base], None)
    assert behind.index == 1
    assert str(options[1]) in behind.reason
    assert [row["setting"] for row in behind.table] == [str(o) for o in options]
    assert [row["behind_best"] for row in behind.table] == pytest.approx([0.006, 0.0])
    # The same numbers from two annotators: 400 answers are then only two, and the standard error is larger.
    groups = (step > 0).astype(np.int64)
    assert choose(options, [base + step + 0.006, base], groups).index == 0
    # Whether there is a confusion is no matter of preference: the better prediction decides, however close.
    forms = [Specification("sigmoid", 1e-2, 0.0), Specification("none", 0.0, 0.0)]
    assert choose(forms, [base + step + 0.001, base], None).index == 1
    assert choose(forms, [base + step - 0.001, base], None).index == 0


def test_standard_error_of_groups():
    d = np.array([1.0, 1.0, -1.0, -1.0])
    assert standard_error(d, None) == pytest.approx(0.5)
    # Two groups: sqrt(8) / 4, times sqrt(2 / 1) for there being only two.
    assert standard_error(d, np.array([0, 0, 1, 1])) == pytest.approx(np.sqrt(8) / 4 * np.sqrt(2))
    assert standard_error(d, np.zeros(4, np.int64)) == pytest.approx(0.5)  # one person: as if answers were independent
    assert standard_error(d, np.array([0, 1, 0, 1])) == pytest.approx(0.5)  # groups that cancel do not lower it


def test_held_out_answers_do_not_reach_start_or_training(monkeypatch):
    """Turn every held-out answer round: start and training losses stay the same to the bit, held-out losses do not."""
    X, _, data = hidden_direction()
    pairs = np.column_stack([data.i, data.j])
    setting = {
        "confusion": "none",
        "volume": 0.0,
        "scale": None,
        "hidden": (8,),
        "epochs": 3,
        "patience": None,
        "random_state": 0,
    }
    straight = VolMaxDCC(3, **setting).fit(X, pairs, data.similar)
    held = hold_out(data, 0.1, 0)
    assert straight.report_.n_held_out == held.held.sum() == 300
    # The same answers stay held out, though which ones are depends on the answers.
    monkeypatch.setattr("pdcc.auto.search.hold_out", lambda *_: held)
    around = VolMaxDCC(3, **setting).fit(X, pairs, data.similar ^ held.held)
    assert straight.report_.start == around.report_.start
    assert [h["loss"] for h in straight.history_] == [h["loss"] for h in around.history_]
    assert straight.history_[0]["held_out"] != around.history_[0]["held_out"]


def test_partition_weight_follows_the_start():
    for (X, _, data), weight in ((crowd(), AUTO_PARTITION_WEIGHT), (hidden_direction(), 0.0)):
        pairs = np.column_stack([data.i, data.j])
        est = VolMaxDCC(3, random_state=0, epochs=1, hidden=(8,)).fit(X, pairs, data.similar, data.annotator)
        assert est.report_.chosen.partition_weight == weight


@pytest.mark.slow
def test_confusion_and_volume_pay_under_structured_noise():
    """Three blobs, one of which the annotator takes for another half of the time: with A they come apart again.

    Paired over three seeds; removing the confusion (A = I) must lose, on average, by more than two standard errors.
    """
    gains = []
    for seed in range(3):
        blobs = make_blobs(n=300, n_pairs=10, seed=10 + seed)
        rng = np.random.default_rng(seed)
        A = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0]])
        a = answer_through(np.eye(3)[blobs.y], draw_pairs(300, 3000, rng), A, rng)
        common = {
            "init": "random",
            "scale": None,
            "hidden": (32,),
            "epochs": 25,
            "random_state": seed,
            "dropout": 0.0,
            "lr": 3e-3,
            "partition_weight": 0.0,
        }
        with_a = VolMaxDCC(3, confusion="stochastic", volume=1e-2, **common).fit(blobs.X, a.pairs, a.similar)
        without = VolMaxDCC(3, confusion="none", volume=0.0, **common).fit(blobs.X, a.pairs, a.similar)
        truth = np.eye(3)[blobs.y]
        gains.append(
            metrics.membership_mse(truth, without.memberships_) - metrics.membership_mse(truth, with_a.memberships_)
        )
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / np.sqrt(3)
    assert np.mean(gains) > 0.02


def test_annotator_answers_by_labels_are_consistent():
    y = np.array([0, 0, 1, 1])
    a = answer_by_labels(y, np.array([0, 0, 0, 1]), np.array([[0, 1], [0, 2], [2, 3]]))
    assert a.similar.tolist() == [True, True, False]
    assert a.flip_rate == pytest.approx(2 / 3)


def test_few_answers_still_make_enough_steps():
    auto = VolMaxDCC(3).config(0)
    assert auto.lengths(10_000) == (EPOCHS, 8)
    epochs, patience = auto.lengths(1500)
    assert FEWEST_STEPS <= epochs * 12 < FEWEST_STEPS + EPOCHS * 12  # twelve batches of 128 per epoch
    assert patience == 8 * epochs / EPOCHS
    assert auto.lengths(10)[0] == LONGEST * EPOCHS
    assert replace(auto, patience=None).lengths(10)[1] is None
    assert replace(auto, epochs=7).lengths(10) == (7, 8)


def test_neighbours_tell_labels_that_fall_behind_a_partition():
    """Two groups on a line; labels drawn at random inside a group part neighbours, those of the groups do not."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 100)
    X = (10.0 * group + rng.random(200))[:, None].astype(np.float32)
    near = Neighbourhood(X)
    np.testing.assert_array_equal(near.agreement(group), 1.0)
    assert near.falls_behind(1 - group, group) is None
    mixed = rng.integers(2, size=200)
    behind = near.falls_behind(mixed, group)
    assert behind is not None
    assert f"{near.agreement(mixed).mean():.3f}, 1.000" in behind
    assert near.falls_behind(group, rng.integers(2, size=200)) is None
    assert Neighbourhood(X[:3]).index.shape == (3, 2)


def test_neighbours_of_a_sample_are_not_the_items_themselves(monkeypatch):
    monkeypatch.setattr("pdcc.auto.signals.MOST_NEIGHBOURHOODS", 30)
    X = np.repeat(np.arange(20.0), 5)[:, None].astype(np.float32)  # each item coincides with four others
    near = Neighbourhood(X)
    assert near.index.shape == (30, 5)
    assert not (near.index == near.rows[:, None]).any()
    np.testing.assert_allclose(near.agreement(np.arange(100) // 5), 0.8)  # four of five neighbours


def test_rounding_is_no_direction():
    """Columns that repeat others leave components of rounding, which whitening would make as large as the rest."""
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert Partitioner(np.hstack([X, X, X]), None, 3, 0).components.shape == (200, 4)
    nothing = Partitioner(np.ones((20, 3), np.float32), None, 2, 0)
    data = PairData.from_arrays(np.ones((20, 3)), [[0, 1], [2, 3]], [1, 0])
    assert np.isfinite(nothing.embed(data)).all()


@pytest.mark.slow
def test_a_wrong_labeller_is_not_followed_away_from_stable_clusters():
    """Answers read off one wrong labelling: held-out answers applaud it, the items' neighbours do not."""
    blobs = make_blobs(n=300, n_pairs=1, seed=4)
    rng = np.random.default_rng(0)
    pairs = draw_pairs(300, 600, rng)
    wrong = (blobs.y + (blobs.X[:, 0] > np.median(blobs.X[:, 0]))) % 3  # cuts through every cluster
    similar = wrong[pairs[:, 0]] == wrong[pairs[:, 1]]
    setting = {"hidden": (32,), "dropout": 0.0, "scale": None, "confusion": "none", "volume": 0.0, "random_state": 0}
    led = VolMaxDCC(3, partition_weight=0.0, **setting).fit(blobs.X, pairs, similar)
    held = VolMaxDCC(3, **setting).fit(blobs.X, pairs, similar)
    assert held.report_.chosen.partition_weight > 0
    assert "k-NN label agreement" in held.report_.reason
    assert "k-NN label agreement" not in led.report_.reason
    assert metrics.acc(blobs.y, held.labels_) > metrics.acc(blobs.y, led.labels_) + 0.05
    # Left to us, what the answers say against the clusters goes into the free B.
    auto = VolMaxDCC(3, **setting | {"confusion": "auto", "volume": "auto"}).fit(blobs.X, pairs, similar)
    assert auto.report_.chosen.partition_weight > 0
    assert auto.report_.chosen.confusion == "sigmoid"
    assert auto.report_.chosen.volume == AUTO_VOLUME
    assert str(auto.report_.chosen) in auto.report_.reason
    assert metrics.acc(blobs.y, auto.labels_) > metrics.acc(blobs.y, led.labels_) + 0.05


def test_holding_on_keeps_a_confusion_that_answers_chose():
    chosen = Specification("per-annotator", 3e-3, 0.0)
    assert with_free_b(chosen, "auto", "auto") == chosen
    assert with_free_b(Specification("none", 0.0, 0.0), "auto", "auto") == Specification("sigmoid", AUTO_VOLUME, 0.0)
    assert with_free_b(Specification("none", 0.0, 0.0), "none", "auto").confusion == "none"


def test_a_diverging_attempt_to_hold_on_is_left(monkeypatch):
    blobs = make_blobs(n=300, n_pairs=1, seed=4)
    pairs = draw_pairs(300, 600, np.random.default_rng(0))
    wrong = (blobs.y + (blobs.X[:, 0] > np.median(blobs.X[:, 0]))) % 3
    similar = wrong[pairs[:, 0]] == wrong[pairs[:, 1]]
    attempts = []

    def fit_or_diverge(model, *args, **kwargs):
        result = fit(model, *args, **kwargs)
        attempts.append(model.partition_weight)
        return replace(result, status=FitStatus.DIVERGED) if model.partition_weight > 0 else result

    monkeypatch.setattr("pdcc.training.fit", fit_or_diverge)
    setting = {
        "hidden": (32,),
        "dropout": 0.0,
        "scale": None,
        "confusion": "none",
        "volume": 0.0,
        "n_init": 2,
        "epochs": 30,
    }
    est = VolMaxDCC(3, random_state=0, **setting).fit(blobs.X, pairs, similar)
    assert attempts == [0.0, 0.0, 0.3]  # restarts first: holding on has the last word
    assert est.report_.chosen.partition_weight == 0
    assert est.status_ != "diverged"
    assert "diverged" in est.report_.reason


@pytest.mark.slow
@pytest.mark.parametrize("init", ["pairs", "kmeans"])
def test_stable_clusters_beside_the_point_are_let_go(init):
    """Three clear clusters that the answers do not care about, and a weak feature that they do."""
    rng = np.random.default_rng(1)
    y, beside = rng.integers(3, size=(2, 450))
    X = np.hstack([8.0 * np.eye(3)[beside], 1.5 * np.eye(3)[y]]) + 0.4 * rng.normal(size=(450, 6))
    pairs = draw_pairs(450, 2000, rng)
    similar = y[pairs[:, 0]] == y[pairs[:, 1]]
    data = PairData.from_arrays(X, pairs, similar)
    start = make_start(data.features, 3, data, scales=(None,), init=init, seed=0)
    assert Partitioner(data.features, None, 3, 0).stability() > 0.99
    assert start.stable is None
    est = VolMaxDCC(3, hidden=(32,), dropout=0.0, scale=None, init=init, random_state=0).fit(X, pairs, similar)
    assert est.report_.chosen.partition_weight == 0
    assert metrics.acc(y, est.labels_) > 0.95
