"""The deep rivals: their formulas against independent ones, and fits that learn, stop, repeat and stay finite."""

import dataclasses
import logging
import math
import pickle
import random

import numpy as np
import pyro
import pytest
import torch
from conftest import make_blobs
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pdcc.annotators import answer_by_labels, draw_pairs
from pdcc.auto.initialise import make_start
from pdcc.baselines import CIDEC, DCGMM
from pdcc.baselines.dcgmm import mixture_batch, pair_weight
from pdcc.baselines.deep import label_moments
from pdcc.baselines.rates import together, two_rate_nll, two_rates
from pdcc.data.pairs import PairData
from pdcc.data.splits import hold_out
from pdcc.datasets import digits
from pdcc.errors import ArtifactError
from pdcc.inference import PairTensors, negative_elbo
from pdcc.inference.pretrain import PretrainConfig, pretrain
from pdcc.inference.svi import quiet_pyro
from pdcc.metrics import acc
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.cidec import EmbeddedClusters, log_target
from pdcc.models.baselines.dcgmm import ConditionalMixture, RecognitionGuide
from pdcc.partition.kmeans import kmeans
from pdcc.storage.files import save_state

SMALL = {
    "hidden": (32,), "latent": 4, "batch_size": 64, "pretrain_epochs": 60, "epochs": 8, "random_state": 0, "device": "cpu",
}  # fmt: skip
BOTH = pytest.mark.parametrize("rival", [DCGMM, CIDEC])


def fitted(rival, blobs, **options):
    return rival(3, **SMALL | options).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)


def data_of(blobs) -> PairData:
    return PairData.from_arrays(blobs.X, blobs.answers.pairs, blobs.answers.similar)


# Fits


@BOTH
def test_blobs_with_clean_pairs_are_found_again(rival, blobs):
    found = fitted(rival, blobs)
    assert acc(blobs.y, found.labels_) >= 0.95
    unseen = make_blobs(seed=0, n=300)  # the same centres, further items
    assert acc(unseen.y[150:], found.predict(unseen.X[150:])) >= 0.95
    assert found.status_ in ("converged", "epochs used")
    assert found.message_.endswith(".")
    assert set(found.history_[0]) == {"epoch", "loss", "changed"}


@BOTH
def test_predictions_are_memberships_and_do_not_vary(rival, blobs):
    found = fitted(rival, blobs, dropout=0.5)
    F = found.predict_proba(blobs.X)
    assert F.shape == (150, 3)
    assert np.allclose(F.sum(axis=1), 1.0)
    assert np.array_equal(F, found.predict_proba(blobs.X))
    assert np.array_equal(F, found.memberships_)
    assert np.array_equal(found.predict(blobs.X), found.labels_)


@BOTH
def test_pairs_help_where_features_do_not_tell_which_clusters_are_meant(rival):
    # Four blobs in a square; the answers are about its columns or about its rows, and K-means cannot know which.
    rng = np.random.default_rng(3)
    corner = rng.integers(2, size=(200, 2))
    X = (6.0 * corner + rng.normal(size=(200, 2))).astype(np.float32)
    for side in (0, 1):
        answers = answer_by_labels(corner[:, side], corner[:, side], draw_pairs(200, 400, rng))
        options = SMALL | {"epochs": 40, "lr": 5e-3, "must_link_weight": 1.0, "tol": 0.0, "batch_size": 100}
        if rival is DCGMM:
            options = {k: v for k, v in options.items() if k not in ("must_link_weight", "tol")}
        found = rival(2, **options).fit(X, answers.pairs, answers.similar)
        assert acc(corner[:, side], found.labels_) >= 0.95


@BOTH
def test_digits_with_clean_pairs_are_no_worse_than_k_means(rival):
    gains = []
    for seed in range(3):
        items = digits(seed=seed)
        X, y = items.X[:600], items.y[:600]
        answers = answer_by_labels(y, y, draw_pairs(600, 3000, np.random.default_rng(seed)))
        size = {"hidden": (256, 128), "latent": 10, "pretrain_epochs": 30, "epochs": 15, "random_state": seed}
        found = rival(10, **SMALL | size)
        found.fit(X, answers.pairs, answers.similar)
        gains.append(acc(y, found.labels_) - acc(y, kmeans(X, 10, tries=10, seed=seed)))
    assert np.mean(gains) >= -np.std(gains, ddof=1) / math.sqrt(3), gains  # within one standard error


