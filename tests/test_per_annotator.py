"""A confusion for every annotator, drawn around a shared one."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_blobs
from pyro.infer import Trace_ELBO

from pdcc import PairData, VolMaxDCC
from pdcc.annotators import draw_pairs, mixed_annotators
from pdcc.inference import PairTensors, map_guide, negative_elbo
from pdcc.models import AnnotationModel, AnnotatorConfusion, Membership, answer_logits, make_confusion, similar_logits
from pdcc.storage import run as runs

K, R = 3, 4
SMALL = {"hidden": (16,), "dropout": 0.0, "init": "kmeans", "scale": "standard", "partition_weight": 0.0, "epochs": 30}


def crowd(seed: int = 0, n_pairs: int = 3000):
    """Blobs, and four people: two careful, two who take most items of cluster 1 for cluster 0."""
    blobs = make_blobs(n=240, n_pairs=10, seed=seed)
    careful, careless = np.eye(K), np.eye(K)
    careless[:, 1] = [0.8, 0.2, 0.0]
    rng = np.random.default_rng(seed)
    pairs = draw_pairs(240, n_pairs, rng)
    answers = mixed_annotators(np.eye(K)[blobs.y], pairs, [careful, careful, careless, careless], rng)
    return blobs, answers, np.array(["ann", "bob", "cat", "dan"])[answers.annotators]


def test_log_joint_is_the_formula():
    g = torch.Generator().manual_seed(0)
    M, N = 50, 20
    i, j = torch.randint(N, (2, M), generator=g)
    x = torch.randn(N, 5, generator=g, dtype=torch.float64)
    who = torch.randint(R + 1, (M,), generator=g)  # R: someone never seen
    pairs = PairTensors(x, i, j, torch.randint(2, (M,), generator=g).double(), who)
    torch.manual_seed(1)
    model = AnnotationModel(Membership(5, K, (7,)), AnnotatorConfusion(K, R, deviation=0.7), n_pairs=M).double()
    guide = map_guide(model)
    index = torch.arange(4, 30)
    batch = pairs.batch(index)
    guide(batch)
    with torch.no_grad():
        for p in guide.parameters():
            p += 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(9), dtype=p.dtype)
    ours = -negative_elbo(model, guide, batch)
    assert ours.item() == pytest.approx(-Trace_ELBO().differentiable_loss(model, guide, batch).item(), rel=1e-12)

    columns, shift = guide.confusion_columns, guide.annotator_shift
    assert shift.shape == (R, K, K)
    F = model.membership(x)
    total = torch.zeros((), dtype=torch.float64)
    for n in index.tolist():
        raw = columns if who[n] == R else columns * torch.exp(shift[who[n]])
        A = (raw / raw.sum(1, keepdim=True)).T
        p = (A @ F[i[n]]) @ (A @ F[j[n]])
        total = total + torch.log(p if pairs.similar[n] == 1 else 1 - p)
    total = total * M / len(index)
    concentration = torch.ones(K, K, dtype=torch.float64) + torch.eye(K)
    norm = torch.lgamma(concentration.sum(1)) - torch.lgamma(concentration).sum(1)
    total = total + (norm + ((concentration - 1) * torch.log(columns)).sum(1)).sum()
    total = total - (shift**2).sum() / (2 * 0.7**2) - R * K * K * math.log(0.7 * math.sqrt(2 * math.pi))
    assert ours.item() == pytest.approx(total.item(), rel=1e-10)


def test_each_pair_meets_its_own_matrix():
    g = torch.Generator().manual_seed(0)
    F = torch.softmax(torch.randn(2, 6, K, generator=g), -1)
    B = torch.rand(2, R, K, K, generator=g)  # two ensemble members
    who = torch.tensor([0, 3, 3, 1, 2, 0])
    found = answer_logits(F, F.flip(1), B, who)
    for m in range(2):
        for n, r in enumerate(who.tolist()):
            one = similar_logits(F[m, n : n + 1], F.flip(1)[m, n : n + 1], B[m, r])
            torch.testing.assert_close(found[m, n], one[0])


def test_annotators_are_told_apart_and_predicted_better():
    gains, gaps = [], []
    for seed in range(3):
        blobs, answers, names = crowd(seed)
        train = np.arange(len(names)) < 2400
        data = (blobs.X, answers.pairs[train], answers.similar[train], names[train])
        nll = {}
        for form in ("stochastic", "per-annotator"):
            est = VolMaxDCC(K, confusion=form, volume=1e-2, random_state=seed, **SMALL).fit(*data)
            p = est.predict_pairs(blobs.X, answers.pairs[~train], names[~train]).clip(1e-6, 1 - 1e-6)
            nll[form] = -np.where(answers.similar[~train], np.log(p), np.log1p(-p)).mean()
        gains.append(nll["stochastic"] - nll["per-annotator"])
        assert est.annotators_ == ("ann", "bob", "cat", "dan")
        careless = np.array([1 - np.diagonal(A).min() for A in est.annotator_confusion_])
        gaps.append(careless[2:].min() - careless[:2].max())
    gains, gaps = np.array(gains), np.array(gaps)
    assert (gaps > 0).all()  # both careless people have a worse column than either careful one, every time
    assert gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(len(gains)) > 0


def test_someone_without_answers_is_the_shared_annotator():
    blobs, answers, names = crowd(n_pairs=900)
    est = VolMaxDCC(K, confusion="per-annotator", volume=0.0, random_state=0, **SMALL)
    data = PairData.from_arrays(blobs.X, answers.pairs, answers.similar, names)
    silent = replace(data, annotator_names=(*data.annotator_names, "eve"))  # named, but never answered
    est.fit_data(silent)
    np.testing.assert_allclose(est.annotator_confusion_[4], est.confusion_, atol=1e-6)
    assert np.abs(est.annotator_confusion_[2] - est.confusion_).max() > 0.01
    few = answers.pairs[:7]
    stranger = est.predict_pairs(blobs.X, few, ["zoe"] * 7)
    np.testing.assert_array_equal(stranger, est.predict_pairs(blobs.X, few))
    np.testing.assert_allclose(stranger, est.predict_pairs(blobs.X, few, ["eve"] * 7), atol=1e-6)
    F, B = est.memberships_, est.agreement_
    np.testing.assert_allclose(stranger, np.einsum("mk,kl,ml->m", F[few[:, 0]], B, F[few[:, 1]]), atol=1e-6)


def test_ids_are_optional(caplog):
    blobs, answers, _ = crowd(n_pairs=600)
    both = [
        VolMaxDCC(K, confusion=form, volume=1e-2, random_state=0, **SMALL | {"epochs": 3}).fit(
            blobs.X, answers.pairs, answers.similar
        )
        for form in ("per-annotator", "stochastic")
    ]
    assert "share one confusion" in caplog.text
    assert both[0].annotator_confusion_ is None
    np.testing.assert_array_equal(both[0].memberships_, both[1].memberships_)
    assert not isinstance(make_confusion("per-annotator", K, 0), AnnotatorConfusion)
    assert both[0].report_.chosen.confusion == "stochastic"


@pytest.fixture(scope="module")
def fitted():
    blobs, answers, names = crowd(n_pairs=900)
    est = VolMaxDCC(K, confusion="per-annotator", volume=1e-2, random_state=0, **SMALL | {"epochs": 20})
    return est.fit(blobs.X, answers.pairs, answers.similar, names), (blobs.X, answers.pairs, answers.similar, names)


def test_saved_annotators_come_back(fitted, tmp_path):
    est, (X, pairs, _, names) = fitted
    est.save(tmp_path / "run")
    back = VolMaxDCC.load(tmp_path / "run")
    assert back.annotators_ == est.annotators_
    np.testing.assert_array_equal(back.annotator_confusion_, est.annotator_confusion_)
    np.testing.assert_array_equal(back.predict_pairs(X, pairs, names), est.predict_pairs(X, pairs, names))


def test_objective_sees_who_answered(fitted):
    est, (X, pairs, similar, names) = fitted
    p = est.predict_pairs(X, pairs, names)
    nll = -np.where(similar, np.log(p), np.log1p(-p)).mean()
    F = est.memberships_
    assert est.objective(X, pairs, similar, names) == pytest.approx(
        nll - 1e-2 * np.linalg.slogdet(F.T @ F)[1], abs=1e-5
    )
    assert est.objective(X, pairs, similar, names[::-1]) != pytest.approx(
        est.objective(X, pairs, similar, names), abs=1e-4
    )


@pytest.mark.parametrize("method", ["hmc", "svi", "ensemble"])
def test_posteriors_predict_each_annotator_by_their_own_confusion(fitted, method):
    est, data = fitted
    found = est.posterior(*data, method=method, draws=4, **({"steps": 30} if method == "svi" else {"chains": 2}))
    likelihood = np.exp(found.log_likelihood["similar"].to_numpy()).mean(axis=(0, 1))
    p = np.where(data[2], likelihood, 1 - likelihood)
    ends = np.sort(est.labels_[data[1]], axis=1)
    careless = np.isin(data[3], ["cat", "dan"])
    # Which two clusters the careless run together has no name of its own: the pair where the two camps differ most.
    gaps = [
        p[careless & (ends == c).all(axis=1)].mean() - p[~careless & (ends == c).all(axis=1)].mean()
        for c in ([0, 1], [0, 2], [1, 2])
    ]
    assert max(gaps) > 0.2  # they say "similar" there four times of five; a shared confusion would make it 0


def test_diagnosis_knows_each_annotator_and_does_without_names(fitted):
    est, data = fitted
    found = est.diagnose(*data, draws=4, n_restarts=2, work=4)
    assert found.conditional
    X, pairs, similar, names = data
    unnamed = est.diagnose(
        X, pairs, similar, draws=4, n_restarts=1, work=2
    )  # nobody known: all by the shared confusion
    alpha = [next(c for c in one.conditions if c.id == "alpha").evidence for one in (found, unnamed)]
    assert alpha[0] != alpha[1]  # the asked pairs' probabilities are each annotator's own, or the shared ones
    other = est.fitted_.known(PairData.from_arrays(X, pairs, similar, np.where(names == "ann", "zoe", names)))
    np.testing.assert_array_equal(other.annotator == 4, names == "ann")
    np.testing.assert_array_equal(est.fitted_.known(other).annotator, other.annotator)


def test_annotators_who_are_numbers_are_known_again(tmp_path, noisy_blobs):
    """A run read back has the annotators that were fitted: with names of another kind, each would count as never seen."""
    a = noisy_blobs.answers
    who = np.arange(len(a.pairs)) % 3
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar, who)
    est = VolMaxDCC(3, confusion="per-annotator", volume=0.0, scale="standard", init="kmeans", hidden=(8,), epochs=2, random_state=0).fit_data(data)  # fmt: skip
    runs.finish(tmp_path / "run", *est.described(), data, "a test", X=noisy_blobs.X)
    again = runs.read_data(tmp_path / "run")
    assert again.annotator_names == data.annotator_names == (0, 1, 2)
    known = VolMaxDCC.load(tmp_path / "run").fitted_.known(again)
    np.testing.assert_array_equal(known.annotator, who)
