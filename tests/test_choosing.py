"""The start and the automatic choices: made from answers alone, and for the reasons given."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_blobs

from pdcc import PairData, VolMaxDCC, metrics, select_n_clusters
from pdcc.annotators import answer_by_labels, answer_through, draw_pairs
from pdcc.auto import initialise
from pdcc.auto.calibration import AUTO_VOLUME, FEWEST_NEW
from pdcc.auto.initialise import STARTS, Partitioner, grouped, make_start, make_ways
from pdcc.auto.rules import choose, specifications, within_reach
from pdcc.auto.signals import answer_counts, constant_nll, evidence, partition_agreement, partition_nll, standard_error
from pdcc.baselines.kmeans import kmeans
from pdcc.data.scaling import Scaler
from pdcc.data.splits import hold_out, item_folds, new_folds, split
from pdcc.training import EPOCHS, FEWEST_STEPS, LONGEST


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
        start = make_start(Partitioner(data.features.astype(np.float32), 3, seed), "pairs", data)
        assert metrics.acc(y, plain) < 0.6
        assert metrics.acc(y, start.labels) > 0.9
        assert start.kind.startswith(("guided", "grouped"))
        np.testing.assert_array_equal(make_start(Partitioner(X, 3, seed), "kmeans", data).labels, start.plain)


def test_scaler_standard_uses_the_seen_items():
    X = np.array([[1.0, 5.0, -2.0], [3.0, 5.0, 2.0]], np.float32)
    new = np.array([[5.0, 5.0, 0.0]], np.float32)
    np.testing.assert_allclose(Scaler.fit(X, "standard")(new), [[3.0, 0.0, 0.0]])
    np.testing.assert_allclose(np.linalg.norm(Scaler.fit(X, "unit")(new), axis=1), np.sqrt(3), rtol=1e-6)
    np.testing.assert_array_equal(Scaler.fit(X, None)(new), new)
    assert np.isfinite(Scaler.fit(X, "unit")(np.zeros((1, 3), np.float32))).all()


def test_answer_counts_and_evidence():
    data = PairData.from_arrays(np.eye(4), [[0, 1], [0, 2], [2, 3], [1, 0], [3, 1]], [1, 0, 1, 0, 0])
    counts = answer_counts(np.array([0, 0, 1, 1]), 2, data)
    np.testing.assert_array_equal(counts[0], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(counts[1], [[1, 2], [2, 0]])
    # Beta(1, 1) marginals: within clusters two "same" of three, B(3, 2) = 1/12; across them none of two, B(1, 3) = 1/3.
    assert evidence(np.array([0, 0, 1, 1]), data) == pytest.approx(np.log(1 / 12) + np.log(1 / 3))


def test_the_true_partition_predicts_held_out_answers_best():
    _X, y, data = hidden_direction(7)
    found = split(data, 0.3, 0)
    train, test = found.train(data), found.test(data)
    truth = partition_nll(y, train, test).mean()
    shuffled = partition_nll(np.random.default_rng(0).permutation(y), train, test).mean()
    merged = partition_nll(np.minimum(y, 1), train, test).mean()
    assert truth < merged < shuffled


def test_partitions_do_not_depend_on_thread_timing():
    _X, _, data = hidden_direction(1)
    ways = [Partitioner(data.features.astype(np.float32), 3, 0) for _ in range(2)]
    made = ways[1].make_all(data)
    assert tuple(made) == STARTS
    for kind in STARTS:
        np.testing.assert_array_equal(ways[0].make(kind, data), made[kind])


def test_answers_group_parts_that_kmeans_cannot_join():
    """Every class is two far-apart blobs: K-means at the right K is wrong whatever its start, answers join the parts."""
    rng = np.random.default_rng(3)
    y, side = rng.integers(3, size=(2, 400))
    side = side % 2
    centres = 8.0 * rng.permutation(np.eye(6))
    X = (centres[2 * y + side] + 0.5 * rng.normal(size=(400, 6))).astype(np.float32)
    pairs = draw_pairs(400, 1200, rng)
    similar = (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(len(pairs)) < 0.1)
    data = PairData.from_arrays(X, pairs, similar)
    way = Partitioner(X, 3, 0)
    assert metrics.acc(y, way.make("grouped", data)) > 0.97
    assert metrics.acc(y, way.make("plain", data)) < 0.8
    assert metrics.acc(y, make_start(way, "pairs", data).labels) > 0.97


def test_grouping_never_empties_a_group_nor_turns_answers_round():
    rng = np.random.default_rng(0)
    begin = [np.array([0, 0, 1, 1, 2, 2])]
    nothing = np.zeros((2, 6, 6))
    np.testing.assert_array_equal(grouped(nothing, begin, 3, rng), begin[0])
    against = np.stack([1 - np.eye(6), 50 * np.eye(6)])  # "different" within, "similar" across: not a reason to join
    np.testing.assert_array_equal(grouped(against, begin, 3, rng), begin[0])
    together = np.stack([np.full((6, 6), 9.0), np.ones((6, 6))])
    assert len(np.unique(grouped(together, begin, 3, rng))) == 3


def test_new_items_are_in_no_training_answer():
    _X, _, data = hidden_direction(2)
    tested = 0
    for train, test in item_folds(data, 3, 0):
        seen, new = np.union1d(train.i, train.j), np.union1d(test.i, test.j)
        assert not len(np.intersect1d(seen, new))
        tested += len(test)
    assert tested == pytest.approx(len(data) / 3, rel=0.15)
    alone = PairData.from_arrays(np.eye(4), [[0, 1], [2, 3]], [1, 0])
    assert item_folds(alone, 3, 0) == []


def test_enough_annotators_are_folds_instead_of_items():
    """What an annotator has in mind helps with new items of theirs, and not with other annotators."""
    rng = np.random.default_rng(0)
    pairs = draw_pairs(60, 900, rng)
    similar, names = rng.random(900) < 0.5, rng.integers(12, size=900)
    for many, kept in ((12, True), (3, False)):
        data = PairData.from_arrays(rng.normal(size=(60, 2)), pairs, similar, names % many)
        parts = new_folds(data, 3, 0)
        assert len(parts) == 3
        for train, test in parts:
            assert bool(np.intersect1d(train.annotator, test.annotator).size) != kept
            seen, new = np.union1d(train.i, train.j), np.union1d(test.i, test.j)
            assert bool(np.intersect1d(seen, new).size) == kept


def test_guided_kmeans_is_found_once_for_the_same_answers(monkeypatch):
    """Scalings are compared by it on the folds that starts are compared on: the longest part of both."""
    _X, _y, data = hidden_direction()
    way = Partitioner(data.features.astype(np.float32), 3, 0)
    calls = []
    monkeypatch.setattr(initialise, "kmeans", lambda *args, **options: calls.append(1) or kmeans(*args, **options))
    first = way.make("guided", data)
    n_runs = len(calls)
    assert n_runs == initialise.GUIDED
    np.testing.assert_array_equal(way.make("guided", replace(data, i=data.i.copy())), first)
    assert len(calls) == n_runs
    for others in (replace(data, similar=~data.similar), replace(data, weight=1.0 + data.similar)):
        way.make("guided", others)
    assert len(calls) == 3 * n_runs


def test_an_unlucky_run_is_not_taken(monkeypatch):
    """A way to start that wins the folds but fails when made from all answers is passed over for one that folds cannot tell from it."""
    _X, y, data = hidden_direction(4)
    way = Partitioner(data.features.astype(np.float32), 3, 0)
    wrong = np.random.default_rng(0).permutation(y)
    fails = {kind: wrong if kind == STARTS[0] else y for kind in STARTS}
    monkeypatch.setattr(way, "make_all", lambda pairs: fails if pairs is data else dict.fromkeys(STARTS, y))
    start = make_start(way, "pairs", data)
    assert start.kind == STARTS[1]
    np.testing.assert_array_equal(start.labels, y)


def test_what_is_compared():
    def found(confusion, volume, *, annotators=False, weight=0.0):
        listed = specifications(confusion, volume, weight, annotators=annotators)
        assert all(c.partition_weight == weight for c in listed)
        return [(c.confusion, c.volume) for c in listed]

    pooled, none = ("pooled", AUTO_VOLUME), ("none", 0.0)
    assert found("auto", "auto") == [pooled, none]
    assert found("auto", "auto", annotators=True, weight=1.0) == [pooled, ("per-annotator", AUTO_VOLUME), none]
    assert found("auto", 0.5) == [("pooled", 0.5), ("none", 0.5)]
    assert found("sigmoid", "auto", annotators=True) == [("sigmoid", AUTO_VOLUME), ("sigmoid", 0.0)]
    assert found("none", 0.0, annotators=True) == [("none", 0.0)]
    assert found("per-annotator", 0.1) == [("stochastic", 0.1)]


def test_choose_prefers_among_those_within_one_standard_error():
    rng = np.random.default_rng(0)
    base = rng.exponential(0.3, 400)
    step = rng.normal(0, 0.1, 400)
    step -= step.mean()  # a difference of mean 0 and standard error .005
    names = ["first", "second"]
    assert choose(names, [base + step + 0.004, base]).index == 0
    behind = choose(names, [base + step + 0.006, base])
    assert behind.index == 1
    assert "second" in behind.reason
    assert [row["setting"] for row in behind.table] == names
    assert [row["behind_best"] for row in behind.table] == pytest.approx([0.006, 0.0])
    assert choose(names, [base + step + 0.001, base], [0.0, 1.0]).index == 1
    assert choose(names, [base + step + 0.006, base], [1.0, 0.0]).index == 1  # what is out of reach is not preferred
    barred = choose(names, [base, base + step + 0.006], allowed=[False, True])  # the best of what may be taken
    assert barred.index == 1
    assert [row["behind_best"] for row in barred.table] == pytest.approx([0.0, 0.006])
    assert barred.reason.startswith("second is taken")
    assert within_reach([base + step + 0.006, base]) == [False, True]
    assert within_reach([base + step + 0.006, base], 2.0) == [True, True]


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
    epochs, patience = auto.lengths(3000)
    assert FEWEST_STEPS <= epochs * 24 < FEWEST_STEPS + EPOCHS * 24  # 24 batches of 128 per epoch
    assert patience == 8 * epochs / EPOCHS
    assert auto.lengths(10)[0] == LONGEST * EPOCHS
    assert replace(auto, patience=None).lengths(10)[1] is None
    assert replace(auto, epochs=7).lengths(10) == (7, 8)


def test_rounding_is_no_direction():
    """Columns that repeat others leave components of rounding, which whitening would make as large as the rest."""
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert Partitioner(np.hstack([X, X, X]), 3, 0).components.shape == (200, 4)
    nothing = Partitioner(np.ones((20, 3), np.float32), 2, 0)
    data = PairData.from_arrays(np.ones((20, 3)), [[0, 1], [2, 3]], [1, 0])
    assert np.isfinite(nothing.embed(data)).all()


def test_columns_of_other_units_change_nothing_and_embeddings_may_be_unit_rows():
    """Few columns are standardised; of many, unit rows are compared with them, and win where columns of noise would drown the rest."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    spread = np.concatenate([np.full(6, 1.0), np.full(94, 0.02)])
    X = rng.normal(size=(240, 100)) * spread
    X[:, :3] += 2.5 * np.eye(3)[y]
    pairs = draw_pairs(240, 900, rng)
    similar = y[pairs[:, 0]] == y[pairs[:, 1]]
    setting = {"hidden": (16,), "random_state": 0, "confusion": "rates", "volume": 0.0}
    wide = VolMaxDCC(3, **setting).fit(X, pairs, similar)
    assert wide.report_.start.startswith("unit scale")
    assert metrics.acc(y, wide.labels_) > 0.95
    narrow = VolMaxDCC(3, **setting).fit(X[:, :6] * [1, 1, 1e5, 1e5, 1, 1e-5], pairs, similar)
    assert narrow.report_.start.startswith("standard scale")
    assert metrics.acc(y, narrow.labels_) > 0.95


