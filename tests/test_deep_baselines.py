"""DC-GMM, C-IDEC and SpherePair by one contract: fits that learn, stop, repeat and stay finite, and pretraining kept between them."""

import dataclasses
import logging
import math
import pickle
import random

import numpy as np
import pyro
import pytest
import torch
from helpers import DEEP, make_blobs
from sklearn.base import clone

from pdcc.annotators import answer_by_labels, draw_pairs
from pdcc.baselines.cidec import CIDEC
from pdcc.baselines.dcgmm import DCGMM
from pdcc.baselines.deep import label_moments
from pdcc.baselines.kmeans import kmeans
from pdcc.baselines.rates import two_rate_nll
from pdcc.baselines.spherepair import SpherePair
from pdcc.data.pairs import PairData
from pdcc.data.splits import hold_out
from pdcc.datasets import digits
from pdcc.errors import ArtifactError
from pdcc.inference.pretrain import PretrainConfig, pretrain
from pdcc.metrics import acc
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.select.search import prepare
from pdcc.storage.files import save_state

EACH = pytest.mark.parametrize("baseline", [DCGMM, CIDEC, SpherePair])


def fitted(baseline, blobs, **options):
    return baseline(3, **DEEP | options).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)


def data_of(blobs) -> PairData:
    return PairData.from_arrays(blobs.X, blobs.answers.pairs, blobs.answers.similar)


@EACH
def test_blobs_with_clean_pairs_are_found_again(baseline, blobs):
    found = fitted(baseline, blobs)
    assert acc(blobs.y, found.labels_) >= 0.95
    unseen = make_blobs(seed=0, n=300)  # the same centres, further items
    assert acc(unseen.y[150:], found.predict(unseen.X[150:])) >= 0.95
    assert found.status_ in ("converged", "epochs used")
    assert set(found.history_[0]) == {"epoch", "loss", "changed"}


@EACH
def test_predictions_are_memberships_and_do_not_vary(baseline, blobs):
    found = fitted(baseline, blobs, dropout=0.5)
    F = found.predict_proba(blobs.X)
    assert F.shape == (150, 3)
    assert np.allclose(F.sum(axis=1), 1.0)
    assert np.array_equal(F, found.predict_proba(blobs.X))
    assert np.array_equal(F, found.memberships_)
    assert np.array_equal(found.predict(blobs.X), found.labels_)


@EACH
def test_pairs_help_where_features_do_not_tell_which_clusters_are_meant(baseline):
    # Four blobs in a square; the answers are about its columns or about its rows, and K-means cannot know which.
    rng = np.random.default_rng(3)
    corner = rng.integers(2, size=(200, 2))
    X = (6.0 * corner + rng.normal(size=(200, 2))).astype(np.float32)
    for side in (0, 1):
        answers = answer_by_labels(corner[:, side], corner[:, side], draw_pairs(200, 400, rng))
        options = DEEP | {"epochs": 40, "lr": 5e-3, "must_link_weight": 1.0, "tol": 0.0, "batch_size": 100}
        if baseline is not CIDEC:
            options = {k: v for k, v in options.items() if k not in ("must_link_weight", "tol")}
        found = baseline(2, **options).fit(X, answers.pairs, answers.similar)
        assert acc(corner[:, side], found.labels_) >= 0.95


@pytest.mark.slow
@EACH
def test_digits_with_clean_pairs_are_no_worse_than_k_means(baseline):
    gains = []
    for seed in range(3):
        items = digits(seed=seed)
        X, y = items.X[:600], items.y[:600]
        answers = answer_by_labels(y, y, draw_pairs(600, 3000, np.random.default_rng(seed)))
        size = {"hidden": (256, 128), "latent": 10, "pretrain_epochs": 30, "epochs": 15, "random_state": seed}
        found = baseline(10, **DEEP | size)
        found.fit(X, answers.pairs, answers.similar)
        gains.append(acc(y, found.labels_) - acc(y, kmeans(X, 10, tries=10, seed=seed)))
    assert np.mean(gains) >= -np.std(gains, ddof=1) / math.sqrt(3), gains  # within one standard error


@EACH
def test_a_seed_fixes_everything_and_the_callers_streams_are_left_alone(baseline, blobs):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first = fitted(baseline, blobs, dropout=0.2, epochs=3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]
    torch.manual_seed(6)
    again = fitted(baseline, blobs, dropout=0.2, epochs=3)
    assert again.history_ == first.history_
    assert np.array_equal(again.memberships_, first.memberships_)
    other = fitted(baseline, blobs, dropout=0.2, epochs=3, random_state=1)
    assert other.history_ != first.history_
    assert not pyro.get_param_store()


