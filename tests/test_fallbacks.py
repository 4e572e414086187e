"""What is done where answers and features do not fit together: keep K-means, use items' own answers, or warn that nothing was learned."""

import numpy as np
import pytest
from helpers import make_blobs

from pdcc import VanillaDCC, VolMaxDCC, metrics
from pdcc.annotators import draw_pairs, mistaken_labels
from pdcc.baselines.kmeans import kmeans
from pdcc.data.scaling import Scaler
from pdcc.fitted import MOST_WRONG
from pdcc.training import Source, Start


def in_mind(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Three blobs and one label in mind for each item, a quarter of them wrong: answers agree with each other, not with the truth."""
    blobs = make_blobs(n=150, n_pairs=1, seed=seed)
    rng = np.random.default_rng(seed)
    mind = np.where(rng.random(150) < 0.25, rng.integers(3, size=150), blobs.y)
    pairs = draw_pairs(150, 900, rng)
    return blobs.X, blobs.y, pairs, mind[pairs[:, 0]] == mind[pairs[:, 1]]


@pytest.mark.slow
def test_labels_in_mind_are_not_learned_item_by_item():
    """Held-out answers about known items are predicted well by a net that has learned the wrong label of every item; those about new items are not."""
    right, lost = [], []
    for seed in range(3):
        X, y, pairs, similar = in_mind(seed)
        setting = {
            "hidden": (256,),
            "dropout": 0.0,
            "lr": 3e-3,
            "random_state": seed,
            "confusion": "rates",
            "volume": 0.0,
        }
        chosen = VolMaxDCC(3, **setting).fit(X, pairs, similar)
        overfitted = VolMaxDCC(3, epochs=200, patience=None, validation_fraction=0.0, **setting).fit(X, pairs, similar)
        right.append(metrics.acc(y, chosen.labels_))
        lost.append(right[-1] - metrics.acc(y, overfitted.labels_))
    assert np.mean(right) > 0.95
    assert np.mean(lost) > 2 * np.std(lost, ddof=1) / np.sqrt(3)
    assert np.mean(lost) > 0.05


def test_answers_that_mean_nothing_are_not_called_converged(caplog):
    """Every answer turned round, and B = I: nothing predicts them better than a constant, and the status says it."""
    blobs = make_blobs(n=100, n_pairs=400, seed=1)
    with caplog.at_level("WARNING", logger="pdcc"):
        est = VanillaDCC(3, hidden=(16,), epochs=3, init="kmeans", random_state=0).fit(
            blobs.X, blobs.answers.pairs, ~blobs.answers.similar
        )
    assert est.status_ == "not useful"
    assert "one rate for all pairs" in caplog.text
    assert "worse" in est.message_


def test_answers_that_say_nothing_give_k_means_and_a_warning(caplog):
    """Clear blobs in two of sixty columns, the others noise a hundred times smaller, and answers thrown by a coin."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=240)
    X = np.hstack([6 * np.eye(3)[y][:, :2] + rng.normal(size=(240, 2)), 0.01 * rng.normal(size=(240, 58))])
    with caplog.at_level("WARNING", logger="pdcc"):
        est = VolMaxDCC(3, random_state=0).fit(X, draw_pairs(240, 600, rng), rng.integers(2, size=600))
    assert est.report_.start == Start(Source.KMEANS)
    assert est.report_.epochs == 0
    assert metrics.acc(y, est.labels_) > 0.9
    assert "Answers say nothing of the clusters" in caplog.text
    assert "K-means is kept: ask more pairs, or fewer clusters" in est.report_.reason


def test_items_that_the_features_do_not_tell_apart_go_by_their_own_answers():
    """Classes that only a tenth of the spread of the features shows, and many right answers: clusters along the features cannot be right."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=120)
    X = rng.normal(size=(120, 6)) + 0.4 * np.eye(4, 6)[y]
    pairs = draw_pairs(120, 900, rng)
    est = VolMaxDCC(4, random_state=0).fit(X, pairs, y[pairs[:, 0]] == y[pairs[:, 1]])
    assert est.report_.own_answers
    assert "items by their own answers too" in str(est.report_)
    assert est.report_.useful.within > (1 - MOST_WRONG) ** 2
    plain = metrics.acc(y, kmeans(Scaler.fit(X, "standard")(X), 4, tries=10, seed=0))
    assert metrics.acc(y, est.labels_) > 0.8 > 0.6 > plain


def test_one_wrong_label_in_mind_is_not_learned():
    """Clear clusters, a fifth of the items taken for others once and for all: answers within clusters are as often "similar" as that allows."""
    rng = np.random.default_rng(1)
    y = np.arange(150) % 3
    X = 5 * np.eye(3)[y] + rng.normal(size=(150, 3))
    given = mistaken_labels(y, 0.2, rng)
    pairs = draw_pairs(150, 750, rng)
    est = VolMaxDCC(3, random_state=0).fit(X, pairs, given[pairs[:, 0]] == given[pairs[:, 1]])
    assert not est.report_.own_answers
    assert metrics.acc(y, est.labels_) > 0.95


def test_clusters_that_are_empty_are_named(caplog):
    """Twenty clusters for three blobs, and a net that begins at random and is hardly trained."""
    blobs = make_blobs(n=60, n_pairs=200, seed=0)
    with caplog.at_level("WARNING", logger="pdcc"):
        est = VolMaxDCC(20, hidden=(8,), epochs=2, init="random", random_state=0).fit(
            blobs.X, blobs.answers.pairs, blobs.answers.similar
        )
    empty = int((np.bincount(est.labels_, minlength=20) == 0).sum())
    assert empty > 0
    assert f"{empty} of 20 clusters are empty: ask for fewer clusters." in est.report_.useful.failures
    assert f"{empty} of 20 clusters are empty" in caplog.text
    assert est.status_ == "not useful"
