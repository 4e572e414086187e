"""SpherePair: its loss against the formula, angles that answers make, assignment by angle, and K read off the codes."""

import math

import numpy as np
import pytest
import torch
from helpers import DEEP, OneDevice

from pdcc.baselines.spherepair import SpherePair, smallest_angles, sphere_centres
from pdcc.errors import PairDataError
from pdcc.inference.pretrain import PretrainConfig, pretrained_autoencoder
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.spherepair import SphericalClusters, angular_loss


def small_sphere(omega=2.0, seed=0):
    torch.manual_seed(seed)
    module = SphericalClusters(Autoencoder(5, (8,), 3, unit_codes=True), 4, 3, omega).double()
    module.centres.normal_()
    return module


@pytest.mark.parametrize("omega", [1.0, 2.0, math.pi / math.acos(-1 / 3)])
def test_the_loss_against_the_formula(omega):
    angles = np.linspace(0.05, math.pi - 0.05, 40)
    for similar in (1.0, 0.0):
        for angle in angles:
            p = (1 + math.cos(angle)) / 2
            if similar == 0.0:
                p = (1 + math.cos(omega * angle)) / 2 if angle <= math.pi / omega else 0.0
            expected = -math.log(p) if similar else -math.log(1 - p)
            found = angular_loss(torch.tensor([math.cos(angle)], dtype=torch.float64), torch.tensor([similar]), omega)
            assert found.item() == pytest.approx(expected, abs=1e-9)


def test_in_the_negative_zone_a_pair_is_left_alone_and_outside_it_is_pushed():
    cosine = torch.tensor([-0.6, -0.01, 0.3, 0.9], dtype=torch.float64, requires_grad=True)
    angular_loss(cosine, torch.zeros(4), 2.0).backward()
    assert cosine.grad[:2].tolist() == [0.0, 0.0]
    assert (cosine.grad[2:] > 0).all()  # a step down makes the cosine smaller
    cosine.grad = None
    angular_loss(cosine, torch.ones(4), 2.0).backward()
    assert (cosine.grad < 0).all()


def test_the_loss_is_finite_where_codes_coincide_or_are_opposite():
    for cosine in (-1.0, 0.0, 1.0, -1 + 1e-7, 1 - 1e-7):
        for similar in (0.0, 1.0):
            at = torch.tensor([cosine], requires_grad=True)
            loss = angular_loss(at, torch.tensor([similar]), 2.0)
            loss.backward()
            assert torch.isfinite(loss)
            assert torch.isfinite(at.grad).all()


def test_codes_have_unit_length_also_for_the_decoder():
    module = small_sphere()
    x = torch.randn(7, 5, dtype=torch.float64)
    z = module.codes(x)
    assert torch.allclose(z.norm(dim=1), torch.ones(7, dtype=torch.float64))
    again = module.autoencoder.decoder(z)
    assert module.reconstruction_loss(x).item() == pytest.approx(((again - x) ** 2).mean().item())
    assert not torch.allclose(module.autoencoder.decoder(module.autoencoder.encoder(x)), again)
    net = pretrained_autoencoder(x.float(), PretrainConfig((8,), 3, epochs=1, unit_codes=True))
    assert net.unit_codes


def test_items_go_to_the_centre_at_the_smallest_angle_whatever_its_length():
    module = small_sphere()
    x = torch.randn(50, 5, dtype=torch.float64)
    labels = module(x).argmax(1)
    directions = module.centres / module.centres.norm(dim=1, keepdim=True)
    assert torch.equal(labels, (module.codes(x) @ directions.T).argmax(1))
    module.centres *= torch.tensor([[0.1], [3.0], [1.0], [20.0]])
    assert torch.equal(labels, module(x).argmax(1))


def test_answers_set_the_angles(blobs):
    found = SpherePair(3, **DEEP | {"epochs": 25}).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    codes = found.embed(blobs.X)
    assert np.allclose(np.linalg.norm(codes, axis=1), 1.0, atol=1e-6)
    cosines = (codes[blobs.answers.pairs[:, 0]] * codes[blobs.answers.pairs[:, 1]]).sum(axis=1)
    assert np.median(cosines[blobs.answers.similar]) > 0.9
    assert np.median(cosines[~blobs.answers.similar]) < 0.2


def test_reconstruction_counts_as_much_as_asked(blobs):
    def error(weight):
        est = SpherePair(3, reconstruction_weight=weight, **DEEP | {"epochs": 10})
        est.fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
        x = torch.as_tensor((est.scaler_(blobs.X) / est.unit_).astype(np.float32))
        with torch.no_grad():
            return float(est.module_.reconstruction_loss(x))

    assert error(10.0) < 0.8 * error(0.0)


def test_centres_are_those_of_the_start_or_carried_on():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    codes = np.eye(4)[labels] + 0.05 * rng.normal(size=(60, 4))
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    means = np.stack([codes[labels == k].mean(axis=0) for k in range(3)])
    assert np.allclose(sphere_centres(codes, 3, 0, start=labels), means)
    assert np.allclose(sphere_centres(codes, 3, 0, centres=means[[2, 0, 1]]), means[[2, 0, 1]])  # in their order
    best = sphere_centres(codes, 3, 0)
    assert np.allclose(np.sort(best, axis=0), np.sort(means, axis=0))


@pytest.mark.parametrize("n_clusters", [2, 3, 5, 7])
def test_the_number_of_clusters_is_read_off_the_codes(n_clusters):
    rng = np.random.default_rng(n_clusters)
    y = np.arange(40 * n_clusters) % n_clusters
    simplex = np.eye(n_clusters) - 1 / n_clusters
    codes = np.pad(simplex, [(0, 0), (0, 8 - n_clusters)])[y] + 0.02 * rng.normal(size=(len(y), 8))
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    pairs = rng.integers(len(y), size=(900, 2))
    curve = smallest_angles(codes, pairs[y[pairs[:, 0]] != y[pairs[:, 1]]])
    assert curve.shape == (8,)
    est = SpherePair(n_clusters)
    est.embed = lambda X: codes
    assert est.read_n_clusters(codes, pairs, y[pairs[:, 0]] == y[pairs[:, 1]]) == n_clusters
    with pytest.raises(PairDataError, match="similar: expected both kinds"):
        est.read_n_clusters(codes, pairs[:5], np.ones(5))


def test_a_step_of_spherepair_stays_on_the_modules_device():
    module = small_sphere().to("meta")
    x = torch.randn(6, 5, dtype=torch.float64, device="meta")
    with OneDevice():
        loss = module.pair_loss(x, x, torch.ones(6, device="meta")) + module.reconstruction_loss(x) + module(x).sum()
        loss.backward()
    assert loss.device.type == "meta"
