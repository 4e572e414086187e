"""Networks and confusions of the user's own: any module, items of any shape, and runs that keep weights but no code."""

import pickle

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from helpers import make_blobs
from pyro.nn import PyroModule, PyroSample
from sklearn.base import clone
from torch import nn

from pdcc import ArtifactError, PairDataError, VanillaDCC, VolMaxDCC, metrics
from pdcc.models import Module

K = 3
SMALL = {"epochs": 20, "lr": 1e-2, "random_state": 0, "progress": False, "scale": "standard", "init": "kmeans"}


def images(seed=0):
    """Blobs laid out as 1 x 2 x 2 images, and answers about them."""
    blobs = make_blobs(n=120, n_pairs=500, flip=0.1, seed=seed)
    return blobs.X.reshape(-1, 1, 2, 2), blobs.y, blobs.answers


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, K))


class Shared(Module):
    """One free B for all, written by hand; ``forward`` takes no batch."""

    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(2 * torch.eye(K) - 1)

    def forward(self):
        return torch.sigmoid((self.raw + self.raw.T) / 2)


class ByItem(Module):
    """The first column says how careless answers are: B lies between the identity and a coin's."""

    def __init__(self):
        super().__init__()
        self.line = nn.Parameter(torch.tensor([-1.0, 0.0]))

    def forward(self, batch):
        left, right = batch.x[:, 0].chunk(2)
        g = torch.sigmoid(self.line[0] + self.line[1] * torch.maximum(left, right))[:, None, None]
        return (1 - g) * torch.eye(K) + g / 2


class Bayesian(PyroModule):
    """A plain PyroModule with a latent site and a weight of its own."""

    def __init__(self):
        super().__init__()
        self.right = PyroSample(dist.Beta(8.0, 2.0))
        self.slack = nn.Parameter(torch.tensor(0.0))

    def forward(self):
        right = self.right
        return right * torch.eye(K) + (1 - right) * torch.sigmoid(self.slack) / 2


@pytest.mark.parametrize("how", ["module", "function"])
def test_a_network_on_images_trains_predicts_and_comes_back(how, tmp_path):
    X, y, a = images()
    given = network() if how == "module" else network
    est = VolMaxDCC(K, network=given, confusion="stochastic", volume=1e-3, **SMALL).fit(X, a.pairs, a.similar)
    assert isinstance(est.model_.membership.layers[0], nn.Conv2d)
    assert metrics.acc(y, est.labels_) > 0.95
    assert est.predict_proba(X[:7]).shape == (7, K)
    assert est.n_features_in_ == 4
    with pytest.raises(PairDataError, match=r"^X: expected"):
        est.predict(X.reshape(len(X), -1))
    est.save(tmp_path / "run")
    with pytest.raises(ArtifactError, match="network"):
        VolMaxDCC.load(tmp_path / "run")
    back = VolMaxDCC.load(tmp_path / "run", network=network)
    np.testing.assert_array_equal(back.predict_proba(X), est.predict_proba(X))
    with pytest.raises(ArtifactError, match="does not fit"):
        VolMaxDCC.load(tmp_path / "run", network=nn.Sequential(nn.Flatten(), nn.Linear(4, K)))


def test_a_network_as_a_module_is_copied_and_a_function_makes_fresh_ones():
    X, _, a = images()
    given = network()
    before = [p.clone() for p in given.parameters()]
    VanillaDCC(K, network=given, **SMALL | {"epochs": 2}).fit(X, a.pairs, a.similar)
    assert all(torch.equal(p, q) for p, q in zip(given.parameters(), before, strict=True))
    made = []

    def make():
        made.append(network())
        return made[-1]

    VanillaDCC(K, network=make, n_init=3, **SMALL | {"epochs": 2}).fit(X, a.pairs, a.similar)
    assert len(made) == 3
    assert not torch.equal(made[0][0].weight, made[1][0].weight)