@BOTH
def test_a_seed_fixes_everything_and_the_callers_streams_are_left_alone(rival, blobs):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first = fitted(rival, blobs, dropout=0.2, epochs=3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]
    torch.manual_seed(6)
    again = fitted(rival, blobs, dropout=0.2, epochs=3)
    assert again.history_ == first.history_
    assert np.array_equal(again.memberships_, first.memberships_)
    other = fitted(rival, blobs, dropout=0.2, epochs=3, random_state=1)
    assert other.history_ != first.history_
    assert not pyro.get_param_store()


@BOTH
def test_a_run_that_blows_up_says_so_and_predicts_by_the_last_good_state(rival, blobs, caplog):
    with caplog.at_level(logging.WARNING):
        found = fitted(rival, blobs, lr=1e20)
    assert found.status_ == "diverged"
    assert "Lower lr" in found.message_
    assert "Lower lr" in caplog.text
    assert found.history_ == []
    assert np.isfinite(found.memberships_).all()
    # Nothing was learned after the start, which is a fit of the codes without answers.
    assert acc(blobs.y, found.labels_) >= 0.95
    assert np.isfinite(found.predict_proba(1e6 * blobs.X)).all()


@BOTH
def test_early_stopping_keeps_the_epoch_that_predicts_held_out_pairs_best(rival, noisy_blobs):
    options = {"validation_fraction": 0.3, "patience": 3, "epochs": 60, "lr": 3e-3} | (
        {"tol": 0.0} if rival is CIDEC else {"flip_rate": 0.15}
    )
    found = fitted(rival, noisy_blobs, **options)
    scores = [h["held_out"] for h in found.history_]
    assert found.status_ == "converged"
    assert "Held-out" in found.message_
    assert len(scores) == int(np.argmin(scores)) + 1 + 3
    train, held, _ = hold_out(data_of(noisy_blobs), 0.3, 0)
    assert two_rate_nll(found.memberships_, train, held).mean() == pytest.approx(min(scores), rel=1e-6)
    assert scores[-1] > min(scores)


def test_c_idec_stops_when_few_labels_change(blobs):
    stopped = fitted(CIDEC, blobs, tol=0.9)
    assert stopped.status_ == "converged"
    assert len(stopped.history_) == 1
    assert "fewer than 90.00%" in stopped.message_
    assert len(fitted(CIDEC, blobs, tol=0.0).history_) == SMALL["epochs"]


@BOTH
@pytest.mark.parametrize("shift", [0, 1])
def test_a_given_start_is_where_training_sets_out_from(rival, shift, blobs, monkeypatch):
    data = data_of(blobs)
    start = make_start(data.features, 3, data, scales=(None,), init="pairs", seed=0)
    start = dataclasses.replace(start, labels=(start.labels + shift) % 3)
    monkeypatch.setattr("pdcc.baselines.base.make_start", lambda *_, **__: start)
    found = fitted(rival, blobs, init="pairs", epochs=1, lr=1e-9)
    # Cluster k is label k whatever the labels' order; a start of the rival's own has one order.
    assert np.mean(found.labels_ == start.labels) >= 0.95


@BOTH
def test_fits_survive_features_without_any_spread(rival, blobs):
    X = np.ones_like(blobs.X)
    found = rival(3, **SMALL | {"epochs": 2}).fit(X, blobs.answers.pairs, blobs.answers.similar)
    assert np.isfinite(found.memberships_).all()


@BOTH
def test_units_of_measurement_do_not_matter(rival, blobs):
    found = fitted(rival, blobs, epochs=3)
    scaled = rival(3, **SMALL | {"epochs": 3}).fit(1024 * blobs.X, blobs.answers.pairs, blobs.answers.similar)
    assert np.allclose(scaled.memberships_, found.memberships_, atol=1e-6)


