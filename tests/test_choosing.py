"""The partition that training begins at, and the automatic choices: made from answers alone, and for the reasons given."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import make_blobs

from pdcc import PairData, VolMaxDCC, metrics, select_n_clusters
from pdcc.annotators import answer_by_labels, answer_through, draw_pairs
from pdcc.baselines.kmeans import kmeans
from pdcc.data.scaling import Scaler
from pdcc.data.splits import hold_out, item_folds, new_folds
from pdcc.select import starts
from pdcc.select.blockmodel import block_counts
from pdcc.select.count import candidates_for
from pdcc.select.search import prepare
from pdcc.select.starts import Partitioner, two_rate_evidence
from pdcc.training import EPOCHS, FEWEST_STEPS, LONGEST, Shape, Source, Start

STARTS = [Start(source, shape) for source in Source for shape in Shape]


def hidden_direction(seed: int = 0, flip: float = 0.1) -> tuple[np.ndarray, np.ndarray, PairData]:
    """Classes differ in three weak features, beside two strong ones that mean nothing: K-means alone must fail."""
    rng = np.random.default_rng(seed)
    y = np.arange(600) % 3
    X = np.hstack([2.0 * np.eye(3)[y] + 0.5 * rng.normal(size=(600, 3)), rng.uniform(-6, 6, size=(600, 2))])
    A = np.full((3, 3), flip / 3) + (1 - flip) * np.eye(3)
    a = answer_through(np.eye(3)[y], draw_pairs(600, 3000, rng), A, rng)
    return X, y, PairData.from_arrays(X, a.pairs, a.similar)


def prepared(data: PairData, n_clusters: int, seed: int = 0, **options):
    config = VolMaxDCC(n_clusters, **options).config(seed)
    return prepare(data, config, torch.device("cpu"))


def test_answers_guide_the_partition_where_kmeans_cannot_see():
    for seed in range(3):
        X, y, data = hidden_direction(seed)
        plain = kmeans(X, 3, tries=10, seed=seed)
        found = prepared(data, 3, seed, scale=None)
        assert metrics.acc(y, plain) < 0.6
        assert metrics.acc(y, found.chosen.labels) > 0.9
        assert found.chosen.start != Start(Source.KMEANS)
        alone = prepared(data, 3, seed, scale=None, init="kmeans").chosen
        assert alone.start == Start(Source.KMEANS)
        np.testing.assert_array_equal(alone.labels, Partitioner(data.features.astype(np.float32), 3, seed).plain)


def test_scaler_standard_uses_the_seen_items():
    X = np.array([[1.0, 5.0, -2.0], [3.0, 5.0, 2.0]], np.float32)
    new = np.array([[5.0, 5.0, 0.0]], np.float32)
    np.testing.assert_allclose(Scaler.fit(X, "standard")(new), [[3.0, 0.0, 0.0]])
    np.testing.assert_allclose(np.linalg.norm(Scaler.fit(X, "unit")(new), axis=1), np.sqrt(3), rtol=1e-6)
    np.testing.assert_array_equal(Scaler.fit(X, None)(new), new)
    assert np.isfinite(Scaler.fit(X, "unit")(np.zeros((1, 3), np.float32))).all()


def test_block_counts_and_evidence():
    data = PairData.from_arrays(np.eye(4), [[0, 1], [0, 2], [2, 3], [1, 0], [3, 1]], [1, 0, 1, 0, 0])
    counts = block_counts(np.array([0, 0, 1, 1]), 2, data)
    np.testing.assert_array_equal(counts[0], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(counts[1], [[1, 2], [2, 0]])
    # Beta(1, 1) marginals: within clusters two "same" of three, B(3, 2) = 1/12; across them none of two, B(1, 3) = 1/3.
    found = two_rate_evidence(np.array([0, 0, 1, 1]), data)
    assert found == pytest.approx(np.log(1 / 12) + np.log(1 / 3))


def test_partitions_are_the_same_bits_each_time():
    _X, _, data = hidden_direction(1)
    one, other = (Partitioner(data.features.astype(np.float32), 3, 0) for _ in range(2))
    made = {start: one.make(start, data) for start in STARTS}
    for start in reversed(STARTS):
        found = other.make(start, data)
        np.testing.assert_array_equal(found.labels, made[start].labels)
        assert (found.by_answers is None) == (start.shape is Shape.NONE)
        if found.by_answers is not None:
            np.testing.assert_array_equal(found.by_answers, made[start].by_answers)


@pytest.mark.parametrize("threads", [1, 2])
def test_partitions_do_not_depend_on_threads(threads):
    """On small problems torch and BLAS use other sums where they have more threads."""
    _X, _, data = hidden_direction(1)
    way = Partitioner(data.features.astype(np.float32), 3, 0)
    kept = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        made = [way.make(start, data).labels for start in STARTS]
    finally:
        torch.set_num_threads(kept)
    other = Partitioner(data.features.astype(np.float32), 3, 0)
    for start, labels in zip(STARTS, made, strict=True):
        np.testing.assert_array_equal(other.make(start, data).labels, labels)


def test_answers_join_parts_that_kmeans_cannot_join():
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
    assert metrics.acc(y, way.make(Start(Source.GRAPH), data).labels) > 0.97
    assert metrics.acc(y, way.plain) < 0.8
    assert metrics.acc(y, prepared(data, 3, scale=None).chosen.labels) > 0.97


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
    """It is compared as it is, and two mixtures begin from it."""
    _X, _y, data = hidden_direction()
    way = Partitioner(data.features.astype(np.float32), 3, 0)
    calls = []
    monkeypatch.setattr(starts, "kmeans", lambda *args, **options: calls.append(1) or kmeans(*args, **options))
    guided = Start(Source.GUIDED)
    first = way.make(guided, data).labels
    n_runs = len(calls)
    assert n_runs == starts.numbers.GUIDED_RUNS
    np.testing.assert_array_equal(way.make(guided, replace(data, i=data.i.copy())).labels, first)
    assert len(calls) == n_runs
    for others in (replace(data, similar=~data.similar), replace(data, weight=1.0 + data.similar)):
        way.make(guided, others)
    assert len(calls) == 3 * n_runs


def test_a_partition_is_judged_by_those_made_without_the_items_of_an_answer(monkeypatch):
    """A start that is right with all answers and wrong without some of them is passed over."""
    _X, y, data = hidden_direction(4)
    real, wrong = Partitioner.make, np.random.default_rng(0).permutation(y)

    def make(self, start, answers):
        found = real(self, start, answers)
        if start == Start(Source.GUIDED):
            return starts.Partition(y if len(answers) == n_shown else wrong)
        return found

    n_shown = int((~hold_out(data, 0.1, 0).held).sum())
    monkeypatch.setattr(Partitioner, "make", make)
    found = prepared(data, 3, scale=None)
    assert found.chosen.start != Start(Source.GUIDED)
    rows = {row["setting"]: row for row in found.compared}
    assert rows[f"features as they are, {Start(Source.GUIDED)}"]["behind_best"] > 0.05
    assert metrics.acc(y, found.chosen.labels) > 0.9


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
    monkeypatch.setattr("pdcc.select.search.hold_out", lambda *_: held)
    around = VolMaxDCC(3, **setting).fit(X, pairs, data.similar ^ held.held)
    assert straight.report_.start == around.report_.start
    assert straight.report_.compared == around.report_.compared
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


def test_columns_of_other_units_change_nothing_and_many_columns_are_not_standardised():
    """Few columns are standardised; of many, those of noise would then drown the rest."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    spread = np.concatenate([np.full(6, 1.0), np.full(94, 0.02)])
    X = rng.normal(size=(240, 100)) * spread
    X[:, :3] += 2.5 * np.eye(3)[y]
    pairs = draw_pairs(240, 900, rng)
    similar = y[pairs[:, 0]] == y[pairs[:, 1]]
    setting = {"hidden": (16,), "random_state": 0, "confusion": "rates", "volume": 0.0}
    wide = VolMaxDCC(3, **setting).fit(X, pairs, similar)
    assert wide.report_.scale in ("unit scale", "features as they are")
    assert metrics.acc(y, wide.labels_) > 0.95
    narrow = VolMaxDCC(3, **setting).fit(X[:, :6] * [1, 1, 1e5, 1e5, 1, 1e-5], pairs, similar)
    same = VolMaxDCC(3, **setting).fit(X[:, :6], pairs, similar)
    assert narrow.report_.begun == same.report_.begun
    assert (narrow.labels_ == same.labels_).mean() > 0.99
    assert metrics.acc(y, narrow.labels_) > 0.95


