"""Clusters are cut and joined where answers say so, and nowhere else."""

import numpy as np
import pytest

from pdcc import VolMaxDCC
from pdcc.annotators import answer_with_flips, draw_pairs
from pdcc.auto import search
from pdcc.auto.initialise import Partitioner, Start, make_start, name_of
from pdcc.data.pairs import PairData
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
    data, y = problem(seed)
    np.testing.assert_array_equal(partitioner(data).rearranged(y, data), y)


def test_answers_by_coin_move_nothing():
    data, y = problem(0, flip=0.5)
    labels = wrong_optimum(y, data)
    np.testing.assert_array_equal(partitioner(data).rearranged(labels, data), labels)


def test_an_empty_cluster_and_one_of_a_single_item_are_no_trouble():
    data, y = problem(1)
    labels = np.where(y >= 3, 0, y)
    labels[0] = 4
    assert acc(y, partitioner(data).rearranged(labels, data)) > acc(y, labels)


def test_the_fit_compares_the_rearranged_start_by_answers_about_new_items(monkeypatch):
    data, y = problem(2)

    def poor(way: Partitioner, init: str, shown: PairData) -> Start:
        found = make_start(way, init, shown)
        return Start("plain", wrong_optimum(y, data), found.plain, found.nll, found.told, found.table)

    monkeypatch.setattr(search, "make_start", poor)
    est = VolMaxDCC(K, hidden=(16,), random_state=0, progress=False).fit_data(data)
    assert est.report_.start_kind == "plain, rearranged"
    assert "plain K-means, rearranged" in est.report_.start
    assert {row["setting"] for row in est.report_.compared} >= {
        "standard scale, plain K-means",
        "standard scale, plain K-means, rearranged",
    }
    assert acc(y, est.labels_) > 0.95


def test_kinds_of_start_are_made_again_by_name():
    data, _ = problem(0)
    way = partitioner(data)
    first = way.make("grouped, one shape", data)
    np.testing.assert_array_equal(way.make("grouped, one shape, rearranged", data), way.rearranged(first, data))
    assert name_of("guided, own shapes, rearranged") == "mixture (own shapes) from guided K-means, rearranged"
    assert name_of("plain, rearranged") == "plain K-means, rearranged"