def test_tensors_are_features_too():
    X, _, a = images()
    est = VanillaDCC(K, network=network, **SMALL | {"epochs": 2})
    by_array = est.fit(X, a.pairs, a.similar).memberships_
    by_tensor = clone(est).fit(torch.as_tensor(X), torch.as_tensor(a.pairs), torch.as_tensor(a.similar)).memberships_
    np.testing.assert_array_equal(by_array, by_tensor)


@pytest.mark.parametrize("method", ["hmc", "svi", "nuts", "ensemble"])
def test_posteriors_of_a_network(method):
    X, _, a = images()
    est = VolMaxDCC(K, network=network, confusion="stochastic", volume=0.0, **SMALL | {"epochs": 6})
    est.fit(X, a.pairs, a.similar)
    options = {"hmc": {"draws": 2, "warmup": 2, "chains": 2}, "svi": {"draws": 4, "steps": 30}, "nuts": {"draws": 4, "warmup": 2, "chains": 1, "sites": "confusion"},
               "ensemble": {"chains": 2, "draws": 2}}[method]  # fmt: skip
    found = est.posterior(X, a.pairs, a.similar, method=method, **options)
    F = found.posterior["memberships"].values.mean((0, 1))
    assert (F.argmax(1) == est.labels_).mean() > 0.9


def test_a_diagnosis_of_own_parts_runs():
    X, _, a = images()
    flat = X.reshape(len(X), -1)
    est = VolMaxDCC(K, network=lambda: nn.Linear(4, K), confusion=ByItem(), volume=0.0, **SMALL | {"epochs": 6})
    found = est.fit(flat, a.pairs, a.similar).diagnose(flat, a.pairs, a.similar, quick=True, draws=4, work=1.0)
    assert found.conditional  # a confusion of one's own may explain answers too
    assert found.folds_distance is not None
    assert found.folds_distance >= 0


def test_a_confusion_of_ones_own_is_the_built_in_one_where_it_is_the_same():
    blobs = make_blobs(n=120, n_pairs=500, flip=0.1)
    a = blobs.answers
    setting = SMALL | {"hidden": (8,), "volume": 1e-3, "epochs": 6, "partition_weight": 0.0}
    ours = VolMaxDCC(K, confusion="sigmoid", **setting).fit(blobs.X, a.pairs, a.similar)
    theirs = VolMaxDCC(K, confusion=Shared(), **setting).fit(blobs.X, a.pairs, a.similar)
    np.testing.assert_allclose(theirs.memberships_, ours.memberships_, atol=1e-6)
    np.testing.assert_allclose(theirs.agreement_, ours.agreement_, atol=1e-6)
    assert theirs.report_.chosen.confusion == "own"
    assert theirs.confusion_ is None