def test_a_scaling_that_drowns_the_classes_is_not_chosen():
    """Two columns of 40 tell the classes apart, and are the largest: standardised, they are two of many."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 3
    X = np.hstack([4 * np.eye(3)[y][:, :2] + rng.normal(size=(400, 2)), 0.02 * rng.normal(size=(400, 38))])
    pairs = draw_pairs(400, 1600, rng)
    data = PairData.from_arrays(X, pairs, y[pairs[:, 0]] == y[pairs[:, 1]])
    found = prepared(data, 3)
    assert found.chosen.view.name == "unit scale"
    assert metrics.acc(y, found.chosen.labels) > 0.9
    plain = {row["setting"]: row for row in found.compared}
    behind = plain[f"standard scale, {Start(Source.KMEANS)}"]
    assert behind["behind_best"] > 2 * behind["standard_error"] > 0
    assert {row["setting"].split(",")[0] for row in prepared(data, 3, scale="standard").compared} == {
        "one rate for all pairs",
        "standard scale",
    }


def test_the_number_of_clusters_is_found_from_the_answers(tmp_path):
    blobs = make_blobs(n=200, n_pairs=1200, flip=0.05, seed=2)
    given = blobs.X, blobs.answers.pairs, blobs.answers.similar
    found = select_n_clusters(*given)
    assert found.value == 3
    assert found.table["n_clusters"].tolist() == list(candidates_for(200))
    assert found.table.set_index("n_clusters").loc[2, "held_out_nll"] > found.table["held_out_nll"].min() + 0.05
    est = VolMaxDCC("auto", hidden=(16,), epochs=3, random_state=0).fit(*given)
    assert est.n_clusters_ == 3
    assert est.memberships_.shape == (200, 3)
    assert "Chose 3 clusters" in est.selection_.reason
    est.save(tmp_path / "run")
    np.testing.assert_array_equal(VolMaxDCC.load(tmp_path / "run").predict(blobs.X), est.labels_)
    with pytest.raises(TypeError, match="n_clusters"):
        VolMaxDCC("many").fit(*given)