@BOTH
def test_fitted_rivals_clone_and_travel(rival, blobs):
    found = fitted(rival, blobs, epochs=2)
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
    (DCGMM, {"weight": None}, TypeError, "weight"), (DCGMM, {"weight": "bayes", "flip_rate": 0.0}, ValueError, "infinite"),
    (CIDEC, {"exponent": 0.0}, ValueError, "exponent"), (CIDEC, {"tol": 1.0}, ValueError, "tol"),
    (CIDEC, {"kl_weight": -1.0}, ValueError, "kl_weight"), (CIDEC, {"must_link_weight": "a"}, TypeError, "must_link_weight"),
    (CIDEC, {"cannot_link_weight": math.nan}, ValueError, "cannot_link_weight"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rival", "options", "error", "match"),
    [(rival, *case) for rival in (DCGMM, CIDEC) for case in BAD] + BAD_OWN,
)
def test_bad_parameters_are_named(rival, options, error, match, blobs):
    with pytest.raises(error, match=match):
        fitted(rival, blobs, **options)


# Pretraining


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


@BOTH
def test_a_pretrained_autoencoder_is_kept_and_used_again(rival, blobs, tmp_path, monkeypatch):
    store = tmp_path / "deeper"
    plain = fitted(rival, blobs, epochs=2)
    first = fitted(rival, blobs, epochs=2, pretrained=store)
    (path,) = store.iterdir()

    def fails(*_, **__):
        raise AssertionError("pretrained again")

    monkeypatch.setattr("pdcc.inference.pretrain.pretrain", fails)
    second = fitted(rival, blobs, epochs=2, pretrained=str(store))
    for found in (first, second):
        assert np.array_equal(found.memberships_, plain.memberships_)
    fitted(rival, blobs, epochs=1, pretrained=store, dropout=0.5, lr=1e-2)  # neither takes part in pretraining
    for other in ({"random_state": 1}, {"scale": "standard"}, {"hidden": (16,)}, {"pretrain_epochs": 3}):
        with pytest.raises(AssertionError, match="pretrained again"):
            fitted(rival, blobs, **{"epochs": 1, "pretrained": store} | other)
    save_state(path, {}, {"pretrain": "another"})
    with pytest.raises(ArtifactError, match="than its name says"):
        fitted(rival, blobs, epochs=1, pretrained=store)
    path.write_bytes(b"not a state")
    with pytest.raises(ArtifactError, match="not a readable"):
        fitted(rival, blobs, epochs=1, pretrained=store)


def test_label_moments():
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(40, 3)), np.repeat([0, 2], [39, 1])
    means, variances = label_moments(Z, labels, 3)
    assert np.allclose(means[0], Z[:39].mean(axis=0))
    assert np.allclose(means[1], Z.mean(axis=0))  # nobody there
    assert np.allclose(means[2], Z[39])
    assert np.allclose(variances[0], (39 * Z[:39].var(axis=0) + Z.var(axis=0)) / 40)
    assert np.allclose(variances[1:], np.stack([Z.var(axis=0), Z.var(axis=0) / 2]))


# DC-GMM