@EACH
def test_a_run_that_blows_up_says_so_and_predicts_by_the_last_good_state(baseline, blobs, caplog):
    with caplog.at_level(logging.WARNING):
        found = fitted(baseline, blobs, lr=1e20)
    assert found.status_ == "diverged"
    assert found.message_ in caplog.text
    assert found.history_ == []
    assert np.isfinite(found.memberships_).all()
    # Nothing was learned after the start, which is a fit of the codes without answers.
    assert acc(blobs.y, found.labels_) >= 0.95
    assert np.isfinite(found.predict_proba(1e6 * blobs.X)).all()


@EACH
def test_early_stopping_keeps_the_epoch_that_predicts_held_out_pairs_best(baseline, noisy_blobs):
    own = {CIDEC: {"tol": 0.0}, DCGMM: {"flip_rate": 0.15}, SpherePair: {"scale": None}}
    options = {"validation_fraction": 0.3, "patience": 3, "epochs": 60, "lr": 3e-3} | own[baseline]
    found = fitted(baseline, noisy_blobs, **options)
    scores = [h["held_out"] for h in found.history_]
    assert found.status_ == "converged"
    assert len(scores) == int(np.argmin(scores)) + 1 + 3
    data = data_of(noisy_blobs)
    kept = hold_out(data, 0.3, 0)
    assert two_rate_nll(found.memberships_, kept.train(data), kept.test(data)).mean() == pytest.approx(
        min(scores), rel=1e-6
    )
    assert scores[-1] > min(scores)


@EACH
@pytest.mark.parametrize("shift", [0, 1])
def test_training_begins_at_the_chosen_partition(baseline, shift, blobs, monkeypatch):
    chosen = []

    def shifted(*args):
        found = prepare(*args)
        chosen.append((found.chosen.labels + shift) % 3)
        return dataclasses.replace(found, chosen=dataclasses.replace(found.chosen, labels=chosen[-1]))

    monkeypatch.setattr("pdcc.baselines.deep.prepare", shifted)
    found = fitted(baseline, blobs, scale=None, init="pairs", epochs=1, lr=1e-9)
    # Cluster k is label k whatever the labels' order; a partition of the baseline's own has one order.
    assert np.mean(found.labels_ == chosen[0]) >= 0.9


@EACH
def test_fits_survive_features_without_any_spread(baseline, blobs):
    X = np.ones_like(blobs.X)
    found = baseline(3, scale=None, **DEEP | {"epochs": 2}).fit(X, blobs.answers.pairs, blobs.answers.similar)
    assert np.isfinite(found.memberships_).all()


@EACH
def test_units_of_measurement_do_not_matter(baseline, blobs):
    found = fitted(baseline, blobs, epochs=3)
    scaled = baseline(3, **DEEP | {"epochs": 3}).fit(1024 * blobs.X, blobs.answers.pairs, blobs.answers.similar)
    assert np.allclose(scaled.memberships_, found.memberships_, atol=1e-6)


@EACH
def test_fitted_baselines_clone_and_travel(baseline, blobs):
    found = fitted(baseline, blobs, epochs=2)
    assert clone(found).get_params() == found.get_params()
    there = pickle.loads(pickle.dumps(found))
    assert np.array_equal(there.predict_proba(blobs.X), found.memberships_)


BAD = [
    ({"hidden": "500"}, TypeError, "hidden"), ({"hidden": (0,)}, ValueError, "hidden"), ({"latent": 0}, ValueError, "latent"),
    ({"epochs": 1.5}, TypeError, "epochs"), ({"pretrain_epochs": -1}, ValueError, "pretrain_epochs"),
    ({"batch_size": 0}, ValueError, "batch_size"), ({"lr": 0.0}, ValueError, "lr"), ({"lr": "fast"}, TypeError, "lr"),
    ({"dropout": 1.0}, ValueError, "dropout"), ({"corruption": -0.1}, ValueError, "corruption"),
    ({"patience": 0}, ValueError, "patience"), ({"validation_fraction": 1.0}, ValueError, "validation_fraction"),
    ({"pretrained": 3}, TypeError, "pretrained"), ({"progress": "yes"}, TypeError, "progress"),
    ({"device": "nowhere"}, ValueError, "device"), ({"init": "random"}, ValueError, "init"),
]  # fmt: skip


