"""What is done where answers and features do not fit together: fall back, learn by heart, or say that nothing was learned."""

import numpy as np
import pytest
import torch
from helpers import make_blobs

from pdcc import VanillaDCC, VolMaxDCC, metrics
from pdcc.annotators import draw_pairs, mistaken_labels
from pdcc.baselines.kmeans import kmeans, steadiness
from pdcc.data.scaling import Scaler
from pdcc.fitted import MOST_WRONG
from pdcc.training import Trainer


def in_mind(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Three blobs and one label in mind for each item, a quarter of them wrong: answers agree with each other, not with the truth."""
    blobs = make_blobs(n=150, n_pairs=1, seed=seed)
    rng = np.random.default_rng(seed)
    mind = np.where(rng.random(150) < 0.25, rng.integers(3, size=150), blobs.y)
    pairs = draw_pairs(150, 900, rng)
    return blobs.X, blobs.y, pairs, mind[pairs[:, 0]] == mind[pairs[:, 1]]


@pytest.mark.slow
def test_labels_in_mind_are_not_learned_by_heart():
    """Held-out answers about known items applaud a net that knows the wrong labels by heart; answers about new items do not."""
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
        by_heart = VolMaxDCC(3, epochs=200, patience=None, validation_fraction=0.0, **setting).fit(X, pairs, similar)
        right.append(metrics.acc(y, chosen.labels_))
        lost.append(right[-1] - metrics.acc(y, by_heart.labels_))
    assert np.mean(right) > 0.95
    assert np.mean(lost) > 2 * np.std(lost, ddof=1) / np.sqrt(3)
    assert np.mean(lost) > 0.05


@pytest.mark.parametrize("every", [False, True], ids=["another way works", "only K-means works"])
def test_a_useless_fit_says_so_and_falls_back(caplog, monkeypatch, every):
    """A net that puts all items into one cluster: what is returned has no empty cluster, by another specification or as a partition."""
    blobs = make_blobs(n=120, n_pairs=500, seed=1)
    real = Trainer.train

    def ruined(self, *args, **options):
        trial = real(self, *args, **options)
        if args[4] == "fit" or (every and args[4].startswith("another way") and options["exactly"] != 0):
            with torch.no_grad():
                list(trial.model.membership.parameters())[-1].copy_(torch.tensor([1e3, 0.0, 0.0]))
        return trial

    monkeypatch.setattr(Trainer, "train", ruined)
    with caplog.at_level("WARNING", logger="pdcc"):
        est = VolMaxDCC(3, hidden=(16,), epochs=3, random_state=0).fit(
            blobs.X, blobs.answers.pairs, blobs.answers.similar
        )
    assert est.report_.useful.fell_back is not None
    words = "Fell back to" if every else "Trained with confusion"
    assert words in caplog.text
    assert np.bincount(est.labels_, minlength=3).min() > 0
    assert metrics.acc(blobs.y, est.labels_) > 0.9
    assert est.report_.useful.held_out < est.report_.useful.constant
    assert words in str(est.report_)
    assert (len(est.history_) == 0) == every


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


def test_answers_that_say_nothing_leave_the_steadiest_k_means(caplog):
    """Clear blobs in two of sixty columns, the others noise a hundred times smaller, and answers thrown by a coin."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=240)
    X = np.hstack([6 * np.eye(3)[y][:, :2] + rng.normal(size=(240, 2)), 0.01 * rng.normal(size=(240, 58))])
    with caplog.at_level("WARNING", logger="pdcc"):
        est = VolMaxDCC(3, random_state=0).fit(X, draw_pairs(240, 600, rng), rng.integers(2, size=600))
    steady = {kind: steadiness(Scaler.fit(X, kind)(X), 3, 0) for kind in ("standard", "unit")}
    assert steady["unit"] > steady["standard"]
    assert est.report_.start == "unit scale, plain K-means"
    assert str(est.report_.chosen).startswith("confusion rates")
    assert "No setting predicts answers" in est.report_.useful.fell_back
    assert metrics.acc(y, est.labels_) > 0.9
    assert caplog.text


def test_items_that_the_features_do_not_tell_apart_are_learned_by_heart():
    """Classes that only a tenth of the spread of the features shows, and many right answers: clusters along the features cannot be right."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=120)
    X = rng.normal(size=(120, 6)) + 0.4 * np.eye(4, 6)[y]
    pairs = draw_pairs(120, 900, rng)
    est = VolMaxDCC(4, random_state=0).fit(X, pairs, y[pairs[:, 0]] == y[pairs[:, 1]])
    assert "learned by heart" in est.report_.reason
    assert est.report_.start == "standard scale, constrained K-means"
    assert est.report_.useful.within > (1 - MOST_WRONG) ** 2
    plain = metrics.acc(y, kmeans(Scaler.fit(X, "standard")(X), 4, tries=10, seed=0))
    assert metrics.acc(y, est.labels_) > 0.8 > 0.6 > plain


def test_one_wrong_label_in_mind_is_not_learned_by_heart():
    """Clear clusters, a fifth of the items taken for others once and for all: answers within clusters are as often "similar" as that allows."""
    rng = np.random.default_rng(1)
    y = np.arange(150) % 3
    X = 5 * np.eye(3)[y] + rng.normal(size=(150, 3))
    given = mistaken_labels(y, 0.2, rng)
    pairs = draw_pairs(150, 750, rng)
    est = VolMaxDCC(3, random_state=0).fit(X, pairs, given[pairs[:, 0]] == given[pairs[:, 1]])
    assert not est.report_.useful.doubtful
    assert "by heart" not in est.report_.reason
    assert metrics.acc(y, est.labels_) > 0.95
