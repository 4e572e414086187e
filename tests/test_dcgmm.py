"""DC-GMM: its log joint, bound and responsibilities against independent formulas, and one device per step."""

import math

import numpy as np
import pyro
import pytest
import torch
from helpers import DEEP, OneDevice
from scipy.special import logsumexp
from scipy.stats import norm

from pdcc.baselines.dcgmm import DCGMM, mixture_batch, pair_weight
from pdcc.inference import PairTensors, negative_elbo
from pdcc.inference.isolation import isolated
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.dcgmm import ConditionalMixture, RecognitionGuide


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
    found = DCGMM(3, **DEEP | {"epochs": 1} | options).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    assert found.model_.weight == weight


@pytest.mark.parametrize("planted", [False, True])
def test_a_step_of_dc_gmm_stays_on_the_models_device(planted):
    model, guide, pairs = small_mixture(dtype=torch.float32, device="meta")
    batch = mixture_batch(pairs, torch.arange(3, device="meta"), torch.arange(2, device="meta"))
    if planted:
        model.log_pi = torch.zeros(3)
    with isolated(0, torch.device("meta")), OneDevice():
        if planted:
            with pytest.raises((AssertionError, RuntimeError)):
                negative_elbo(model, guide, batch)
        else:
            loss = negative_elbo(model, guide, batch)
            loss.backward()
            assert loss.device.type == "meta"