BAD_OWN = [
    (DCGMM, {"flip_rate": 0.5}, ValueError, "flip_rate"), (DCGMM, {"flip_rate": None}, TypeError, "flip_rate"),
    (DCGMM, {"weight": "soft"}, ValueError, "weight"), (DCGMM, {"weight": -1.0}, ValueError, "weight"),
    (DCGMM, {"weight": None}, TypeError, "weight"), (DCGMM, {"weight": "bayes", "flip_rate": 0.0}, ValueError, "weight"),
    (CIDEC, {"exponent": 0.0}, ValueError, "exponent"), (CIDEC, {"tol": 1.0}, ValueError, "tol"),
    (CIDEC, {"kl_weight": -1.0}, ValueError, "kl_weight"), (CIDEC, {"must_link_weight": "a"}, TypeError, "must_link_weight"),
    (CIDEC, {"cannot_link_weight": math.nan}, ValueError, "cannot_link_weight"),
    (SpherePair, {"omega": 0.5}, ValueError, "omega"), (SpherePair, {"omega": "2"}, TypeError, "omega"),
    (SpherePair, {"reconstruction_weight": -1.0}, ValueError, "reconstruction_weight"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("baseline", "options", "error", "name"),
    [(baseline, *case) for baseline in (DCGMM, CIDEC, SpherePair) for case in BAD] + BAD_OWN,
)
def test_bad_parameters_are_named(baseline, options, error, name, blobs):
    with pytest.raises(error, match=rf"^{name}: expected"):
        fitted(baseline, blobs, **options)


def test_pretraining_reconstructs_and_never_leaves_a_net_that_is_not_finite():
    x = torch.as_tensor(make_blobs().X) / 3
    net = Autoencoder(4, (32,), 4)
    errors = pretrain(net, x, PretrainConfig((32,), 4, epochs=30, batch_size=32))
    assert errors[-1] < 0.1 * errors[0]
    noisy = pretrain(Autoencoder(4, (32,), 4), x, PretrainConfig((32,), 4, epochs=30, batch_size=32, corruption=0.5))
    assert noisy[-1] > 2 * errors[-1]  # blanked entries cannot all be guessed
    errors = pretrain(net, x, PretrainConfig((32,), 4, epochs=30, batch_size=32, lr=1e30))
    assert len(errors) < 30
    assert all(p.isfinite().all() for p in net.parameters())


@EACH
def test_a_pretrained_autoencoder_is_kept_and_used_again(baseline, blobs, tmp_path, monkeypatch):
    store = tmp_path / "deeper"
    plain = fitted(baseline, blobs, epochs=2)
    first = fitted(baseline, blobs, epochs=2, pretrained=store)
    (path,) = store.iterdir()

    def fails(*_, **__):
        raise AssertionError("pretrained again")

    monkeypatch.setattr("pdcc.inference.pretrain.pretrain", fails)
    second = fitted(baseline, blobs, epochs=2, pretrained=str(store))
    for found in (first, second):
        assert np.array_equal(found.memberships_, plain.memberships_)
    fitted(baseline, blobs, epochs=1, pretrained=store, dropout=0.5, lr=1e-2)  # neither takes part in pretraining
    for other in ({"random_state": 1}, {"scale": "unit"}, {"hidden": (16,)}, {"pretrain_epochs": 3}):
        with pytest.raises(AssertionError, match="pretrained again"):
            fitted(baseline, blobs, **{"epochs": 1, "pretrained": store} | other)
    save_state(path, {}, {"pretrain": "another"})
    with pytest.raises(ArtifactError, match=f"{path.name}: .*other"):
        fitted(baseline, blobs, epochs=1, pretrained=store)
    path.write_bytes(b"not a state")
    with pytest.raises(ArtifactError, match=f"{path.name}: not a readable"):
        fitted(baseline, blobs, epochs=1, pretrained=store)


def test_label_moments():
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(40, 3)), np.repeat([0, 2], [39, 1])
    means, variances = label_moments(Z, labels, 3)
    assert np.allclose(means[0], Z[:39].mean(axis=0))
    assert np.allclose(means[1], Z.mean(axis=0))  # nobody there
    assert np.allclose(means[2], Z[39])
    assert np.allclose(variances[0], (39 * Z[:39].var(axis=0) + Z.var(axis=0)) / 40)
    assert np.allclose(variances[1:], np.stack([Z.var(axis=0), Z.var(axis=0) / 2]))
