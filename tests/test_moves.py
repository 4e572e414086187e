"""Clusters are cut and joined where answers say so, and nowhere else."""

import numpy as np
import pytest
import torch

from pdcc import VolMaxDCC
from pdcc.annotators import answer_with_flips, draw_pairs
from pdcc.auto.calibration import FOLDS
from pdcc.auto.initialise import Partitioner, Start, _rearranged, name_of
from pdcc.auto.search import Route, _shown_better
from pdcc.auto.signals import cross_validated
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler
from pdcc.data.splits import folds as folds_of
from pdcc.metrics import acc

K = 5


def problem(seed: int, flip: float = 0.1, n_pairs: int = 600) -> tuple[PairData, np.ndarray]:
    """Five blobs in eight dimensions, three of these noise, with answers about them, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(250) % K)
    X = np.hstack([4 * np.eye(K)[y] + rng.normal(size=(250, K)), rng.normal(size=(250, 3))])
    pairs = draw_pairs(250, n_pairs, rng)
    return PairData.from_arrays(X, pairs, answer_with_flips(y, pairs, flip, rng).similar), y


def wrong_optimum(y: np.ndarray, data: PairData) -> np.ndarray:
    """Classes 0 and 1 as one cluster, and class 2 cut in two along a column of noise."""
    labels = np.where(y == 1, 0, y)
    return np.where((y == 2) & (data.features[:, -1] > 0), 1, labels)


def partitioner(data: PairData) -> Partitioner:
    return Partitioner(data.features.astype(np.float32), K, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_merged_and_a_cut_cluster_are_put_right(seed):
    data, y = problem(seed)
    labels = wrong_optimum(y, data)
    assert acc(y, labels) < 0.75
    assert acc(y, partitioner(data).rearranged(labels, data)) > 0.97


@pytest.mark.parametrize("seed", range(3))
def test_what_is_right_stays(seed):
    """No cluster is cut; a mixture may hold a few items at a border to be of the other side."""
    data, y = problem(seed)
    assert acc(y, partitioner(data).rearranged(y, data)) >= 0.985


def test_answers_by_coin_move_nothing():
    data, y = problem(0, flip=0.5)
    labels = wrong_optimum(y, data)
    np.testing.assert_array_equal(partitioner(data).rearranged(labels, data), labels)


def test_an_empty_cluster_and_one_of_a_single_item_are_no_trouble():
    data, y = problem(1)
    labels = np.where(y >= 3, 0, y)
    labels[0] = 4
    assert acc(y, partitioner(data).rearranged(labels, data)) > acc(y, labels)


def started(data: PairData, labels: np.ndarray) -> tuple[Start, list[tuple[PairData, PairData]]]:
    """A start with these labels, whatever the answers of a fold, and the folds it was compared by."""
    folds = folds_of(data, FOLDS, 0)
    nll = cross_validated([labels] * len(folds), folds)
    row = {"setting": "plain K-means", "nll": float(nll.mean()), "behind_best": 0.0, "standard_error": 0.0}
    return Start("plain", labels, labels, nll, True, (row,)), folds


def test_a_start_is_rearranged_where_folds_do_not_contradict():
    data, y = problem(2)
    start, folds = started(data, wrong_optimum(y, data))
    found = _rearranged(partitioner(data), start, data, folds, [start.labels] * len(folds))
    assert (found.kind, found.name) == ("plain, rearranged", "plain K-means, rearranged")
    assert acc(y, found.labels) > 0.97
    assert np.mean(found.nll) < np.mean(start.nll)
    assert [row["setting"] for row in found.table] == ["plain K-means", "plain K-means, rearranged"]


def test_folds_have_a_veto(monkeypatch):
    data, y = problem(2)
    start, folds = started(data, y)
    chance = np.random.default_rng(0).permutation(y)
    monkeypatch.setattr(Partitioner, "rearranged", lambda self, labels, pairs: chance)
    found = _rearranged(partitioner(data), start, data, folds, [y] * len(folds))
    assert found.kind == "plain"
    np.testing.assert_array_equal(found.labels, y)
    assert found.table[-1]["behind_best"] > found.table[-1]["standard_error"]


def test_where_folds_cannot_tell_both_starts_are_kept(monkeypatch):
    """A few items in other clusters are within a standard error; a merged and a cut cluster are not."""
    data, y = problem(2)
    few = y.copy()
    few[:4] = y[4:8]
    start, folds = started(data, few)
    monkeypatch.setattr(Partitioner, "rearranged", lambda self, labels, pairs: y)
    found = _rearranged(partitioner(data), start, data, folds, [few] * len(folds))
    assert found.kind == "plain, rearranged"
    assert found.before is not None
    np.testing.assert_array_equal(found.before.labels, few)
    start, folds = started(data, wrong_optimum(y, data))
    assert _rearranged(partitioner(data), start, data, folds, [start.labels] * len(folds)).before is None


def test_nets_must_find_the_rearranged_start_better_by_a_standard_error():
    data, y = problem(2)
    before, _ = started(data, y)
    moved = Start("plain, rearranged", y, y, None, True, (), before)
    scaler = Scaler.fit(data.features, "standard")
    routes = [Route(scaler, torch.zeros(1), start) for start in (moved, before)]
    rng = np.random.default_rng(0)
    nll = rng.random(400)
    noise = rng.normal(0, 0.1, 400)  # a paired standard error of .005
    assert _shown_better(routes, [nll, nll]) == [False, True]
    assert _shown_better(routes, [nll + noise - noise.mean() - 0.004, nll]) == [False, True]
    assert _shown_better(routes, [nll + noise - noise.mean() - 0.006, nll]) == [True, True]
    assert _shown_better(routes[:1], [nll]) == [True]


def test_nets_set_out_from_both(monkeypatch):
    data, y = problem(2)
    before, _ = started(data, y)
    moved = Start("plain, rearranged", np.roll(y, 1), y, before.nll, True, before.table, before)
    monkeypatch.setattr("pdcc.auto.search.make_start", lambda way, init, shown: moved)
    est = VolMaxDCC(K, hidden=(8,), epochs=1, random_state=0, progress=False)
    assert [route.start for route in est.prepare(data).routes] == [moved, before]
    report = est.fit_data(data).report_
    assert report.start_kind == "plain"  # classes beat those of other items
    assert "standard scale, plain K-means, rearranged" in [row["setting"] for row in report.compared]


def test_a_fit_sets_out_from_it_and_says_so():
    """Stretched clusters beside columns of noise, where K-means joins two classes and cuts a third."""
    rng = np.random.default_rng(14)
    y = rng.integers(K, size=300)
    columns = (np.array([9, 16, 28, 62, 14]), np.array([20, 70, 60, 35, 180]), np.array([3.4, 3.8, 4.1, 4.6, 3.5]))
    X = np.column_stack(
        [c[y] * np.exp(0.2 * rng.normal(size=300)) for c in columns] + [np.eye(4)[rng.integers(4, size=300)]]
    )
    pairs = draw_pairs(300, 900, rng)
    answers = answer_with_flips(y, pairs, 0.1, rng)
    est = VolMaxDCC(K, hidden=(32,), random_state=0, progress=False).fit(X, pairs, answers.similar)
    compared = [row["setting"] for row in est.report_.compared]
    assert any(setting.endswith("rearranged") for setting in compared)
    assert est.report_.start_kind is not None
    assert est.report_.start.endswith("rearranged") == est.report_.start_kind.endswith("rearranged")


def test_kinds_of_start_are_made_again_by_name():
    data, _ = problem(0)
    way = partitioner(data)
    first = way.make("grouped, one shape", data)
    np.testing.assert_array_equal(way.make("grouped, one shape, rearranged", data), way.rearranged(first, data))
    assert name_of("guided, own shapes, rearranged") == "mixture (own shapes) from guided K-means, rearranged"
    assert name_of("plain, rearranged") == "plain K-means, rearranged"
