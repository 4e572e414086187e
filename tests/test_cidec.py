"""C-IDEC: assignments, their target and the losses against formulas, links that pull and push, and when it stops."""

import numpy as np
import pytest
import torch
from helpers import DEEP, OneDevice

from pdcc.baselines.cidec import CIDEC
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.cidec import EmbeddedClusters, log_target


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


def link_loss(module, kind, left, right):
    """The part of the loss that the answers make: less the reconstruction that stands beside a must-link."""
    if kind == "must":
        return module.must_link_loss(left, right, 1.0) - module.must_link_loss(left, right, 0.0)
    return module.cannot_link_loss(left, right, 1.0)


@pytest.mark.parametrize(("kind", "sign"), [("must", 1), ("cannot", -1)])
def test_links_pull_together_and_push_apart(kind, sign):
    module = small_clusters()
    x = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def same_cluster(items):
        q = module(items).exp().detach()
        return float((q[0] * q[1]).sum())

    link_loss(module, kind, x[:1], x[1:]).backward()
    assert sign * (same_cluster(x - x.grad) - same_cluster(x)) > 1e-3


def test_link_losses_are_finite_where_assignments_are_certain():
    module = small_clusters(exponent=200.0).float()
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with torch.no_grad():
        module.autoencoder.encoder.head.weight *= 1e6
        module.centres[:2] = module.autoencoder.encoder(x)
        module.centres[2] = 1e9
    certain = module(x).exp().detach()
    assert torch.equal(certain, torch.eye(3)[:2])
    for other in (x[:1], x[1:]):
        for kind in ("must", "cannot"):
            loss = link_loss(module, kind, x[:1], other)
            assert torch.isfinite(loss)
            assert torch.isfinite(torch.autograd.grad(loss, x, retain_graph=True)[0]).all()


def test_c_idec_stops_when_few_labels_change(blobs):
    def fitted(tol):
        return CIDEC(3, tol=tol, **DEEP).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)

    stopped = fitted(0.9)
    assert stopped.status_ == "converged"
    assert len(stopped.history_) == 1
    assert stopped.history_[0]["changed"] < 0.9
    assert len(fitted(0.0).history_) == DEEP["epochs"]


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