def small_mixture(dtype=torch.float64, weight=7.0, device="cpu"):
    """Model, guide and pairs: N = 6 items in d = 5, M = 4 pairs, K = 3, L = 2, nothing at zero."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, generator=g, dtype=dtype)
    pairs = PairTensors(x, torch.tensor([0, 1, 2, 5]), torch.tensor([3, 4, 0, 1]), torch.tensor([1.0, 0, 0, 1]))
    torch.manual_seed(1)
    net = Autoencoder(5, (7, 6), 2)
    sizes = {"n_items": 6, "n_pairs": 4}
    model = ConditionalMixture(net.decoder, 3, 2, **sizes, weight=weight)
    model.start(torch.randn(3, 2), torch.rand(3, 2) + 0.3)
    guide = RecognitionGuide(net.encoder, 2, **sizes, start_variance=0.4)
    with torch.no_grad():
        guide.log_variance.weight.normal_(std=0.3)
    return model.to(device, dtype), guide.to(device, dtype), pairs.to(torch.device(device))


def numpy_responsibilities(model, z):
    loc, var = (p.detach().numpy() for p in (model.loc, model.log_variance.exp()))
    parts = np.stack([norm.logpdf(z, loc[k], np.sqrt(var[k])).sum(-1) - np.log(len(loc)) for k in range(len(loc))], -1)
    return parts, np.exp(parts - logsumexp(parts, axis=-1, keepdims=True))


def numpy_decoder(decoder, z):
    for layer in decoder.body:
        if isinstance(layer, torch.nn.Linear):
            z = np.maximum(z @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    return z @ decoder.head.weight.detach().numpy().T + decoder.head.bias.detach().numpy()


def told(model, pairs, z, items, index):
    """Log density of every site of a batch, at given codes z (N, L)."""
    batch = mixture_batch(pairs, torch.as_tensor(items), torch.as_tensor(index))
    codes = {"z": z[batch.items], "z_left": z[pairs.i[batch.index]], "z_right": z[pairs.j[batch.index]]}
    trace = pyro.poutine.trace(pyro.condition(model, codes)).get_trace(batch)
    trace.compute_log_prob()
    return trace


def test_log_joint_against_an_independent_formula():
    model, _, pairs = small_mixture()
    z = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    trace = told(model, pairs, z, range(6), range(4))
    joint, r = numpy_responsibilities(model, z.numpy())
    sites = {
        "z": logsumexp(joint, axis=-1).sum(),
        "x": norm.logpdf(pairs.x.numpy(), numpy_decoder(model.decoder, z.numpy()), 1.0).sum(),
        "pairs": 7.0 * sum(s * (r[i] * r[j]).sum() for i, j, s in [(0, 3, 1), (1, 4, -1), (2, 0, -1), (5, 1, 1)]),
    }
    for name, expected in sites.items():
        assert float(trace.nodes[name]["log_prob_sum"].detach()) == pytest.approx(expected, abs=1e-8), name
    assert float(trace.log_prob_sum().detach()) == pytest.approx(sum(sites.values()), abs=1e-8)
    assert abs(sites["pairs"]) > 1e-2


def test_batches_estimate_the_whole():
    model, _, pairs = small_mixture()
    z = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole = told(model, pairs, z, range(6), range(4)).log_prob_sum()
    parts = [told(model, pairs, z, i, m).log_prob_sum() for i, m in (([0, 4, 5], [1, 2]), ([1, 2, 3], [0, 3]))]
    assert float(sum(parts).detach() / 2) == pytest.approx(float(whole.detach()), abs=1e-8)


def test_the_bound_is_log_joint_less_log_guide_of_the_items_alone():
    model, guide, pairs = small_mixture()
    batch = mixture_batch(pairs, torch.tensor([1, 3, 4]), torch.tensor([0, 2]))
    torch.manual_seed(4)
    loss = float(negative_elbo(model, guide, batch).detach())
    torch.manual_seed(4)
    drawn = pyro.poutine.trace(guide).get_trace(batch).nodes
    z, left, right = (drawn[name]["value"].detach().numpy() for name in ("z", "z_left", "z_right"))
    mean, deviation = (part.detach().numpy() for part in guide.posterior(batch.x))
    joint, _ = numpy_responsibilities(model, z)
    observed = norm.logpdf(batch.x.numpy(), numpy_decoder(model.decoder, z), 1.0).sum()
    own = 6 / 3 * (logsumexp(joint, axis=-1).sum() + observed - norm.logpdf(z, mean, deviation).sum())
    same = (numpy_responsibilities(model, left)[1] * numpy_responsibilities(model, right)[1]).sum(-1)
    assert loss == pytest.approx(-own - 4 / 2 * 7.0 * (same[0] - same[1]), abs=1e-8)


def test_responsibilities_are_exact_and_finite_anywhere():
    model, _, _ = small_mixture()
    z = torch.randn(50, 2, dtype=torch.float64)
    assert np.allclose(
        model.log_responsibilities(z).exp().detach().numpy(), numpy_responsibilities(model, z.numpy())[1]
    )
    single, _, _ = small_mixture(dtype=torch.float32)
    far = torch.tensor([[3e38, -3e38], [1e30, 0.0], [0.0, 0.0], [-1e19, 1e19]], requires_grad=True)
    log_r = single.log_responsibilities(far)
    assert log_r.isfinite().all()
    assert torch.allclose(log_r.exp().sum(-1), torch.ones(4, dtype=torch.float64))
    (log_r.exp()[:, 0]).sum().backward()
    assert far.grad.isfinite().all()


def test_weights():
    assert pair_weight("paper", 0.0) == 10_000
    assert pair_weight("paper", 0.2) == pytest.approx(1000 * math.log(4))
    assert pair_weight("bayes", 0.2) == pytest.approx(math.log(4))
    assert pair_weight(3, 0.2) == 3.0


@pytest.mark.parametrize(("options", "weight"), [({"flip_rate": 0.0}, 10_000.0), ({"weight": 2.5}, 2.5)])
def test_the_weight_reaches_the_model(options, weight, blobs):
    assert fitted(DCGMM, blobs, epochs=1, **options).model_.weight == weight


# C-IDEC


def small_clusters(exponent=2.0, seed=0):
    torch.manual_seed(seed)
    module = EmbeddedClusters(Autoencoder(5, (8,), 2), 3, 2, exponent).double()
    with torch.no_grad():
        module.centres.normal_()
    return module


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_assignments_and_their_target_against_the_formulas(exponent):
    module = small_clusters(exponent)
    z = torch.randn(9, 2, dtype=torch.float64)
    q = np.array(
        [[1 / (1 + ((a - b) ** 2).sum()) ** exponent for b in module.centres.detach().numpy()] for a in z.numpy()]
    )
    q /= q.sum(axis=1, keepdims=True)
    log_q = module.log_assign(z).detach()
    assert np.allclose(log_q.exp().numpy(), q)
    p = q**2 / q.sum(axis=0)
    assert np.allclose(log_target(log_q).exp().numpy(), p / p.sum(axis=1, keepdims=True))


def test_losses_against_the_formulas():
    module = small_clusters()
    x, y = torch.randn(2, 7, 5, dtype=torch.float64).unbind()
    q, s = (module(part).exp().detach().numpy() for part in (x, y))
    p = log_target(module(x))
    error = [((module.autoencoder(part) - part) ** 2).mean().item() for part in (x, y)]
    kl = (p.exp().numpy() * (p.numpy() - np.log(q))).sum(axis=1).mean()
    same = (q * s).sum(axis=1)
    assert module.cluster_loss(x, p, 0.1).item() == pytest.approx(error[0] + 0.1 * kl)
    assert module.must_link_loss(x, y, 0.3).item() == pytest.approx(-0.3 * np.log(same).mean() + sum(error))
    assert module.cannot_link_loss(x, y, 0.7).item() == pytest.approx(-0.7 * np.log(1 - same).mean())


@pytest.mark.parametrize(("kind", "sign"), [("must", 1), ("cannot", -1)])
def test_links_pull_together_and_push_apart(kind, sign):
    module = small_clusters()
    codes = torch.tensor([[0.4, 0.1], [-0.3, 0.5]], dtype=torch.float64, requires_grad=True)

    def same_cluster(z):
        q = module.log_assign(z.detach()).exp().detach()
        return float((q[0] * q[1]).sum())

    logits = module._link_logits(codes[:1], codes[1:])
    torch.nn.functional.softplus(-sign * logits).sum().backward()
    assert sign * (same_cluster(codes - 0.05 * codes.grad) - same_cluster(codes)) > 1e-3


def test_link_losses_are_finite_where_assignments_are_certain():
    module = small_clusters(exponent=200.0).float()
    with torch.no_grad():
        module.centres.copy_(torch.tensor([[0.0, 0.0], [1e6, 0.0], [0.0, 1e6]]))
    here, there = torch.zeros(1, 2, requires_grad=True), torch.full((1, 2), 0.0) + module.centres[1].detach()
    for other in (here, there):
        logits = module._link_logits(here, other)
        for sign in (1, -1):
            loss = torch.nn.functional.softplus(sign * logits).sum()
            assert torch.isfinite(loss)
            assert torch.isfinite(torch.autograd.grad(loss, here, retain_graph=True)[0]).all()


# Placement


class OneDevice(TorchDispatchMode):
    """Fails on any operator that sees tensors of two devices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen = {t.device.type for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)}
        assert len(seen) <= 1, f"{func} mixes {seen}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("planted", [False, True])
