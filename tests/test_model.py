"""The Pyro model is the paper's objective, to rounding."""

import math
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO

from pdcc.inference import PairTensors, map_guide, negative_elbo
from pdcc.models import AnnotationModel, Membership, make_confusion, similar_logits
from pdcc.models.membership import drop
from pdcc.models.volume import JITTER

N, D, K, M, B = 40, 5, 3, 90, 16
VOLUME, PARTITION = 0.03, 0.2


@pytest.fixture
def world() -> PairTensors:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=g, dtype=torch.float64)
    i, j = torch.randint(N, (2, M), generator=g)
    return PairTensors(x, i, j, torch.randint(2, (M,), generator=g).double())


def make(form: str, partition: bool, volume: float = VOLUME):
    torch.manual_seed(1)
    labels = torch.arange(N) % K if partition else None
    model = AnnotationModel(
        Membership(D, K, (7,)),
        make_confusion(form, K),
        n_pairs=M,
        volume=volume,
        partition=labels,
        partition_weight=PARTITION,
    )
    model.double()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()), dtype=p.dtype)
    return model, map_guide(model)


def plain_forward(model, x):
    """f_theta written out: one hidden ReLU layer and a softmax."""
    first, last = (m for m in model.membership.layers if isinstance(m, torch.nn.Linear))
    logits = torch.relu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    e = torch.exp(logits - logits.max(1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def plain_agreement(model, guide, form):
    if form == "none":
        return torch.eye(K, dtype=torch.float64)
    if form in ("sigmoid", "sigmoid-paper"):
        raw = model.confusion.raw
        raw = (raw + raw.T) / 2 if form == "sigmoid" else raw
        return 1 / (1 + torch.exp(-raw))
    A = guide.confusion_columns.T
    return A.T @ A


def plain_log_joint(model, guide, form, pairs, index, exact, partition):
    """The log joint by formulas from paper eq. 13 and the Dirichlet density, nothing shared with the model."""
    i, j, y = pairs.i[index], pairs.j[index], pairs.similar[index]
    F = plain_forward(model, pairs.x)
    agreement = plain_agreement(model, guide, form)
    p = torch.einsum("bk,kl,bl->b", F[i], agreement, F[j])
    nll = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
    rows = torch.cat([i, j])
    V = F if exact else F[rows]
    gram = V.T @ V
    n = len(V)
    objective = nll - VOLUME * torch.logdet(gram + n * JITTER * torch.eye(K, dtype=torch.float64))
    out = -M * objective - M * VOLUME * K * math.log(n)

    def log_dirichlet(columns):
        concentration = torch.ones(K, K, dtype=torch.float64) + torch.eye(K, dtype=torch.float64)
        norm = torch.lgamma(concentration.sum(1)) - torch.lgamma(concentration).sum(1)
        return (norm + ((concentration - 1) * torch.log(columns)).sum(1)).sum()

    if form == "stochastic":
        out = out + log_dirichlet(guide.confusion_columns)
    if partition:
        columns = guide.partition_columns
        labels = model.partition[rows]
        out = (
            out
            + log_dirichlet(columns)
            + M * PARTITION * torch.log((F[rows] @ columns)[torch.arange(len(rows)), labels]).mean()
        )
    return out


@pytest.mark.parametrize("form", ["none", "sigmoid", "sigmoid-paper", "stochastic"])
@pytest.mark.parametrize("exact", [True, False], ids=["full", "minibatch"])
@pytest.mark.parametrize("whole", [True, False], ids=["all-pairs", "batch"])
@pytest.mark.parametrize("partition", [False, True], ids=["pairs-only", "partition"])
def test_log_joint_and_gradient_are_the_papers(world, form, exact, whole, partition):
    model, guide = make(form, partition)
    index = torch.arange(M) if whole else torch.arange(5, 5 + B)
    batch = world.batch(index, exact_volume=exact)
    guide(batch)
    with torch.no_grad():
        for p in guide.parameters():
            p += 0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(9), dtype=p.dtype)
    parameters = [*model.parameters(), *guide.parameters()]

    ours = -negative_elbo(model, guide, batch)
    assert ours.item() == pytest.approx(-Trace_ELBO().differentiable_loss(model, guide, batch).item(), rel=1e-12)
    by_pyro = torch.autograd.grad(-Trace_ELBO().differentiable_loss(model, guide, batch), parameters)
    theirs = plain_log_joint(model, guide, form, world, index, exact, partition)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-10)
    mine = torch.autograd.grad(ours, parameters)
    plain = torch.autograd.grad(theirs, parameters)
    for a, b in zip(mine, plain, strict=True):
        assert (a - b).norm() <= 1e-10 * max(b.norm(), 1.0)
    for a, b in zip(mine, by_pyro, strict=True):
        assert (a - b).norm() <= 1e-13 * max(b.norm(), 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_dropped_units_are_zero_and_the_others_scaled_up(p, dtype):
    """One byte decides about one number: 100 of them in words of eight, so that four of each row are left over."""
    h = torch.randn(500, 100, dtype=dtype, requires_grad=True, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    out = drop(h, p)
    torch.manual_seed(0)
    words = torch.empty((500, 13), dtype=torch.int64).random_(-(2**63), None)
    dropped = min(round(256 * p), 255)
    kept = words.view(torch.uint8)[:, :100] >= dropped
    assert out.dtype == dtype
    assert torch.equal(out, h * kept * (256 / (256 - dropped)))
    (gradient,) = torch.autograd.grad(out.sum(), h)
    assert torch.equal(gradient, kept * torch.tensor(256 / (256 - dropped), dtype=dtype))
    share, rate = float(kept.double().mean()), 1 - dropped / 256
    assert abs(share - rate) < 5 * (rate * (1 - rate) / kept.numel()) ** 0.5  # five standard errors


def test_trace_shows_plate_observation_and_factor(world):
    model, guide = make("stochastic", partition=False)
    batch = world.batch(torch.arange(B))
    trace = poutine.trace(poutine.replay(model, poutine.trace(guide).get_trace(batch))).get_trace(batch)
    similar, volume = trace.nodes["similar"], trace.nodes["volume"]
    assert similar["is_observed"]
    assert isinstance(similar["fn"], dist.Bernoulli)
    assert [(f.name, f.size) for f in similar["cond_indep_stack"]] == [("pairs", B)]
    assert trace.nodes["pairs"]["type"] == "sample"
    assert volume["is_observed"]
    assert volume["cond_indep_stack"] == ()
    trace.compute_log_prob()
    F = model.membership(batch.x)
    expected = M * VOLUME * torch.logdet(F.T @ F / len(F) + JITTER * torch.eye(K))
    assert volume["log_prob_sum"].item() == pytest.approx(expected.item(), rel=1e-10)
    assert similar["scale"] == pytest.approx(M / B)


def test_volume_factor_is_there_but_free_at_volume_zero(world):
    model, _ = make("none", partition=False, volume=0.0)
    trace = poutine.trace(model).get_trace(world.batch(torch.arange(B)))
    assert trace.nodes["volume"]["fn"].log_factor.item() == 0.0


def test_an_answer_of_weight_two_counts_twice(world):
    model, _ = make("none", partition=False, volume=0.0)
    index = torch.tensor([3, 8])
    once, twice = torch.tensor([1.0, 1.0]).double(), torch.tensor([2.0, 1.0]).double()
    told = []
    for batch in (
        replace(world.batch(index), weight=once),
        replace(world.batch(index), weight=twice),
        world.batch(index[:1]),
    ):
        trace = poutine.trace(model).get_trace(batch)
        trace.compute_log_prob()
        told.append(trace.nodes["similar"]["log_prob_sum"].item() * len(batch.index) / M)
    assert told[1] - told[0] == pytest.approx(told[2], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_likelihood_is_finite_at_the_corners(dtype):
    corner = torch.eye(3, dtype=dtype)
    left, right = corner[[0, 0, 1]], corner[[0, 1, 2]]
    for y in (torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)):
        value = dist.Bernoulli(logits=similar_logits(left, right, torch.eye(3, dtype=dtype))).log_prob(y)
        assert torch.isfinite(value).all()


def test_confident_pairs_keep_their_gradient():
    """1 - p by subtraction is 0 in float32 here, and its gradient lost; computed by its own form it is not."""
    logits = torch.tensor([[20.0, 0.0]], requires_grad=True)
    F = torch.softmax(logits, -1)
    assert (1 - (F * F).sum()).item() == 0.0
    loss = -dist.Bernoulli(logits=similar_logits(F, F, torch.eye(2))).log_prob(torch.zeros(1)).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert abs(gradient[0, 0].item() - 1.0) < 1e-3


def test_the_free_b_is_symmetric_and_the_papers_is_not():
    for form, symmetric in (("sigmoid", True), ("sigmoid-paper", False)):
        confusion = make_confusion(form, 3)
        with torch.no_grad():
            confusion.raw += torch.arange(9.0).view(3, 3) / 5
        found = confusion.agreement()
        assert torch.allclose(found, found.T) == symmetric
        left, right = torch.eye(3)[[0, 1]], torch.eye(3)[[2, 0]]
        there, back = similar_logits(left, right, found), similar_logits(right, left, found)
        assert torch.allclose(there, back) == symmetric


def test_stochastic_confusion_is_column_stochastic_and_symmetric():
    pyro.set_rng_seed(0)
    confusion = make_confusion("stochastic", 4)
    trace = poutine.trace(confusion).get_trace()
    columns = trace.nodes["confusion_columns"]["value"]
    agreement = confusion_at(confusion, columns)
    A = columns.T.numpy()
    np.testing.assert_allclose(A.sum(axis=0), 1.0, rtol=1e-6)
    np.testing.assert_allclose(agreement, A.T @ A, rtol=1e-6)


def confusion_at(confusion, columns):
    return pyro.condition(confusion, data={"confusion_columns": columns})().numpy()
