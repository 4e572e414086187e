"""The paper's own setting: what it is, where it departs from the paper, and the authors' choice by labels, as an oracle."""

import numpy as np
import pytest
from helpers import make_blobs
from sklearn.base import clone

from pdcc import VanillaDCC, VolMaxDCC, metrics
from pdcc.estimator import OracleVolMaxDCC

K = 3
QUICK = {"hidden": (16,), "lr": 0.1, "epochs": 12, "random_state": 0, "progress": False}


@pytest.fixture(scope="module")
def world():
    blobs = make_blobs(n=150, n_pairs=600, flip=0.1)
    rng = np.random.default_rng(5)
    val = rng.choice(150, 60, replace=False)
    return blobs, (blobs.X[val] + 0.1, blobs.y[val])


def test_it_is_the_papers():
    p = VolMaxDCC.paper(10, volume=1e-3).get_params()
    expected = {
        "confusion": "sigmoid-paper", "optimizer": "sgd", "lr": 0.5, "confusion_lr": 0.1, "batch_size": 128, "hidden": (512, 512),
        "init": "random", "dropout": 0.0, "scale": None, "volume": 1e-3, "partition_weight": 0.0, "epochs": 100,
    }  # fmt: skip
    assert {name: p[name] for name in expected} == expected
    est = VolMaxDCC.paper(3, epochs=1, random_state=0, lr=1e-9, confusion_lr=1e-9)
    X, pairs, y = np.eye(6, dtype=np.float32), np.array([[0, 1], [2, 3], [4, 5], [0, 5]]), [1, 0, 1, 0]
    est.fit(X, pairs, y)
    start = 1 / (1 + np.exp(-(2 * np.eye(3) - 1)))
    np.testing.assert_allclose(est.agreement_, start, atol=1e-6)
    assert est.confusion_ is None
    vanilla = VanillaDCC.paper(3).get_params()
    assert vanilla["optimizer"] == "sgd"
    assert "confusion" not in vanilla


def test_without_labels_or_pairs_held_out_the_last_epoch_is_kept(world):
    blobs, _ = world
    a = blobs.answers
    est = VolMaxDCC.paper(K, volume=1e-3, validation_fraction=0.0, **QUICK).fit(blobs.X, a.pairs, a.similar)
    assert est.report_.n_held_out == 0
    assert est.model_.n_pairs == len(a.pairs)  # all pairs are trained on
    shorter = VolMaxDCC.paper(K, volume=1e-3, validation_fraction=0.0, **QUICK | {"epochs": 11})
    shorter.fit(blobs.X, a.pairs, a.similar)
    assert not np.array_equal(shorter.memberships_, est.memberships_)
    assert [h["loss"] for h in shorter.history_] == [h["loss"] for h in est.history_][:11]


def test_the_oracle_chooses_volume_and_epoch_by_labels_and_trains_on_all_pairs(world):
    blobs, (X_val, y_val) = world
    a = blobs.answers
    est = VolMaxDCC.paper(K, oracle=(X_val, y_val), volumes=(0.0, 1e-3, 1e-1), **QUICK)
    assert isinstance(est, OracleVolMaxDCC)
    est.fit(blobs.X, a.pairs, a.similar)
    assert est.model_.n_pairs == len(a.pairs)
    assert set(est.oracle_scores_) == {0.0, 1e-3, 1e-1}
    best = max(est.oracle_scores_.values())
    assert est.oracle_scores_[est.report_.chosen.volume] == best
    assert metrics.acc(y_val, est.predict(X_val)) == best
    assert best == -min(h["held_out"] for h in est.history_)  # the epoch is the most accurate one


def test_other_labels_make_another_choice(world):
    """With shuffled labels nothing is more accurate than chance: the oracle really looks at them."""
    blobs, (X_val, y_val) = world
    a = blobs.answers
    wrong = np.random.default_rng(0).permutation(y_val)
    est = VolMaxDCC.paper(K, oracle=(X_val, wrong), volumes=(0.0,), **QUICK).fit(blobs.X, a.pairs, a.similar)
    right = VolMaxDCC.paper(K, oracle=(X_val, y_val), volumes=(0.0,), **QUICK).fit(blobs.X, a.pairs, a.similar)
    assert est.oracle_scores_[0.0] < 0.65 < right.oracle_scores_[0.0]


def test_the_oracle_can_be_cloned(world):
    _, (X_val, y_val) = world
    est = VolMaxDCC.paper(K, oracle=(X_val, y_val), **QUICK)
    twin = clone(est)
    assert twin.volumes == est.volumes == (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    np.testing.assert_array_equal(twin.oracle[0], X_val)


def test_the_full_volume_is_that_of_all_items(world):
    """One batch of all pairs, one step: the exact volume also pushes items that no pair touches."""
    blobs, _ = world
    few = slice(0, 40)
    fits = {}
    for estimator in ("minibatch", "full"):
        est = VolMaxDCC.paper(
            K, volume=1.0, volume_estimator=estimator, validation_fraction=0.0, batch_size=40, **QUICK | {"epochs": 1}
        )
        fits[estimator] = est.fit(blobs.X, blobs.answers.pairs[few], blobs.answers.similar[few])
    F = {name: est.memberships_ for name, est in fits.items()}
    volume = {name: np.linalg.slogdet(f.T @ f)[1] for name, f in F.items()}
    assert volume["full"] > volume["minibatch"]
    objective = {
        name: est.objective(blobs.X, blobs.answers.pairs[few], blobs.answers.similar[few]) for name, est in fits.items()
    }
    assert objective["full"] < objective["minibatch"]  # eq. 13 counts all items
