"""Soft answers and weights: what they mean, that nothing loses them on the way, and that plain answers are left as they were."""

import logging

import numpy as np
import pandas as pd
import pyro
import pytest
import torch

from pdcc import PairAnswers, PairData, PairDataError, VolMaxDCC, select_volume
from pdcc.baselines import KMeans, PCKMeans
from pdcc.criticism import run_loo
from pdcc.inference import PairTensors
from pdcc.inference.ensemble import _weights, bootstrap_weights
from pdcc.inference.predict import probe
from pdcc.models import AnnotationModel, Membership, StochasticConfusion
from pdcc.select.blockmodel import Ends, block_counts, fit_answers, left_out_nll
from pdcc.select.starts import Partitioner, two_rate_evidence
from pdcc.storage import run as runs
from pdcc.storage.lock import claimed
from pdcc.training import Shape, Source, Start, tensors

SMALL = {"hidden": (16,), "epochs": 3, "progress": False, "random_state": 0, "device": "cpu"}
FIXED = SMALL | {"confusion": "stochastic", "volume": 1e-2, "scale": "standard", "init": "kmeans"}


@pytest.fixture(scope="module")
def given(noisy_blobs):
    """Features, pairs, probabilities around the answers, and weights."""
    rng = np.random.default_rng(0)
    a = noisy_blobs.answers
    soft = np.where(a.similar, rng.uniform(0.55, 1, len(a.similar)), rng.uniform(0, 0.45, len(a.similar)))
    return noisy_blobs.X, a.pairs, soft, rng.uniform(0.2, 3, len(soft))


@pytest.fixture(scope="module")
def fitted(given):
    X, pairs, soft, weights = given
    return VolMaxDCC(3, **FIXED).fit(X, pairs, soft, weights=weights, soft=True)


def small_model(n_pairs, total_weight=None):
    torch.manual_seed(0)
    net = Membership(2, 3, (4,), 0.0)
    return AnnotationModel(net, StochasticConfusion(3), n_pairs=n_pairs, volume=0.1, total_weight=total_weight).double()


def log_joint(model, pairs, index=None):
    batch = pairs.batch(torch.arange(len(pairs)) if index is None else torch.tensor(index), exact_volume=True)
    columns = torch.full((3, 3), 0.2, dtype=torch.float64) + 0.4 * torch.eye(3, dtype=torch.float64)
    with pyro.validation_enabled(True):
        conditioned = pyro.condition(model, data={"confusion_columns": columns})
        return float(pyro.poutine.trace(conditioned).get_trace(batch).log_prob_sum().detach())


def made_up(similar, weight=None, index=None):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(6, 2, generator=g, dtype=torch.float64)
    i, j = torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5, 3, 0])
    index = torch.arange(4) if index is None else torch.tensor(index)
    weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    return PairTensors(x, i[index], j[index], torch.tensor(similar, dtype=torch.float64)[index], weight=weight)


def test_weight_two_is_the_answer_twice_in_the_log_joint():
    y = [1.0, 0.0, 1.0, 0.0]
    once = made_up(y, [1.0, 2.0, 1.0, 3.0])
    twice = made_up(y, index=[0, 1, 1, 2, 3, 3, 3])
    assert once.total_weight == len(twice) == 7
    a = log_joint(small_model(4, once.total_weight), once)
    b = log_joint(small_model(7), twice)
    assert a == pytest.approx(b, rel=1e-12)
    assert a != pytest.approx(log_joint(small_model(4), made_up(y)), rel=1e-3)


def test_a_soft_answer_is_both_answers_by_degrees_in_the_log_joint():
    """Pyro's validation is on, and would refuse a Bernoulli observed at 0.7."""
    high, low, soft = (log_joint(small_model(4), made_up([v, 0.0, 1.0, 0.0])) for v in (1.0, 0.0, 0.7))
    assert soft == pytest.approx(0.7 * high + 0.3 * low, rel=1e-12)
    with pytest.raises(ValueError, match="Interval"):
        log_joint(small_model(4), made_up([1.2, 0.0, 1.0, 0.0]))


def test_a_minibatch_of_weighted_answers_is_unbiased():
    pairs = made_up([1.0, 0.3, 1.0, 0.0], [1.0, 2.0, 0.5, 3.0])
    model = small_model(4, pairs.total_weight)
    parts = [log_joint(model, pairs, [n]) for n in range(4)]
    assert np.mean(parts) == pytest.approx(log_joint(model, pairs), rel=1e-10)


