"""Clusters that hold two classes, and classes in two clusters: seen by answers, named, and allowed for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pdcc import PairData, VolMaxDCC, diagnose, metrics
from pdcc.accuracy.estimate import Estimate, _if_one_class, doubted, judge_labels
from pdcc.accuracy.merged import cut_classes, mixed_clusters
from pdcc.annotators import answer_through, answer_with_flips, draw_pairs
from pdcc.identifiability.verdict import Question


def merged_blobs(seed: int, n_pairs: int = 1200) -> tuple[PairData, np.ndarray]:
    """Four blobs of which two, 0 and 1, lie nearer to each other, 10 % of the answers turned round; and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(240) % 4
    centres = np.array([[4, 1, 0, 0, 0], [4, -1, 0, 0, 0], [-4, 0, 3, 0, 0], [-4, 0, -3, 0, 0]])
    pairs = draw_pairs(240, n_pairs, rng)
    X = centres[y] + rng.normal(size=(240, 5)) * [1, 0.4, 1, 1, 1]
    return PairData.from_arrays(X, pairs, answer_with_flips(y, pairs, 0.1, rng).similar), y


def items(data: PairData) -> torch.Tensor:
    return torch.as_tensor(data.features, dtype=torch.float32)


def test_a_cluster_of_two_classes_is_named():
    """In nine of ten sets or more; of right clusters no more than chance allows: 40 clusters in ten sets of tests at .05."""
    found, false = [], 0
    for seed in range(10):
        data, y = merged_blobs(seed)
        X = items(data)
        found += [one for one in mixed_clusters(X, np.maximum(y, 1) - 1, data, 3, 0) if one.cluster == 0]
        false += len(mixed_clusters(X, y, data, 4, 0))
    assert len(found) >= 9
    assert false <= 2
    one = found[0]
    assert len(one.rows) == pytest.approx(60, abs=12)  # of 120 items, the smaller part
    assert "Cluster 0 may hold two classes" in str(one)
    assert one.within[0] / one.within.sum() > 0.8
    assert one.across[0] / one.across.sum() < 0.3


def test_a_class_in_two_clusters_is_named_and_the_lower_end_allows_for_it():
    """In nine of ten sets or more; where all clusters are right in none, and where two classes are often confused but apart in none either."""
    cut, false = [], 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y, pairs = np.arange(300) % 4, draw_pairs(300, 1500, rng)
        data = PairData.from_arrays(
            np.arange(600.0).reshape(300, 2), pairs, answer_with_flips(y, pairs, 0.15, rng).similar
        )
        labels = np.where((y == 0) & (rng.random(300) < 0.4), 4, y)
        cut += [one for one in cut_classes(labels, data, 5) if (one.larger, one.smaller) == (0, 4)]
        A = np.array([[0.75, 0.25, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 0.9, 0.1], [0, 0, 0.1, 0.9]])
        confused = answer_through(np.eye(4)[y], pairs, A, rng).similar
        false += len(cut_classes(y, data, 4)) + len(cut_classes(y, replace(data, similar=confused), 4))
    assert len(cut) >= 9
    assert false == 0
    assert "Clusters 0 and 4 may be one class" in str(cut[0])
    assert np.mean([one.together for one in cut]) == pytest.approx(1.0, abs=0.2)
    share = _if_one_class(Estimate(0.9, 0.95, 1.0), cut[:1], labels)
    assert share.low == pytest.approx(0.9 - cut[0].together * (labels == 4).mean())
    assert (share.estimate, share.high) == (0.95, 1.0)


def test_clusters_within_which_nothing_was_asked_have_a_share_all_the_same():
    """Two items, each a cluster of its own, that are called similar ten times."""
    rng = np.random.default_rng(0)
    labels = np.r_[0, 1, np.arange(98) % 2 + 2]
    pairs = np.concatenate([np.tile([[0, 1]], (10, 1)), 2 + draw_pairs(98, 300, rng)])
    similar = np.r_[np.ones(10, bool), (labels[pairs[10:, 0]] == labels[pairs[10:, 1]])]
    data = PairData.from_arrays(np.arange(200.0).reshape(100, 2), pairs, similar)
    (cut,) = cut_classes(labels, data, 4)
    assert cut.together == 1.0
    assert _if_one_class(Estimate(0.9, 0.95, 1.0), (cut,), labels).low == pytest.approx(0.89)


def test_clusters_that_are_of_one_item_or_all_alike_are_no_trouble():
    data, y = merged_blobs(0)
    labels = np.where(np.arange(240) == 0, 3, np.minimum(y, 2))
    assert {one.cluster for one in mixed_clusters(items(data), labels, data, 4, 0)} <= {0, 1, 2}
    flat = torch.zeros((240, 5))
    assert mixed_clusters(flat, y, data, 4, 0) == ()


def test_the_smaller_part_is_believed_less_as_far_as_answers_go_apart():
    data, y = merged_blobs(0)
    labels = np.maximum(y, 1) - 1
    mixed = mixed_clusters(items(data), labels, data, 3, 0)
    beliefs = np.full((240, 3), 0.01)
    beliefs[np.arange(240), labels] = 0.98
    out = doubted(beliefs, labels, mixed, 0.1, None)
    np.testing.assert_allclose(out.sum(axis=1), 1.0)
    smaller = np.isin(np.arange(240), mixed[0].rows)
    assert out[smaller, 0].max() < 0.2
    np.testing.assert_array_equal(out[~smaller], beliefs[~smaller])
    np.testing.assert_array_equal(doubted(beliefs, labels, (), 0.1, None), beliefs)
    larger = (labels == 0) & ~smaller
    beliefs[larger] = [
        0.1,
        0.8,
        0.1,
    ]  # fits hold the larger part to be of another cluster, and one part is doubted, not both
    out = doubted(beliefs, labels, mixed, 0.1, None)
    np.testing.assert_array_equal(out[~larger], beliefs[~larger])
    np.testing.assert_allclose(out.sum(axis=1), 1.0)


def test_too_few_clusters_are_seen_and_allowed_for():
    """Three clusters for four classes: a quarter of the labels is wrong, fits to other answers say the same, and the estimate knows it."""
    data, y = merged_blobs(3)
    est = VolMaxDCC(3, hidden=(16,), random_state=0, progress=False).fit_data(data)
    true = metrics.acc(y, est.labels_)
    assert true < 0.8
    found = diagnose(est.fitted_, data, quick=True, draws=2, work=0.1)
    assert found.accuracy.low <= true <= found.accuracy.high
    assert "may hold two classes" in found.answer(Question.CLUSTERS)
    assert found.items["settled"].mean() < 0.9


def test_the_outlook_of_a_divided_cluster_is_of_one_piece():
    """What is doubted of the fit to all answers is doubted of those to fewer: more answers are not said to do harm."""
    data, _ = merged_blobs(3)
    est = VolMaxDCC(3, hidden=(16,), random_state=0, progress=False).fit_data(data)
    found = judge_labels(est.fitted_, data)
    assert found.mixed
    *_, most, every = found.outlook.accuracy.values()
    assert every > most - 0.1