def test_noise_that_depends_on_the_items_is_learned(tmp_path):
    """Answers about items with a large first column are guesses: only a B by item can know, and predicts better for it."""
    rng = np.random.default_rng(0)
    blobs = make_blobs(n=200, n_pairs=10)
    X = np.column_stack([rng.random(200), blobs.X]).astype(np.float32)
    pairs = rng.integers(200, size=(3000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    guess = rng.random(len(pairs)) < np.maximum(*X[pairs, 0].T) ** 3
    similar = np.where(guess, rng.random(len(pairs)) < 0.5, blobs.y[pairs[:, 0]] == blobs.y[pairs[:, 1]])
    setting = SMALL | {"hidden": (16,), "volume": 0.0, "epochs": 30, "partition_weight": 0.0, "dropout": 0.0}
    fits = {
        name: VolMaxDCC(K, confusion=form, **setting).fit(X, pairs, similar)
        for name, form in (("all", "sigmoid"), ("item", ByItem()))
    }
    nll = {name: min(h["held_out"] for h in est.history_) for name, est in fits.items()}
    assert nll["item"] < nll["all"] - 0.02
    est = fits["item"]
    assert est.model_.confusion.line[1] > 0.5
    sharp, dull = (np.flatnonzero((X[pairs, 0].max(axis=1) > 0.9) == flag) for flag in (False, True))
    p = est.predict_pairs(X, pairs)
    assert np.abs(p[dull] - 0.5).mean() < np.abs(p[sharp] - 0.5).mean() - 0.1
    assert est.agreement_.shape == (K, K)
    est.save(tmp_path / "run")
    with pytest.raises(ArtifactError, match="confusion"):
        VolMaxDCC.load(tmp_path / "run")
    back = VolMaxDCC.load(tmp_path / "run", confusion=ByItem())
    np.testing.assert_array_equal(back.predict_pairs(X, pairs), p)
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.predict_pairs(X, pairs), p)
    idata = est.posterior(X, pairs, similar, method="svi", draws=50, steps=20)
    likelihood = np.exp(idata.log_likelihood["similar"].values).mean((0, 1))
    by_draws = np.where(similar, likelihood, 1 - likelihood)
    assert np.abs(by_draws - p).mean() < 0.05  # by the mean B it is .1; each pair by its own B, not by the mean one


def test_latent_sites_of_an_own_confusion_are_inferred_and_stay_out_of_the_store():
    blobs = make_blobs(n=120, n_pairs=600, flip=0.2)
    a = blobs.answers
    pyro.clear_param_store()
    est = VolMaxDCC(K, confusion=Bayesian(), hidden=(8,), volume=0.0, partition_weight=0.0, **SMALL)
    est.fit(blobs.X, a.pairs, a.similar)
    assert len(pyro.get_param_store()) == 0
    assert est.model_.confusion.slack.item() != 0.0
    assert 0.5 < est.agreement_[0, 0] < 0.999
    assert (np.diagonal(est.agreement_) > est.agreement_[0, 1]).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_latent_sites_start_at_their_priors_mean(seed):
    """From anywhere else "similar" and "different" may end up exchanged."""

    class Rates(PyroModule):
        def __init__(self):
            super().__init__()
            self.rates = PyroSample(dist.Normal(torch.tensor([2.0, -2.0]), 0.5).to_event(1))

        def forward(self):
            within, across = torch.sigmoid(self.rates)
            return torch.eye(K) * (within - across) + across

    blobs = make_blobs(n=120, n_pairs=600, flip=0.2)
    a = blobs.answers
    est = VolMaxDCC(
        K, confusion=Rates(), hidden=(8,), volume=0.0, partition_weight=0.0, **SMALL | {"random_state": seed}
    )
    est.fit(blobs.X, a.pairs, a.similar)
    assert est.agreement_[0, 0] > est.agreement_[0, 1] + 0.3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"network": 3}, TypeError),
        ({"network": lambda: 3}, TypeError),
        ({"network": nn.Linear(4, K + 1)}, ValueError),
        ({"network": nn.Linear(7, K)}, ValueError),
    ],
    ids=["a number", "a function that makes one", "too many logits", "other items"],
)
def test_networks_that_cannot_be_used_are_refused(change, error):
    blobs = make_blobs(n=30, n_pairs=60)
    with pytest.raises(error, match=r"^network: expected"):
        VanillaDCC(K, **SMALL | change).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)


class Odd(Module):
    """B of a wrong shape, or no probabilities."""

    def __init__(self, B):
        super().__init__()
        self.register_buffer("B", B)

    def forward(self):
        return self.B


@pytest.mark.parametrize(
    "confusion", [Odd(torch.eye(K + 1)), Odd(2 * torch.eye(K)), "own"], ids=["shape", "range", "word"]
)
def test_confusions_that_cannot_be_used_are_refused(confusion):
    blobs = make_blobs(n=30, n_pairs=60)
    with pytest.raises(ValueError, match=r"^confusion: expected"):
        VolMaxDCC(K, confusion=confusion, **SMALL).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)


def test_items_of_any_shape_want_a_network():
    X, _, a = images()
    with pytest.raises(PairDataError, match=r"^X: expected a 2D array"):
        VolMaxDCC(K, **SMALL).fit(X, a.pairs, a.similar)