def test_objective_and_score_are_weighted_and_by_degrees(noisy_blobs, fitted):
    X, a = noisy_blobs.X, noisy_blobs.answers
    pairs, similar = a.pairs[:60], a.similar[:60]
    counts = 1 + np.arange(60) % 3
    for method in (fitted.objective, fitted.score):
        once, twice = (
            method(X, pairs, similar, weights=counts),
            method(X, np.repeat(pairs, counts, 0), np.repeat(similar, counts)),
        )
        assert once == pytest.approx(twice, rel=1e-6)
        assert once != pytest.approx(method(X, pairs, similar), rel=1e-4)
    one, other = similar.copy(), similar.copy()
    one[0], other[0] = True, False
    soft = similar.astype(float)
    soft[0] = 0.7
    at = [fitted.score(X, pairs, y, soft=y.dtype != bool) for y in (one, other, soft)]
    assert at[2] == pytest.approx(0.7 * at[0] + 0.3 * at[1], rel=1e-6)


def test_weight_zero_is_no_answer_at_all(noisy_blobs, caplog):
    X, a = noisy_blobs.X, noisy_blobs.answers
    kept = np.arange(len(a.similar)) % 5 > 0
    with caplog.at_level(logging.INFO, logger="pdcc"):
        data = PairData.from_arrays(X, a.pairs, a.similar, weights=kept.astype(float))
    assert "left out 120 answer(s) of weight 0" in caplog.text
    assert (len(data), data.weightless, data.weight) == (480, 120, None)
    assert data.fingerprint() == PairData.from_arrays(X, a.pairs[kept], a.similar[kept]).fingerprint()


def test_plain_answers_stay_plain(noisy_blobs):
    X, a = noisy_blobs.X, noisy_blobs.answers
    plain = PairData.from_arrays(X, a.pairs, a.similar)
    given = PairData.from_arrays(X, a.pairs, a.similar.astype(float), weights=np.ones(len(a.similar)), soft=True)
    assert (given.soft, given.weight) == (None, None)
    assert given.fingerprint() == plain.fingerprint()
    assert tensors(plain, torch.as_tensor(X)).weight is None


def test_soft_and_weights_are_told_apart_and_carried(given):
    X, pairs, soft, weights = given
    y = PairAnswers.from_arrays(len(X), pairs, soft, np.arange(len(soft)) % 4, weights, soft=True)
    data = PairData.from_arrays(X, y)
    np.testing.assert_allclose(data.soft, soft, rtol=1e-6)
    np.testing.assert_allclose(data.weight, weights, rtol=1e-6)
    np.testing.assert_array_equal(data.similar, soft >= 0.5)
    rows = np.flatnonzero(np.arange(len(X)) % 3)
    part = y[rows]
    kept = np.isin(pairs, rows).all(axis=1)
    np.testing.assert_allclose(part.soft, soft[kept], rtol=1e-6)
    np.testing.assert_allclose(part.weight, weights[kept], rtol=1e-6)
    some = data.recode((0, 1)).subset(np.array([3, 1]))
    np.testing.assert_array_equal(some.soft, data.soft[[3, 1]])
    np.testing.assert_array_equal(some.weight, data.weight[[3, 1]])
    as_tensors = tensors(data, torch.as_tensor(X))
    np.testing.assert_array_equal(as_tensors.similar.numpy(), data.soft)
    np.testing.assert_array_equal(as_tensors.weight.numpy(), data.weight)
    marks = {
        PairData.from_arrays(X, pairs, soft, weights=w, soft=True).fingerprint() for w in (None, weights, 2 * weights)
    }
    assert len(marks | {PairData.from_arrays(X, pairs, soft >= 0.5).fingerprint()}) == 4


