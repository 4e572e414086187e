"""Posterior engines: the right density, draws that agree with each other, and InferenceData people can use."""

import copy
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyro
import pytest
import torch

from pdcc import PairData, VanillaDCC, VolMaxDCC, metrics
from pdcc.data.splits import split
from pdcc.inference import FitConfig, PairTensors, fit, hmc, map_guide, memberships
from pdcc.inference.ensemble import fit_ensemble
from pdcc.inference.nuts import nuts_posterior
from pdcc.inference.stack import Stack
from pdcc.inference.variational import svi_posterior
from pdcc.models import (
    AnnotationModel,
    Membership,
    NetworkMembership,
    PairBatch,
    log_volume,
    make_confusion,
    plain_weights,
    similar_logits,
)
from pdcc.models.last_layer import LastLayerModel, basis, last_linear, uncertain_confusion
from pdcc.posterior import measured
from pdcc.posterior.last_layer import LOGITS, double, last_layer_draws, last_layer_of
from pdcc.posterior.refits import numbered_like
from pdcc.training import tensors

SMALL = {"hidden": (8,), "dropout": 0.0, "scale": "standard", "init": "random", "partition_weight": 0.0, "epochs": 15,
         "lr": 1e-2, "batch_size": 100, "progress": False, "device": "cpu"}  # fmt: skip


def fitted(blobs, form="stochastic", volume=1e-3):
    est = VolMaxDCC(3, confusion=form, volume=volume, random_state=0, **SMALL)
    return est.fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)


@pytest.fixture(scope="module")
def est(noisy_blobs):
    return fitted(noisy_blobs)


def data_of(blobs):
    return PairData.from_arrays(blobs.X, blobs.answers.pairs, blobs.answers.similar)


def log_joint(model, batch, values):
    with plain_weights(), torch.no_grad():
        return float(pyro.poutine.trace(pyro.condition(model, data=values)).get_trace(batch).log_prob_sum())


def test_batched_likelihood_and_volume_are_the_single_ones():
    torch.manual_seed(0)
    F = torch.softmax(torch.randn(4, 10, 3, dtype=torch.float64), -1)
    B = torch.rand(4, 3, 3, dtype=torch.float64)
    many = similar_logits(F[:, :5], F[:, 5:], B[:, None])
    for r in range(4):
        torch.testing.assert_close(many[r], similar_logits(F[r, :5], F[r, 5:], B[r]))
        torch.testing.assert_close(log_volume(F)[r], log_volume(F[r]))


def test_the_last_layer_of_any_network_is_found():
    x = torch.randn(6, 1, 4, 4)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    hidden, last = last_linear(NetworkMembership(network, 3), x)
    assert last is network[-1]
    torch.testing.assert_close(last(hidden), network(x))
    with pytest.raises(ValueError, match=r"^network: expected"):
        last_linear(NetworkMembership(torch.nn.Sequential(network, torch.nn.Tanh()), 3), x)