def test_a_step_of_dc_gmm_stays_on_the_models_device(planted):
    model, guide, pairs = small_mixture(dtype=torch.float32, device="meta")
    batch = mixture_batch(pairs, torch.arange(3, device="meta"), torch.arange(2, device="meta"))
    if planted:
        model._buffers["log_pi"] = torch.zeros(3)
    with quiet_pyro(0, torch.device("meta")), OneDevice():
        if planted:
            with pytest.raises((AssertionError, RuntimeError)):
                negative_elbo(model, guide, batch)
        else:
            loss = negative_elbo(model, guide, batch)
            loss.backward()
            assert loss.device.type == "meta"


def test_a_step_of_c_idec_stays_on_the_modules_device():
    module = small_clusters().to("meta")
    x = torch.randn(6, 5, dtype=torch.float64, device="meta")
    with OneDevice():
        target = log_target(module(x))
        loss = (
            module.cluster_loss(x, target, 0.1) + module.must_link_loss(x, x, 0.1) + module.cannot_link_loss(x, x, 1.0)
        )
        loss.backward()
    assert loss.device.type == "meta"


# Two rates


def test_two_rates_are_the_optimum_and_recover_the_truth():
    rng = np.random.default_rng(0)
    F = rng.dirichlet(np.full(3, 0.3), size=400)
    pairs = draw_pairs(400, 20_000, rng)
    s = (F[pairs[:, 0]] * F[pairs[:, 1]]).sum(axis=1)
    data = PairData.from_arrays(F, pairs, rng.random(20_000) < 0.1 + 0.7 * s)
    a, b = two_rates(F, data)
    # Standard errors at the truth are .007 and .004, from the curvature below; four of them.
    assert a == pytest.approx(0.8, abs=0.028)
    assert b == pytest.approx(0.1, abs=0.016)

    def loss(rates):
        p = rates[1] + (rates[0] - rates[1]) * together(F, data)
        prior = 0.5 * (np.log(rates).sum() + np.log1p(-np.asarray(rates)).sum())
        return -np.where(data.similar, np.log(p), np.log1p(-p)).sum() - prior

    best = minimize(loss, (0.5, 0.4), bounds=[(1e-3, 1 - 1e-3)] * 2)
    assert (a, b) == pytest.approx(tuple(best.x), abs=1e-3)
    assert loss((a, b)) <= best.fun + 1e-6


def test_two_rates_of_a_partition_are_shares_and_stay_off_the_edges(blobs):
    data, F = data_of(blobs), np.eye(3)[blobs.y]
    inside = blobs.y[data.i] == blobs.y[data.j]
    a, b = two_rates(F, data)
    assert a == pytest.approx((inside.sum() + 0.5) / (inside.sum() + 1))  # every answer is right
    assert b == pytest.approx(0.5 / ((~inside).sum() + 1))
    nll = two_rate_nll(F, data.subset(np.arange(300)), data.subset(np.arange(300, 600)))
    assert nll.shape == (300,)
    assert 0 < nll.mean() < 0.02
    shuffled = np.random.default_rng(0).permutation(F)
    assert two_rate_nll(shuffled, data.subset(np.arange(300)), data.subset(np.arange(300, 600))).mean() > 0.5