def test_a_table_may_weigh_its_answers(given):
    X, pairs, soft, weights = given
    frame = pd.DataFrame({"i": pairs[:, 0], "j": pairs[:, 1], "similar": soft, "weight": weights})
    data = PairData.from_arrays(X, frame, soft=True)
    np.testing.assert_allclose(data.weight, weights, rtol=1e-6)
    with pytest.raises(PairDataError, match=r"weights: .*Leave weights out"):
        PairData.from_arrays(X, frame, weights=weights, soft=True)
    with pytest.raises(PairDataError, match=r"soft: .*Leave soft out"):
        PairData.from_arrays(X, PairAnswers.from_arrays(len(X), pairs, soft, soft=True), soft=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"similar": [0.2, 0.9]}, r"similar: .*the value.*0\.2.*row 0.*soft=True"),
        ({"similar": [0.2, 1.1], "soft": True}, r"similar: .*from 0 to 1, found 1\.1 .*row 1"),
        ({"similar": [0.2, np.nan], "soft": True}, r"similar: .*found nan .*row 1"),
        ({"similar": [["a", "b"]], "soft": True}, "similar: expected"),
        ({"similar": ["0.5", "1"], "soft": True}, "similar: expected with soft=True"),
        ({"weights": [1, -1]}, r"weights: .*at least 0, found -1 .*row 1"),
        ({"weights": [np.inf, 1]}, r"weights: .*found inf .*row 0"),
        ({"weights": [0, 0]}, "weights: expected at least one above 0"),
        ({"weights": [1]}, r"weights: .*2 pairs, found shape \(1,\)"),
        ({"weights": ["a", "b"]}, "weights: expected numbers"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, words):
    with pytest.raises(PairDataError, match=words):
        PairAnswers.from_arrays(3, [[0, 1], [1, 2]], **({"similar": [1, 0]} | changes))
    with pytest.raises(TypeError, match="soft: expected True or False"):
        PairAnswers.from_arrays(3, [[0, 1], [1, 2]], [1, 0], soft="yes")


def test_partitions_are_made_and_compared_by_weighted_answers_of_degrees(noisy_blobs):
    X, a = noisy_blobs.X, noisy_blobs.answers
    counts = 1 + np.arange(len(a.similar)) % 3
    once = PairData.from_arrays(X, a.pairs, a.similar, weights=counts)
    twice = PairData.from_arrays(X, np.repeat(a.pairs, counts, 0), np.repeat(a.similar, counts))
    plain = PairData.from_arrays(X, a.pairs, a.similar)
    labels = noisy_blobs.y
    np.testing.assert_allclose(block_counts(labels, 3, once), block_counts(labels, 3, twice))
    assert two_rate_evidence(labels, once) == pytest.approx(two_rate_evidence(labels, twice))
    assert two_rate_evidence(labels, once) != pytest.approx(two_rate_evidence(labels, plain))
    rates = [fit_answers(ends_of(labels, data), data).agreement for data in (once, twice, plain)]
    np.testing.assert_allclose(rates[0], rates[1], atol=1e-9)
    assert np.abs(rates[0] - rates[2]).max() > 1e-3
    way = Partitioner(X, 3, 0)
    np.testing.assert_allclose(abs(way.embed(once)), abs(way.embed(twice)), atol=1e-6)
    for start in (Start(source, shape) for source in Source for shape in Shape):
        np.testing.assert_array_equal(way.make(start, once).labels, way.make(start, twice).labels)
    halves = PairData.from_arrays(X, a.pairs, np.where(np.arange(600) < 300, a.similar, 0.5), soft=True)
    assert block_counts(labels, 3, halves)[:, 0, 0].sum() == block_counts(labels, 3, plain)[:, 0, 0].sum()


def test_a_soft_answer_is_scored_as_both_answers_by_degrees(noisy_blobs):
    """The same model of answers: its nats of an answer at .7 lie between those of the two words."""
    X, a = noisy_blobs.X, noisy_blobs.answers
    soft = np.where(a.similar, 0.7, 0.3)
    data = PairData.from_arrays(X, a.pairs, soft, soft=True)
    nll = left_out_nll(ends_of(noisy_blobs.y, data), data)
    entropy = -0.7 * np.log(0.7) - 0.3 * np.log(0.3)
    assert nll.min() >= entropy - 1e-6  # soft= is kept in float32
    assert nll.mean() < np.log(2)


def ends_of(labels, data):
    return Ends.of_labels(labels[data.i], labels[data.j], 3)


def test_a_fit_probes_and_bootstraps_by_weights(given, fitted):
    X, pairs, soft, weights = given
    assert fitted.model_.total_weight < weights.sum()  # a tenth is held out
    assert fitted.model_.total_weight == pytest.approx(weights[~fitted.fitted_.split.held].sum(), rel=1e-5)
    data = PairData.from_arrays(X, pairs, soft, weights=weights, soft=True)
    at = tensors(data, fitted.fitted_.scaled(data.features))
    found = probe(fitted.model_, fitted.guide_, at).nll
    assert found == pytest.approx(-fitted.score(X, pairs, soft, weights=weights, soft=True), rel=1e-4)
    drawn = _weights(at, 4, None)
    np.testing.assert_allclose(drawn.mean(1), 1, rtol=1e-5)
    np.testing.assert_allclose(drawn[2] * weights.mean(), weights, rtol=1e-4)
    assert float(bootstrap_weights(at, "pairs").sum()) == pytest.approx(at.total_weight, rel=1e-4)