def test_the_basis_keeps_the_logits_and_the_prior():
    torch.manual_seed(0)
    hidden, weight = torch.randn(50, 6).relu(), torch.randn(7, 3)
    logits = torch.cat([hidden, torch.ones(50, 1)], 1) @ weight
    G, w = basis(hidden, weight, 1.0, tolerance=0.0)
    torch.testing.assert_close(G @ w, logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(w.square().sum(), weight.square().sum())  # a rotation: the Normal prior's density stays
    hidden[:, 0] *= 1e4  # one column in other units must not crowd out the rest
    logits = torch.cat([hidden, torch.ones(50, 1)], 1) @ weight
    G, w = basis(hidden, weight, 1.0)
    torch.testing.assert_close(G @ w, logits, rtol=1e-5, atol=0.05)
    hidden[:, 1] = 1e-4 * torch.randn(50)  # a direction that moves no logit is left out
    assert basis(hidden, weight, 1.0)[0].shape[1] == 6


@pytest.mark.parametrize("form", ["none", "stochastic"])
def test_the_head_tells_the_same_story(noisy_blobs, form):
    """log p of the head model = log p of the fitted model (exact volume) + the Normal prior of the weights."""
    est = fitted(noisy_blobs, form)
    data, x = data_of(noisy_blobs), est.fitted_.scaled(noisy_blobs.X)
    net = est.model_.membership
    with torch.no_grad():
        G, w = basis(
            net.layers[:-1](x), torch.cat([net.layers[-1].weight.mT, net.layers[-1].bias[None]]), 0.7, tolerance=0.0
        )
    whole = AnnotationModel(net, est.model_.confusion, n_pairs=len(data), volume=1e-3)
    form_of_b = uncertain_confusion(whole.confusion, 3, None, torch.eye(3))
    head = LastLayerModel(whole, G.shape[1], 0.7, len(data), form_of_b, volume=1e-3)
    pairs = tensors(data, x)
    every = torch.arange(len(data))
    values = {} if form == "none" else {"confusion_columns": torch.tensor(est.confusion_.T, dtype=torch.float32)}
    plain = log_joint(whole, pairs.batch(every, exact_volume=True), values)
    batch = PairBatch(G, pairs.similar, every, torch.cat([pairs.i, pairs.j]))
    prior = float(torch.distributions.Normal(0.0, 0.7).log_prob(w).sum())
    assert log_joint(head, batch, values | {"weight": w}) == pytest.approx(plain + prior, rel=1e-5)


@pytest.mark.parametrize("form", ["none", "sigmoid", "sigmoid-paper", "stochastic", "per-annotator"])
@pytest.mark.parametrize("partition", [False, True], ids=["pairs-only", "partition"])
def test_refits_and_the_pyro_program_have_one_objective(form, partition):
    """What the stacked members minimise is -log joint / M of the program, for every form of confusion (constants cancel in differences)."""
    g = torch.Generator().manual_seed(0)
    n, m, K, R = 30, 80, 3, 2
    x = torch.randn(n, 4, generator=g, dtype=torch.float64)
    i, j = torch.randint(n, (2, m), generator=g)
    pairs = PairTensors(x, i, j, torch.randint(2, (m,), generator=g).double(), torch.randint(R + 1, (m,), generator=g))
    torch.manual_seed(1)
    nets = [Membership(4, K, (5,)).double() for _ in range(2)]
    labels = torch.arange(n) % K if partition else None
    like = AnnotationModel(
        nets[0], make_confusion(form, K, R), n_pairs=m, volume=0.02, partition=labels, partition_weight=0.3
    ).double()
    stack = Stack(nets, like, pairs)
    with torch.no_grad():
        for part in (stack.raw, stack.shift, stack.partition):
            part += 0.5 * torch.randn(part.shape, generator=g, dtype=part.dtype)
    index = torch.arange(10, 50)
    ours = stack.losses(index, x.new_ones(2, m), x.new_full((2,), 0.02)).detach()

    told = []
    for r, net in enumerate(nets):
        model = AnnotationModel(
            net, make_confusion(form, K, R), n_pairs=m, volume=0.02, partition=labels, partition_weight=0.3
        ).double()
        if form.startswith("sigmoid"):
            model.confusion.raw.data.copy_(stack.raw[r])
        values = {
            "confusion_columns": torch.softmax(stack.raw[r], -1),
            "annotator_shift": stack.shift[r],
            "partition_columns": torch.softmax(stack.partition[r], -1),
        }
        told.append(-log_joint(model, pairs.batch(index), values) / m)
    assert float(ours[0] - ours[1]) == pytest.approx(told[0] - told[1], rel=1e-9)
    assert abs(told[0] - told[1]) > 1e-3


@pytest.mark.parametrize(("form", "volume"), [("none", 0.0), ("sigmoid", 1e-2), ("sigmoid-paper", 1e-2)])
def test_one_member_of_an_ensemble_is_the_fit(noisy_blobs, form, volume):
    """Vectorised training is the training loop: the same start, batches and Adam lead to the same memberships."""
    data = data_of(noisy_blobs)
    x = torch.as_tensor((data.features - data.features.mean(0)) / data.features.std(0))
    held = split(data, 0.2, 0)
    train, test = held.train(data), held.test(data)
    config = FitConfig(4, 60, 5e-3, 2e-2, "adam", False, None, 3)
    torch.manual_seed(1)
    first, second = Membership(4, 3, (8,)), Membership(4, 3, (8,))
    many = fit_ensemble(
        [first, second],
        model_of(first, form, len(train), volume),
        tensors(train, x),
        tensors(test, x),
        config,
        reweight=None,
    )
    for r, net in enumerate((first, second)):
        model = model_of(net, form, len(train), volume)
        guide = map_guide(model)
        result = fit(model, guide, tensors(train, x), tensors(test, x), config)
        np.testing.assert_allclose(many.memberships(x)[r], memberships(model, x), atol=2e-4)
        assert float(many.nll[r]) == pytest.approx(result.held_out, abs=1e-4)


def model_of(net, form, n_pairs, volume):
    return AnnotationModel(net, make_confusion(form, 3), n_pairs=n_pairs, volume=volume)


def test_reweighting_spreads_members_as_new_answers_do(noisy_blobs):
    data = data_of(noisy_blobs)
    x = torch.as_tensor((data.features - data.features.mean(0)) / data.features.std(0))
    net = Membership(4, 3, (8,))
    config = FitConfig(3, 60, 5e-3, 2e-2, "adam", False, None, 3)
    same = fit_ensemble([net] * 3, model_of(net, "none", len(data), 0.0), tensors(data, x), None, config, reweight=None)
    apart = fit_ensemble([net] * 3, model_of(net, "none", len(data), 0.0), tensors(data, x), None, config)
    assert same.memberships(x).std(0).max() < 1e-5
    assert apart.memberships(x).std(0).max() > 1e-3


def test_engines_agree_on_a_normal_posterior(noisy_blobs):
    """With many answers the posterior of B is nearly Normal: SVI's full guide, HMC and NUTS must agree.

    NUTS: 2 x 80 draws, effective size > 50, so its mean has a standard error below .14 sd: four of them are .57 sd.
    """
    est = fitted(noisy_blobs, "stochastic", 0.0)
    data = data_of(noisy_blobs)
    head = double(
        last_layer_of(
            est.model_, est.guide_, data, est.fitted_.scaled(data.features), prior_scale=None, only_confusion=True
        )
    )
    by_svi = svi_posterior(head.model, head.batch, head.start, draws=400, steps=300, seed=1)
    by_nuts = nuts_posterior(head.model, head.batch, head.start, draws=80, warmup=40, chains=2, seed=1)
    by_hmc = hmc.hmc_posterior(head.model, head.batch, head.start, draws=20, seed=1)
    svi, nuts, ours = (last_layer_draws(head, d, est.memberships_) for d in (by_svi, by_nuts, by_hmc))
    assert np.ptp(nuts.memberships, axis=(0, 1)).max() < 1e-6  # only the confusion moves
    assert nuts.stats["diverging"].shape == (2, 80)
    upper = np.triu_indices(3)
    b = nuts.agreement.reshape(-1, 3, 3)[:, *upper]
    for other in (svi, ours):
        a = other.agreement.reshape(-1, 3, 3)[:, *upper]
        assert (np.abs(a.mean(0) - b.mean(0)) / b.std(0)).max() < 0.57
        ratio = a.std(0) / b.std(0)
        assert 0.5 < ratio.min()
        assert ratio.max() < 1.6


@pytest.mark.parametrize(("method", "chains", "options"), [
    ("svi", 1, {"draws": 12, "steps": 60}),
    ("hmc", 3, {"chains": 3, "draws": 4, "warmup": 3}),
    ("ensemble", 2, {"chains": 2, "draws": 2}),
    ("nuts", 2, {"chains": 2, "draws": 6, "warmup": 6, "sites": "confusion"}),
])  # fmt: skip
def test_inference_data(est, noisy_blobs, method, chains, options, caplog):
    a = noisy_blobs.answers
    who = np.arange(len(a.similar)) % 4
    idata = est.posterior(noisy_blobs.X, a.pairs, a.similar, who, method=method, **options)
    assert idata.posterior["memberships"].dims == ("chain", "draw", "item", "cluster")
    assert idata.posterior["agreement"].dims == ("chain", "draw", "cluster", "cluster_b")
    assert idata.posterior["confusion"].dims == ("chain", "draw", "observed", "cluster")
    assert idata.posterior.sizes["chain"] == chains
    A = idata.posterior["confusion"].values
    np.testing.assert_allclose(A.sum(axis=-2), 1.0, atol=1e-5)
    np.testing.assert_allclose(np.swapaxes(A, -1, -2) @ A, idata.posterior["agreement"].values, atol=1e-5)
    F, B = idata.posterior["memberships"].values[0, -1].astype(float), idata.posterior["agreement"].values[0, -1]
    p = np.einsum("mk,kl,ml->m", F[a.pairs[:, 0]], B, F[a.pairs[:, 1]])
    expected = np.log(np.where(a.similar, p, 1 - p))
    np.testing.assert_allclose(idata.log_likelihood["similar"].values[0, -1], expected, atol=1e-4)
    assert idata.observed_data["similar"].values.tolist() == a.similar.astype(int).tolist()
    assert set(np.unique(idata.posterior_predictive["similar"].values)) <= {0, 1}
    assert idata.constant_data["annotator"].values.tolist() == who.tolist()
    assert idata.attrs["method"] == method
    assert json.loads(idata.attrs["versions"])["torch"]
    if method == "hmc":  # three chains of four draws are not worth fifty
        assert idata.attrs["status"] == "not converged"
        assert "energy" in idata.attrs["message"]
        assert idata.sample_stats["energy"].shape == (3, 4)
    if method == "nuts":  # six draws of two chains: it must not claim to have converged
        assert idata.attrs["status"] == "not converged"
        assert "r_hat" in idata.attrs["message"]
        assert "did not converge" in caplog.text


def test_draws_repeat_and_clusters_are_aligned(est, noisy_blobs):
    a = noisy_blobs.answers
    one, two = (
        est.posterior(noisy_blobs.X, a.pairs, a.similar, method="ensemble", chains=3, draws=1) for _ in range(2)
    )
    np.testing.assert_array_equal(one.posterior["memberships"].values, two.posterior["memberships"].values)
    assert one.attrs["status"] == "not converged"  # one member a start shows no spread
    # Random starts number clusters differently; aligned, every chain's labels are as near the fitted ones as any numbering makes them
    # (one start ends in a poor optimum, which no numbering mends).
    labels = one.posterior["memberships"].values[:, 0].argmax(-1)
    near = (labels == est.labels_).mean(axis=1)
    np.testing.assert_allclose(near, [metrics.acc(est.labels_, chain) for chain in labels], atol=0.02)
    assert np.median(near) > 0.9


def test_bad_requests_say_what_to_do(est, noisy_blobs):
    a = noisy_blobs.answers
    with pytest.raises(ValueError, match=r"^method: expected one of 'hmc', 'svi', 'nuts', 'ensemble', found 'vb'"):
        est.posterior(noisy_blobs.X, a.pairs, a.similar, method="vb")
    with pytest.raises(ValueError, match=r"^draws, chains: expected"):
        est.posterior(noisy_blobs.X, a.pairs, a.similar, method="svi", chains=2)
    vanilla = VanillaDCC(3, random_state=0, **SMALL).fit(noisy_blobs.X, a.pairs, a.similar)
    with pytest.raises(ValueError, match=r"^sites: expected"):
        vanilla.posterior(noisy_blobs.X, a.pairs, a.similar, method="nuts", sites="confusion")


def test_the_fitted_model_is_left_as_it_was(est, noisy_blobs):
    before = {k: v.clone() for k, v in est.model_.state_dict().items()}
    a = noisy_blobs.answers
    est.posterior(noisy_blobs.X, a.pairs, a.similar, method="nuts", chains=1, draws=4, warmup=2, sites="confusion")
    est.posterior(noisy_blobs.X, a.pairs, a.similar, method="svi", draws=2, steps=20)
    for name, value in est.model_.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])


