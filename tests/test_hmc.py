"""Hamiltonian Monte Carlo, many chains at once: the right density, one energy, straightened coordinates."""

import numpy as np
import torch

from pdcc import PairData, VolMaxDCC
from pdcc.inference import hmc
from pdcc.inference.laplace import unconstrain
from pdcc.posterior.last_layer import double, last_layer_of

SMALL = {"hidden": (8,), "dropout": 0.0, "scale": "standard", "init": "random", "partition_weight": 0.0, "epochs": 15,
         "lr": 1e-2, "batch_size": 100, "progress": False, "device": "cpu"}  # fmt: skip


def confusion_head(noisy_blobs, weights=None):
    a = noisy_blobs.answers
    est = VolMaxDCC(3, confusion="stochastic", volume=0.0, random_state=0, **SMALL).fit(
        noisy_blobs.X, a.pairs, a.similar
    )
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar, weights=weights)
    x = est.fitted_.scaled(data.features)
    return double(last_layer_of(est.model_, est.guide_, data, x, prior_scale=None, only_confusion=True))


def test_hmc_draws_from_a_density_it_was_not_given_the_shape_of(noisy_blobs):
    """Where answers count next to nothing the posterior is the prior, whose moments are known: Dirichlet columns, skewed and bounded.

    64 chains of 12 draws, some 300 of them independent: the largest of 9 means lies within four standard errors.
    """
    head = confusion_head(noisy_blobs, np.full(len(noisy_blobs.answers.similar), 1e-9))
    found = hmc.hmc_posterior(head.model, head.batch, head.start, chains=64, draws=12, warmup=30, seed=3)
    assert found.status == "converged", found.message
    columns = found.sites["confusion_columns"].flatten(0, 1).numpy()
    alpha = head.model.confusion.concentration.numpy()
    mean = alpha / alpha.sum(axis=-1, keepdims=True)
    deviation = np.sqrt(mean * (1 - mean) / (alpha.sum(axis=-1, keepdims=True) + 1))
    assert np.abs((columns.mean(0) - mean) / deviation).max() < 4 / np.sqrt(300)
    np.testing.assert_allclose(columns.std(0), deviation, rtol=0.25)


def test_many_chains_see_the_energy_of_one(noisy_blobs):
    head = confusion_head(noisy_blobs)
    space = unconstrain(head.model, head.batch, head.start)
    energy = hmc.side_by_side(space, space.start)
    flat = space.start + torch.randn(
        3, len(space.start), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    torch.testing.assert_close(energy(flat), torch.stack([space.energy(one) for one in flat]))


def test_the_steepest_directions_are_straightened(monkeypatch):
    """A quadratic with three steep directions: afterwards its curvature is 1 along them and as before elsewhere."""
    torch.manual_seed(0)
    monkeypatch.setattr(hmc, "STEEPEST", 3)
    turn = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))[0]
    H = turn * torch.tensor([900.0, 400.0, 100.0] + [1.0] * 9, dtype=torch.float64) @ turn.mT
    mode = torch.zeros(12, dtype=torch.float64)
    straighten = hmc._steepest(lambda flat: ((flat @ H) * flat).sum(-1) / 2, mode, torch.ones_like(mode))
    root = straighten(torch.eye(12, dtype=torch.float64)).mT
    torch.testing.assert_close(torch.linalg.eigvalsh(root.mT @ H @ root), torch.ones_like(mode), atol=1e-3, rtol=0)