def test_a_scaling_that_is_clearly_behind_is_not_trained():
    """Two columns of 60 tell the classes apart, and are the largest: standardised, they drown."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 3
    X = np.hstack([4 * np.eye(3)[y][:, :2] + rng.normal(size=(400, 2)), 0.02 * rng.normal(size=(400, 58))])
    pairs = draw_pairs(400, 1600, rng)
    data = PairData.from_arrays(X, pairs, y[pairs[:, 0]] == y[pairs[:, 1]])
    left, table = make_ways(data.features, data, 3, ("standard", "unit"), 0)
    assert [scaler.kind for scaler, _ in left] == ["unit"]
    assert [row["setting"] for row in table] == ["standard scale, first look", "unit scale, first look"]
    assert table[0]["behind_best"] > 2 * table[0]["standard_error"] > 0
    assert len(make_ways(data.features, data, 3, ("standard",), 0)[0]) == 1


def test_partition_rates_and_the_constant():
    _X, y, data = hidden_direction(3)
    B = partition_agreement(y, 3, data)
    assert B.diagonal().min() > 0.7 > 0.3 > B[~np.eye(3, dtype=bool)].max()
    rate = constant_nll(data, data).mean()
    p = data.similar.mean()
    assert rate == pytest.approx(-p * np.log(p) - (1 - p) * np.log1p(-p), abs=1e-3)
    assert partition_nll(y, data, data).mean() < rate - 0.1
    assert FEWEST_NEW > 0


def test_the_number_of_clusters_is_found_from_the_answers(tmp_path):
    blobs = make_blobs(n=200, n_pairs=1200, flip=0.05, seed=2)
    given = blobs.X, blobs.answers.pairs, blobs.answers.similar
    found = select_n_clusters(*given)
    assert found.value == 3
    assert found.table["n_clusters"].tolist() == list(range(2, 13))
    assert found.table.set_index("n_clusters").loc[2, "held_out_nll"] > found.table["held_out_nll"].min() + 0.05
    est = VolMaxDCC("auto", hidden=(16,), epochs=3, random_state=0).fit(*given)
    assert est.n_clusters_ == 3
    assert est.memberships_.shape == (200, 3)
    assert "Chose 3 clusters" in est.selection_.reason
    est.save(tmp_path / "run")
    np.testing.assert_array_equal(VolMaxDCC.load(tmp_path / "run").predict(blobs.X), est.labels_)
    with pytest.raises(TypeError, match="n_clusters"):
        VolMaxDCC("many").fit(*given)
