"""The model is an ordinary Pyro program: Pyro's own guides, objectives, kernels and handlers work on every confusion form."""

import warnings
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceMeanField_ELBO
from pyro.infer.autoguide import (
    AutoDelta,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from pyro.nn import PyroModule
from pyro.nn.module import to_pyro_module_

from pdcc import VolMaxDCC
from pdcc.inference import FitConfig, PairTensors, epoch_order, fit, index_batches, map_guide
from pdcc.models import (
    AnnotationModel,
    AnnotatorConfusion,
    Membership,
    NoConfusion,
    PooledConfusion,
    RatesConfusion,
    SigmoidConfusion,
    SigmoidPriorConfusion,
    StochasticConfusion,
    normal_weights_,
)
from pdcc.models.confusion import PooledPriorConfusion, RatesPriorConfusion
from pdcc.posterior.arviz_calls import import_arviz

N, M, K, D, R = 40, 200, 3, 4, 2
FORMS = {
    "none": lambda: NoConfusion(K),
    "rates": lambda: RatesConfusion(K),
    "rates-prior": lambda: RatesPriorConfusion(K),
    "pooled": lambda: PooledConfusion(K),
    "pooled-prior": lambda: PooledPriorConfusion(K),
    "sigmoid": lambda: SigmoidConfusion(K),
    "sigmoid-prior": lambda: SigmoidPriorConfusion(K),
    "stochastic": lambda: StochasticConfusion(K),
    "per-annotator": lambda: AnnotatorConfusion(K, R),
}
LATENT = {
    "none": 0,
    "rates": 0,
    "rates-prior": 2,
    "pooled": K * K,
    "pooled-prior": 2 + K * K,
    "sigmoid": 0,
    "sigmoid-prior": K * K,
    "stochastic": K * (K - 1),
    "per-annotator": K * (K - 1) + R * K * K,
}
JOINT = (AutoMultivariateNormal, AutoLowRankMultivariateNormal, AutoLaplaceApproximation)
GUIDES = {g.__name__: g for g in (AutoDelta, AutoNormal, *JOINT, map_guide)}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
ALL_FORMS = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True)
def clean_store():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    yield
    pyro.clear_param_store()