def test_a_misspelt_option_is_named(est, noisy_blobs):
    a = noisy_blobs.answers
    with pytest.raises(TypeError, match=r"^posterior: expected options among .*found 'wramup'"):
        est.posterior(noisy_blobs.X, a.pairs, a.similar, wramup=3)


def test_attributes_say_how_the_intervals_fared(est, noisy_blobs, monkeypatch):
    """With a volume term it is no posterior, and no figure of another configuration is carried."""
    a = noisy_blobs.answers
    monkeypatch.setitem(measured.MEASURED, ("svi", "stochastic", 0.0, False), measured.Covered(0.91, 0.88, 20))
    monkeypatch.setitem(
        measured.MEASURED, ("svi, normal guide", "stochastic", 0.0, False), measured.Covered(0.6, 0.5, 20)
    )
    plain = fitted(noisy_blobs, volume=0.0)
    said = {}
    for guide in ("low-rank", "normal"):
        idata = plain.posterior(noisy_blobs.X, a.pairs, a.similar, method="svi", guide=guide, draws=3, steps=20)
        said[guide] = idata.attrs["calibration"]
        assert ("did not converge" in said[guide]) == (idata.attrs["status"] != "converged")
        assert idata.attrs["kind"] == "posterior"
    assert "91% of the entries of B and 88% of the memberships" in said["low-rank"]
    assert "too narrow" not in said["low-rank"]
    assert "too narrow" in said["normal"]
    attrs = est.posterior(noisy_blobs.X, a.pairs, a.similar, method="svi", draws=3, steps=20, regularised=True).attrs
    assert attrs["kind"].startswith("regularised")
    assert "not measured" in attrs["calibration"]
    assert "%" not in attrs["calibration"]
    attrs = est.posterior(noisy_blobs.X, a.pairs, a.similar, method="svi", draws=3, steps=20).attrs
    assert attrs["kind"] == "posterior"
    assert "not measured for confusion stochastic fitted with volume 0.001" in attrs["calibration"]
    assert "mean top membership" in attrs["identified_set"]