def test_runs_keep_degrees_and_weights(given, fitted, tmp_path):
    X, pairs, soft, weights = given
    data = PairData.from_arrays(X, pairs, soft, weights=weights, soft=True)
    with claimed(tmp_path / "run"):
        runs.finish(tmp_path / "run", *fitted.described(), data, "test", X=X)
    again, loaded = runs.read_data(tmp_path / "run"), VolMaxDCC.load(tmp_path / "run")
    np.testing.assert_array_equal(again.soft, data.soft)
    np.testing.assert_array_equal(again.weight, data.weight)
    assert loaded.fitted_.holds(again)
    assert loaded.model_.total_weight == fitted.model_.total_weight


@pytest.mark.parametrize("method", ["hmc", "svi", "nuts", "ensemble"])
def test_posteriors_see_degrees_and_weights(noisy_blobs, method):
    """An answer of weight 40 is learned by heart; log_likelihood is what an answer adds to the log density."""
    X, a = noisy_blobs.X[:30], noisy_blobs.answers
    inside = (a.pairs < 30).all(axis=1)
    rng = np.random.default_rng(0)
    pairs = np.concatenate([a.pairs[inside], rng.permuted(np.tile(np.arange(30), (60, 1)), axis=1)[:, :2]])
    y = noisy_blobs.y[pairs[:, 0]] == noisy_blobs.y[pairs[:, 1]]
    soft = np.where(y, 0.9, 0.1)
    weights = np.full(len(soft), 0.5)
    est = VolMaxDCC(3, **FIXED | {"volume": 0.0}).fit(X, pairs, soft, weights=weights, soft=True)
    options = {
        "hmc": {"draws": 4, "warmup": 3, "chains": 2},
        "svi": {"draws": 20, "steps": 40},
        "nuts": {"draws": 5, "warmup": 5, "chains": 1},
        "ensemble": {"draws": 2, "chains": 1},
    }[method]
    found = {}
    for scale in (1, 100):
        idata = est.posterior(X, pairs, soft, weights=scale * weights, soft=True, method=method, **options)
        found[scale] = idata.posterior["agreement"].values.std(axis=(0, 1)).mean()
        np.testing.assert_allclose(idata.constant_data["soft"].values, soft, rtol=1e-6)
        np.testing.assert_allclose(idata.constant_data["weight"].values, scale * weights, rtol=1e-6)
        ll = idata.log_likelihood["similar"].values
        assert (ll <= scale * weights * (0.9 * np.log(0.9) + 0.1 * np.log(0.1)) + 1e-4).all()
    if method == "svi":
        assert found[100] < found[1] / 2
    with pytest.raises(ValueError, match="answers with soft"):
        run_loo(idata)


def test_baselines_refuse_what_they_have_no_place_for(given):
    X, pairs, soft, weights = given
    for method in (KMeans(3, random_state=0), PCKMeans(3, random_state=0)):
        with pytest.raises(PairDataError, match=r"similar: .*plain answers"):
            method.fit(X, pairs, soft, soft=True)
        with pytest.raises(PairDataError, match=r"weights: .*count alike"):
            method.fit(X, pairs, soft >= 0.5, weights=weights)
    plain = KMeans(3, random_state=0).fit(X, pairs, soft >= 0.5)
    assert plain.score(X, pairs, soft, weights=weights, soft=True) < plain.score(X, pairs, soft >= 0.5)


def test_soft_answers_end_to_end(given):
    """A fit with every choice left open, a diagnosis and a selection; half of the answers say nothing and are left out of accuracy."""
    X, pairs, soft, weights = given
    soft = np.where(np.arange(len(soft)) % 4 == 0, 0.5, soft)
    y = PairAnswers.from_arrays(len(X), pairs, soft, weights=weights, soft=True)
    est = VolMaxDCC(3, **SMALL).fit(X, y)
    assert np.isfinite(est.memberships_).all()
    found = est.diagnose(X, y, quick=True, draws=4, n_restarts=1, work=0.5)
    assert len(found.items) == len(X)
    chosen = select_volume(X, y, estimator=VolMaxDCC(3, **FIXED | {"epochs": 1}), volumes=(0.0, 1e-2), n_restarts=1)
    assert chosen.value in (0.0, 1e-2)
