"""The number of clusters, found from answers and features before anything is trained."""

import numpy as np
import pytest
from helpers import make_blobs

from pdcc import PairData, PairDataError, VolMaxDCC, select_n_clusters
from pdcc.annotators import answer_with_flips, draw_pairs
from pdcc.select.count import candidates_for, choose_n_clusters
from pdcc.select.numbers import EVERY_K, STEP_OF_K


@pytest.mark.parametrize("K", [3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_clusters_of_blobs_are_counted(K, seed):
    blobs = make_blobs(n=50 * K, n_pairs=600 * K, flip=0.1, seed=seed, n_clusters=K, d=8)
    found = select_n_clusters(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    assert found.value == K
    assert f"Chose {K} clusters" in found.reason
    assert "try larger" not in found.reason
    assert found.held_out == "pairs"
    assert found.table["n_clusters"].tolist() == list(candidates_for(50 * K))
    assert found.table.loc[found.table["chosen"], "n_clusters"].tolist() == [K]
    assert found.table.loc[found.table["n_clusters"] < K, "eligible"].sum() == 0


def groups(seed):
    """A hundred records of thirty things, three or four of each, and answers about records that look alike and about others."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(100) % 30)
    X = 4 * rng.normal(size=(30, 6))[y] + rng.normal(size=(100, 6))
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2) + np.where(np.eye(100) > 0, np.inf, 0)
    near = np.column_stack([np.repeat(np.arange(100), 5), np.argsort(distance, axis=1)[:, :5].ravel()])
    pairs = np.concatenate([near, draw_pairs(100, 500, rng)])
    return X, pairs, answer_with_flips(y, pairs, 0.05, rng).similar, y


@pytest.mark.parametrize("seed", range(3))
def test_many_small_groups_are_counted(seed):
    """Beyond twenty, numbers are compared in steps of a fifth: 29 and 35 are the nearest."""
    X, pairs, similar, _ = groups(seed)
    found = select_n_clusters(X, pairs, similar)
    assert found.value in (29, 35)


def test_a_fit_takes_the_number_that_was_found():
    X, pairs, similar, y = groups(0)
    est = VolMaxDCC("auto", hidden=(16,), epochs=2, random_state=0, progress=False).fit(X, pairs, similar)
    assert est.n_clusters_ == est.selection_.value in (29, 35)
    assert est.memberships_.shape == (100, est.n_clusters_)
    # Of all pairs 2 % are of one thing; of those within clusters more than half are, although some clusters hold two things.
    together = est.labels_[:, None] == est.labels_[None]
    same = y[:, None] == y[None]
    assert (same & together)[np.triu_indices(100, 1)].sum() > 0.5 * together[np.triu_indices(100, 1)].sum()


def test_the_largest_value_asks_for_more():
    blobs = make_blobs(n=200, n_pairs=2000, flip=0.05, seed=2, n_clusters=6, d=8)
    found = select_n_clusters(blobs.X, blobs.answers.pairs, blobs.answers.similar, candidates=(2, 3, 4))
    assert found.value == 4
    assert "It is the largest that was compared: try larger ones too." in found.reason


def test_answers_by_coin_are_said_to_tell_little():
    """Among twenty numbers of clusters one may be better by chance: in one set of ten, or two."""
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 4))
        found.append(select_n_clusters(X, draw_pairs(150, 500, rng), rng.random(500) < 0.4).reason)
    assert sum("hardly tell how many" in reason for reason in found) >= 8


@pytest.mark.parametrize("n", [2, 3, 4, 9, 39, 40, 41, 60, 500, 5000])
def test_candidates_are_all_to_twenty_and_then_in_steps(n):
    found = candidates_for(n)
    assert found[0] == 2
    assert found[-1] <= max(2, n // 2)
    assert list(found[: EVERY_K - 1]) == list(range(2, min(EVERY_K, max(n // 2, 2)) + 1))
    steps = np.array(found[EVERY_K - 1 :]) / np.array(found[EVERY_K - 2 : -1])
    np.testing.assert_allclose(steps, STEP_OF_K, atol=0.03)


def test_too_few_answers_to_count_by_are_refused():
    data = PairData.from_arrays(np.arange(20.0).reshape(10, 2), [[0, 1], [2, 3], [4, 5]], [1, 0, 0])
    with pytest.raises(PairDataError, match=r"pairs: expected enough answers of both kinds.*give n_clusters"):
        choose_n_clusters(data)


def test_units_and_the_order_of_answers_do_not_matter():
    blobs = make_blobs(n=120, n_pairs=900, flip=0.1, seed=1, n_clusters=4, d=8)
    a = blobs.answers
    found = select_n_clusters(blobs.X, a.pairs, a.similar)
    scaled = select_n_clusters(1024 * blobs.X + 3, a.pairs, a.similar)
    rows = np.random.default_rng(0).permutation(len(a.pairs))
    shuffled = select_n_clusters(blobs.X, a.pairs[rows], a.similar[rows])
    assert found.value == scaled.value == shuffled.value == 4
    np.testing.assert_allclose(scaled.table["held_out_nll"], found.table["held_out_nll"], atol=1e-6)
    np.testing.assert_allclose(shuffled.table["held_out_nll"], found.table["held_out_nll"], atol=1e-6)