def world(dtype=torch.float64):
    """Three blobs, one answer in five wrong, two annotators and one never seen."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(N) % K
    x = (torch.randn(N, D, generator=g) + 3 * torch.eye(D)[y]).to(dtype)
    i, j = torch.randint(N, (2, M), generator=g)
    similar = (y[i] == y[j]) ^ (torch.rand(M, generator=g) < 0.2)
    return PairTensors(x, i, j, similar.to(dtype), torch.randint(R + 1, (M,), generator=g))


def make(form, dtype=torch.float64, volume=0.01, partition=False):
    torch.manual_seed(0)
    labels = torch.arange(N) % K if partition else None
    model = AnnotationModel(
        Membership(D, K, (8,)), FORMS[form](), n_pairs=M, volume=volume, partition=labels, partition_weight=0.2
    )
    return model.to(dtype)


def everything(dtype=torch.float64):
    return world(dtype).batch(torch.arange(M))


def train(model, guide, elbo, batch, steps=20, lr=5e-2):
    """Plain SVI with Pyro's own optimiser; fails unless every weight of the model has moved."""
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    svi = SVI(model, guide, pyro.optim.Adam({"lr": lr}), elbo)
    losses = [svi.step(batch) for _ in range(steps)]
    unmoved = [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
    assert not unmoved, f"plain SVI left {unmoved} where they were"
    return losses


@ALL_FORMS
@DTYPES
@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("elbo", [Trace_ELBO, TraceMeanField_ELBO], ids=lambda e: e.__name__)
def test_svi_trains_net_and_confusion(form, dtype, guide, elbo):
    model = make(form, dtype)
    auto = GUIDES[guide](model)
    if guide in {g.__name__ for g in JOINT} and LATENT[form] == 0:
        with pytest.raises(RuntimeError, match="found no latent variables"):  # Pyro's own sentence
            train(model, auto, elbo(), everything(dtype))
        return
    losses = train(model, auto, elbo(), everything(dtype), steps=40)
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    names = set(pyro.get_param_store().keys())
    assert {f"membership$$${n}" for n, _ in model.membership.named_parameters()} <= names
    if form == "sigmoid":
        assert "confusion.raw" in names
    if guide == "AutoLaplaceApproximation" and form == "sigmoid-prior":  # the Normal prior keeps its curvature positive
        assert auto.laplace_approximation(everything(dtype)).loc.dtype == dtype


@ALL_FORMS
def test_plain_svi_ends_where_our_loop_ends(form):
    """The same batches and Adam: Pyro's SVI over param sites and our loop past them agree to rounding."""
    pairs = world()
    config = FitConfig(epochs=3, batch_size=50, lr=1e-2, confusion_lr=1e-2, patience=None, seed=7)
    mine, theirs = make(form, partition=True), make(form, partition=True)
    guide = map_guide(mine)
    fit(mine, guide, pairs, None, config)
    assert len(pyro.get_param_store()) == 0  # our loop leaves no parameter behind

    theirs_guide = map_guide(theirs)
    scaled = [poutine.scale(part, scale=1 / M) for part in (theirs, theirs_guide)]
    svi = SVI(*scaled, pyro.optim.Adam({"lr": 1e-2}), Trace_ELBO())
    for epoch in range(config.epochs):
        for index in index_batches(epoch_order(M, config.seed, epoch, pairs.x.device), config.batch_size, least=2 * K):
            svi.step(pairs.batch(index))
    batch = everything()
    losses = [Trace_ELBO().loss(m, g, batch) for m, g in ((mine, guide), (theirs, theirs_guide))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    for (name, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, msg=name)


@ALL_FORMS
@DTYPES
def test_prior_and_posterior_predictive(form, dtype):
    model, batch = make(form, dtype), everything(dtype)
    unanswered = replace(batch, similar=None)
    prior = Predictive(model, num_samples=30)(unanswered)["similar"]
    assert prior.shape == (30, M)
    assert 0 < prior.mean() < 1
    guide = map_guide(model)
    train(model, guide, Trace_ELBO(), batch, steps=60)
    for parallel in (False, True):
        found = Predictive(model, guide=guide, num_samples=50, parallel=parallel)(unanswered)["similar"]
        assert found.shape == (50, M)
        told = found.float().mean(0)
        # What was answered "similar" is predicted so more often; 60 steps reach a gap of about .4.
        assert told[batch.similar == 1].mean() > told[batch.similar == 0].mean() + 0.15


def test_simulating_answers_is_one_line():
    model, batch = make("stochastic"), everything()
    drawn = poutine.trace(poutine.uncondition(model)).get_trace(batch).nodes["similar"]["value"]
    assert drawn.shape == (M,)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(drawn, batch.similar)


@pytest.mark.parametrize("form", ["pooled", "pooled-prior", "sigmoid-prior", "stochastic", "per-annotator"])
@DTYPES
def test_nuts_and_arviz(form, dtype):
    model, batch = make(form, dtype), everything(dtype)
    kernel = NUTS(model, max_tree_depth=3)
    run = MCMC(kernel, num_samples=8, warmup_steps=8, disable_progbar=True)
    run.run(batch)
    arviz = import_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # ArviZ warns, and leaves the group out, where it cannot vectorise the model
        found = arviz.from_pyro(run)
    site = "agreement_logits" if form in ("pooled", "pooled-prior", "sigmoid-prior") else "confusion_columns"
    draws = found.posterior[site].values
    assert draws.shape == (1, 8, K, K)
    assert np.ptp(draws, axis=1).max() > 0
    each = found.log_likelihood["similar"].values
    assert each.shape == (1, 8, M)
    # The likelihood ArviZ vectorised is the model's own, draw by draw.
    values = {name: value[3] for name, value in run.get_samples().items()}
    trace = poutine.trace(poutine.condition(model, data=values)).get_trace(batch)
    trace.compute_log_prob()
    one = trace.nodes["similar"]["fn"].log_prob(batch.similar).detach().numpy()
    np.testing.assert_allclose(each[0, 3], one, rtol=1e-4 if dtype is torch.float32 else 1e-9, atol=1e-5)


@ALL_FORMS
def test_vectorised_particles_estimate_the_same_loss(form):
    model, batch = make(form, partition=True), everything()
    guide = AutoDelta(model)  # a point: any number of particles has one loss
    one = Trace_ELBO().loss(model, guide, batch)
    many = Trace_ELBO(num_particles=4, vectorize_particles=True, max_plate_nesting=1).loss(model, guide, batch)
    assert many == pytest.approx(one, rel=1e-10)


def test_handlers_condition_block_and_do():
    model, batch = make("stochastic"), everything()
    columns = torch.eye(K, dtype=torch.float64) * 0.7 + 0.1
    seen = poutine.trace(poutine.condition(model, data={"confusion_columns": columns})).get_trace(batch)
    assert seen.nodes["confusion_columns"]["is_observed"]
    done = poutine.trace(poutine.do(model, data={"confusion_columns": columns})).get_trace(batch)
    torch.testing.assert_close(done.nodes["similar"]["fn"].logits, seen.nodes["similar"]["fn"].logits)
    assert "confusion_columns" not in [n for n, s in done.nodes.items() if s["type"] == "sample" and s["is_observed"]]
    hidden = poutine.trace(poutine.block(model, hide=["volume"])).get_trace(batch)
    assert "volume" not in hidden.nodes
    assert "similar" in hidden.nodes


@pytest.mark.parametrize("form", ["none", "stochastic"])
def test_a_prior_over_all_weights_gives_a_whole_net_posterior(form):
    model, batch = make(form), everything()
    normal_weights_(model.membership)
    assert not list(model.membership.parameters())
    guide = AutoNormal(model, init_scale=0.01)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 3e-2}), Trace_ELBO())
    losses = [svi.step(batch) for _ in range(150)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    draws = Predictive(model, guide=guide, num_samples=5)(replace(batch, similar=None))
    weights = [name for name in draws if name.startswith("membership.layers")]
    assert len(weights) == 4  # two layers, weights and biases
    assert all(draws[name].std(0).max() > 0 for name in weights)


def test_the_net_can_be_made_a_pyro_module_in_place():
    model, batch = make("sigmoid"), everything()
    to_pyro_module_(model.membership)
    assert isinstance(model.membership, PyroModule)
    losses = train(model, AutoDelta(model), Trace_ELBO(), batch)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("form", ["none", "rates", "pooled", "sigmoid", "stochastic", "per-annotator"])
def test_the_model_can_be_drawn(form):
    pytest.importorskip("graphviz", reason="the extra 'graph' is not installed")
    source = pyro.render_model(make(form, partition=True), model_args=(everything(),), render_params=True).source
    for site in ("similar", "volume", "partition", "pairs", *(["confusion_columns"] if form == "stochastic" else [])):
        assert site in source


def test_a_batch_without_annotators_gets_a_sentence():
    model = make("per-annotator")
    with pytest.raises(ValueError, match=r"^batch: expected annotator numbers"):
        model(replace(everything(), annotator=None))


def test_fitted_models_do_not_share_parameters_through_the_store():
    """Two fits traced, and one of them trained on, by hand: Pyro's store goes by name, and theirs differ."""
    rng = np.random.default_rng(0)
    X, pairs = rng.normal(size=(30, 3)).astype(np.float32), rng.integers(30, size=(80, 2))
    similar = np.arange(80) % 2
    setting = {"hidden": (4,), "epochs": 2, "confusion": "stochastic", "volume": 0.0, "init": "random", "scale": None}
    fits = [VolMaxDCC(2, random_state=s, **setting).fit(X, pairs, similar) for s in (0, 1)]
    before = [est.predict_proba(X) for est in fits]
    i, j = torch.as_tensor(pairs).T
    batch = PairTensors(torch.as_tensor(X), i, j, torch.as_tensor(similar).float()).batch(torch.arange(80))
    for est in fits:
        drawn = poutine.trace(est.guide_).get_trace(batch)
        np.testing.assert_allclose(drawn.nodes["confusion_columns"]["value"].detach().T, est.confusion_, rtol=1e-6)
        poutine.trace(poutine.replay(est.model_, trace=drawn)).get_trace(batch)
    train(fits[1].model_, fits[1].guide_, Trace_ELBO(), batch, steps=5)
    np.testing.assert_array_equal(fits[0].predict_proba(X), before[0])
    assert not np.array_equal(fits[1].predict_proba(X), before[1])


def test_estimators_leave_the_process_as_they_found_it():
    rng = np.random.default_rng(0)
    X, pairs = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(40, size=(120, 2))
    data = X, pairs, np.arange(120) % 2
    pyro.param("mine", torch.ones(2))

    def state():
        return (
            {k: v.clone() for k, v in pyro.get_param_store().items()},
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            torch.get_default_dtype(),
            torch.get_num_threads(),
            list(warnings.filters),
            pyro.settings.get(),
        )

    before = state()
    setting = {"hidden": (4,), "epochs": 2, "init": "kmeans", "scale": "standard", "random_state": 0}
    est = VolMaxDCC(2, confusion="sigmoid", volume=1e-3, **setting).fit(*data)
    est.posterior(*data, method="svi", draws=3, steps=20)
    est.diagnose(*data, draws=3, n_restarts=1, work=1.0)
    est.predict_pairs(X, pairs)
    after = state()
    assert list(after[0]) == list(before[0])
    assert all(torch.equal(after[0][k], before[0][k]) for k in before[0])
    assert after[1:] == before[1:]


def test_a_distribution_of_ones_own_may_stand_beside_the_model():
    """A program that calls the model keeps its sites: composing programs is what Pyro is for."""
    inner, batch = make("stochastic"), everything()

    def outer(batch):
        bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
        inner(batch)
        return bias

    guide = AutoNormal(outer)
    svi = SVI(outer, guide, pyro.optim.Adam({"lr": 1e-2}), Trace_ELBO())
    assert np.isfinite(svi.step(batch))
    assert {"AutoNormal.locs.bias", "AutoNormal.locs.confusion_columns"} <= set(pyro.get_param_store().keys())