def test_the_posterior_has_no_volume_and_a_prior_set_before_the_answers(est, noisy_blobs):
    """The volume is no part of it unless asked for; logits deviate by as much before any answer whatever the fitted weights are."""
    data, x = data_of(noisy_blobs), est.fitted_.scaled(noisy_blobs.X)
    layer = last_layer_of(est.model_, est.guide_, data, x, prior_scale=None)
    kept = last_layer_of(est.model_, est.guide_, data, x, prior_scale=None, regularised=True)
    assert (layer.model.volume, kept.model.volume) == (0.0, 1e-3)
    logits = layer.batch.x @ (layer.model.scale * torch.randn(layer.batch.x.shape[1], 4000))
    assert float(logits.square().mean().sqrt()) == pytest.approx(LOGITS, rel=0.05)  # 4,000 draws: se below .012
    wide = copy.deepcopy(est.model_)
    last_linear(wide.membership, x)[1].weight.data *= 3
    assert last_layer_of(wide, est.guide_, data, x, prior_scale=None).model.scale == layer.model.scale


def test_starts_of_refits_are_numbered_like_the_partition():
    labels = np.array([0, 0, 1, 1, 2, 2, 2])
    fitted = SimpleNamespace(
        partition_weight=1.0, partition=torch.as_tensor(labels), membership=SimpleNamespace(n_clusters=3)
    )
    np.testing.assert_array_equal(numbered_like(fitted, np.array([2, 0, 1])[labels]), labels)
    fitted.partition_weight = 0.0
    np.testing.assert_array_equal(numbered_like(fitted, 2 - labels), 2 - labels)


def test_users_do_not_read_what_arviz_says_about_its_own_future():
    code = "from pdcc.posterior.arviz_calls import import_arviz; print(import_arviz().__name__)"
    command = [sys.executable, "-W", "error::FutureWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "arviz", done.stderr
