"""The estimators: scikit-learn's conventions, seeds, the objective, saving, and what they say of themselves."""

import hashlib
import json
import os
import pickle

import joblib
import numpy as np
import pyro
import pytest
import torch
from helpers import REFUSED, FromLabels, follows_scikit_learn, make_blobs
from pyro import poutine
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from pdcc import ArtifactError, PairDataError, VanillaDCC, VolMaxDCC, metrics
from pdcc.inference import PairTensors
from pdcc.storage.model import load_run, save_run
from pdcc.training import Shape, Source, Start

QUICK = {
    "hidden": (16,),
    "epochs": 8,
    "random_state": 0,
    "device": "cpu",
    "scale": None,
    "init": "kmeans",
    "progress": False,
}


@pytest.fixture(scope="module")
def fitted(noisy_blobs):
    a = noisy_blobs.answers
    return VolMaxDCC(3, confusion="stochastic", volume=0.02, **QUICK).fit(noisy_blobs.X, a.pairs, a.similar)


def test_recovers_blobs_seen_and_unseen(blobs):
    unseen = make_blobs(n=90)
    a = blobs.answers
    for est in (
        VolMaxDCC(3, random_state=0, epochs=20, hidden=(32,)),
        VanillaDCC(3, random_state=0, epochs=20, hidden=(32,)),
    ):
        est.fit(blobs.X, a.pairs, a.similar)
        assert metrics.acc(blobs.y, est.labels_) > 0.97
        assert metrics.acc(unseen.y, est.predict(unseen.X)) > 0.97
        np.testing.assert_allclose(est.predict_proba(unseen.X).sum(axis=1), 1.0)
        np.testing.assert_array_equal(est.predict_proba(blobs.X), est.memberships_)
        assert est.agreement_.shape == (3, 3)


def test_objective_is_equation_13(fitted, noisy_blobs):
    """Written out in numpy from the fitted weights, in float64."""
    a, X = noisy_blobs.answers, noisy_blobs.X.astype(np.float64)
    layers = [m for m in fitted.model_.membership.layers if isinstance(m, torch.nn.Linear)]
    h = X.astype(np.float32)
    for depth, layer in enumerate(layers):
        h = h @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        h = np.maximum(h, 0) if depth < len(layers) - 1 else h
    e = np.exp(h - h.max(axis=1, keepdims=True))
    F = (e / e.sum(axis=1, keepdims=True)).astype(np.float64)
    A = fitted.confusion_
    np.testing.assert_allclose(A.sum(axis=0), 1.0, rtol=1e-5)
    p = np.einsum("mk,kl,ml->m", F[a.pairs[:, 0]], A.T @ A, F[a.pairs[:, 1]])
    nll = -np.where(a.similar, np.log(p), np.log(1 - p)).mean()
    expected = nll - 0.02 * np.linalg.slogdet(F.T @ F)[1]
    # The net runs in float32: its memberships carry errors of about 1e-6.
    assert fitted.objective(noisy_blobs.X, a.pairs, a.similar) == pytest.approx(expected, rel=1e-5)


def test_model_can_be_traced(fitted, noisy_blobs):
    a = noisy_blobs.answers
    x = torch.as_tensor(noisy_blobs.X)
    i, j = torch.as_tensor(a.pairs).T
    batch = PairTensors(x, i, j, torch.as_tensor(a.similar).float()).batch(torch.arange(10))
    trace = poutine.trace(poutine.replay(fitted.model_, poutine.trace(fitted.guide_).get_trace(batch))).get_trace(batch)
    assert {"pairs", "similar", "volume", "confusion_columns"} <= set(trace.nodes)


def test_random_state_fixes_everything(noisy_blobs):
    a = noisy_blobs.answers
    runs = [
        VolMaxDCC(3, epochs=4, hidden=(16,), random_state=s).fit(noisy_blobs.X, a.pairs, a.similar).memberships_
        for s in (5, 5, 6)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - that the global stream is left alone is what is tested
    VolMaxDCC(3, **QUICK).fit(noisy_blobs.X, a.pairs, a.similar)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_auto_says_what_it_chose_and_why(noisy_blobs):
    a = noisy_blobs.answers
    est = VolMaxDCC(3, **(QUICK | {"init": "pairs", "scale": "auto"})).fit(noisy_blobs.X, a.pairs, a.similar)
    report = est.report_
    body = json.loads(json.dumps(report.to_dict()))
    assert body["held_out"] == "pairs"
    assert body["n_held_out"] == 60
    assert body["n_compared"] == len(a.similar) - 60
    rows = [row["setting"] for row in body["compared"]]
    assert rows[0] == "one rate for all pairs"
    for scaling in ("standard", "unit"):
        assert f"{scaling} scale, {Start(Source.KMEANS)}" in rows
        assert f"{scaling} scale, {Start(Source.GUIDED)}" in rows
    for shape in (Shape.SHARED, Shape.OWN):
        assert any(row.endswith(str(Start(Source.GRAPH, shape))) for row in rows)
    assert {f"confusion {form}" for form in ("stochastic", "pooled")} <= set(rows)
    for row in body["compared"]:
        assert row["behind_best"] >= 0
        assert np.isfinite(row["nll"])
    assert report.begun in rows
    assert f"confusion {report.chosen.confusion}" in report.reason
    assert len(str(report).splitlines()) == 3
    assert type(report).from_dict(body) == report


def test_annotators_are_held_out_whole(noisy_blobs):
    a = noisy_blobs.answers
    who = np.arange(len(a.similar)) % 20
    est = VolMaxDCC(3, **QUICK).fit(noisy_blobs.X, a.pairs, a.similar, who)
    assert est.report_.held_out == "annotators"
    assert est.report_.n_held_out == 60
    few = VolMaxDCC(3, **QUICK).fit(noisy_blobs.X, a.pairs, a.similar, who % 4)
    assert few.report_.held_out == "pairs"


def test_n_init_keeps_the_best_restart(noisy_blobs):
    a = noisy_blobs.answers
    setting = QUICK | {"init": "random", "epochs": 3, "confusion": "none", "volume": 0.0}
    one = VolMaxDCC(3, **setting).fit(noisy_blobs.X, a.pairs, a.similar)
    four = VolMaxDCC(3, n_init=4, **setting).fit(noisy_blobs.X, a.pairs, a.similar)
    assert min(h["held_out"] for h in four.history_) < min(h["held_out"] for h in one.history_)


@pytest.mark.parametrize("form", ["none", "sigmoid", "stochastic"])
def test_save_load_and_pickle_predict_the_same(tmp_path, noisy_blobs, form):
    a = noisy_blobs.answers
    est = VolMaxDCC(3, confusion=form, volume=0.01, **(QUICK | {"scale": "standard", "partition_weight": 0.5})).fit(
        noisy_blobs.X, a.pairs, a.similar
    )
    est.save(tmp_path / "run")
    joblib.dump(est, tmp_path / "est.joblib")
    fresh = noisy_blobs.X[:20] + 0.5
    for other in (
        VolMaxDCC.load(tmp_path / "run"),
        joblib.load(tmp_path / "est.joblib"),
        pickle.loads(pickle.dumps(est)),
    ):
        np.testing.assert_array_equal(other.predict_proba(fresh), est.predict_proba(fresh))
        np.testing.assert_array_equal(other.agreement_, est.agreement_)
        np.testing.assert_array_equal(other.memberships_, est.memberships_)
        assert other.objective(noisy_blobs.X, a.pairs, a.similar) == est.objective(noisy_blobs.X, a.pairs, a.similar)
        assert other.history_ == est.history_
    body = json.loads((tmp_path / "run" / "run.json").read_text())
    assert body["versions"]["torch"] == torch.__version__
    assert body["params"]["confusion"] == form
    assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".")]
    est.save(tmp_path / "run")  # again, over itself
    assert len(list((tmp_path / "run").iterdir())) == 2


class Bomb:
    def __reduce__(self):
        return (os.system, ("echo exploded > exploded.txt",))


def test_foreign_and_tampered_files_are_refused(tmp_path, monkeypatch, fitted):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    fitted.save(run)
    flat, described = load_run(run)
    file = next(run.glob("*.safetensors"))
    good, text = file.read_bytes(), (run / "run.json").read_text()

    def refused(words):
        with pytest.raises(ArtifactError, match=words):
            VolMaxDCC.load(run)

    flipped = bytearray(good)
    flipped[-3] ^= 1
    bomb = pickle.dumps(Bomb())
    for damaged in (bytes(flipped), bomb):
        file.write_bytes(damaged)
        refused(rf"{file.name}.*altered")
    # Forged to the last hash: what a description says is then believed, and what is in the file still cannot run.
    kept = {"model.safetensors": {"name": file.name, "sha256": hashlib.sha256(bomb).hexdigest()}}
    save_run(run, flat, described | {"files": kept})
    file.write_bytes(bomb)
    refused(rf"{file.name}: not a readable")
    assert not (tmp_path / "exploded.txt").exists()
    file.write_bytes(good)
    (run / "run.json").write_text(json.dumps(json.loads(text) | {"seed": 99}))
    refused(r"run\.json: was altered")
    for change, words in (
        ({"format": "other"}, "found 'other'"),
        ({"files": {"model.safetensors": {"name": "../../etc/passwd", "sha256": ""}}}, "keeps no model"),
        ({"files": {"model.safetensors": {"name": "model-0123456789ab.safetensors", "sha256": ""}}}, "missing"),
        ({"files": []}, "keeps no model"),
        ({"estimator": "VanillaDCC"}, "found 'VanillaDCC'"),
        ({"fitted": described["fitted"] | {"item_shape": [99]}}, "does not fit"),
    ):
        save_run(run, flat, described | change)
        refused(words)
    (run / "run.json").write_text("{")
    refused(r"run\.json: .*JSON")
    (run / "run.json").unlink()
    refused("found none")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(ArtifactError, match="other files"):
        fitted.save(tmp_path / "full")


def test_what_was_loaded_does_not_hang_on_the_file(tmp_path, fitted):
    fitted.save(tmp_path / "run")
    loaded = VolMaxDCC.load(tmp_path / "run")
    file = next((tmp_path / "run").glob("*.safetensors"))
    with file.open("r+b") as open_file:  # in place, and of the same length: a shorter one could end the process
        open_file.write(bytes(file.stat().st_size))
    np.testing.assert_array_equal(loaded.memberships_, fitted.memberships_)
    np.testing.assert_array_equal(loaded.fitted_.split.held, fitted.fitted_.split.held)


def test_runs_of_different_shapes_load_side_by_side(tmp_path, noisy_blobs):
    """Both programs call their sites the same; neither may find the other's parameters in Pyro's store."""
    a = noisy_blobs.answers
    kept = []
    for people in (2, 5):
        est = VolMaxDCC(3, confusion="per-annotator", volume=0.0, **QUICK | {"epochs": 1})
        est.fit(noisy_blobs.X, a.pairs, a.similar, np.arange(len(a.similar)) % people).save(tmp_path / str(people))
        kept.append(est)
    for est, people in zip(kept, (2, 5), strict=True):
        other = VolMaxDCC.load(tmp_path / str(people))
        np.testing.assert_array_equal(other.annotator_confusion_, est.annotator_confusion_)
        np.testing.assert_array_equal(other.predict_proba(noisy_blobs.X), est.predict_proba(noisy_blobs.X))
    assert not dict(pyro.get_param_store())


def test_numpy_numbers_are_numbers(tmp_path, noisy_blobs):
    a = noisy_blobs.answers
    est = VolMaxDCC(
        np.int64(3), **(QUICK | {"batch_size": np.int64(64), "lr": np.float64(1e-3), "random_state": np.int64(1)})
    )
    est.fit(noisy_blobs.X, a.pairs, a.similar).save(tmp_path / "run")
    assert VolMaxDCC.load(tmp_path / "run").n_clusters == 3


def test_loading_leaves_random_state_and_later_parameters_alone(tmp_path, fitted, noisy_blobs, caplog):
    fitted.save(tmp_path / "run")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    VolMaxDCC.load(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    other = pickle.loads(pickle.dumps(fitted))
    other.set_params(hidden=(99,), n_clusters=7, device="cuda:7")
    again = pickle.loads(pickle.dumps(other))
    np.testing.assert_array_equal(again.predict_proba(noisy_blobs.X), fitted.predict_proba(noisy_blobs.X))
    if not torch.cuda.is_available():
        assert "CPU" in caplog.text


BAD = [
    ({"confusion": "maybe"}, ValueError), ({"volume": -1}, ValueError), ({"volume": "big"}, TypeError), ({"volume": float("nan")}, ValueError),
    ({"partition_weight": "x"}, TypeError), ({"hidden": 512}, TypeError), ({"hidden": (0,)}, ValueError), ({"dropout": 1.0}, ValueError),
    ({"scale": "row"}, ValueError), ({"init": "lucky"}, ValueError), ({"n_init": 0}, ValueError), ({"epochs": 1.5}, TypeError),
    ({"batch_size": 0}, ValueError), ({"batch_size": 1}, ValueError), ({"lr": 0}, ValueError), ({"confusion_lr": "fast"}, TypeError), ({"optimizer": "lbfgs"}, ValueError),
    ({"volume_estimator": "some"}, ValueError), ({"validation_fraction": 1.0}, ValueError), ({"random_state": -1}, ValueError), ({"random_state": 2**31}, ValueError),
    ({"device": "tpu?"}, ValueError), ({"progress": "yes"}, TypeError), ({"patience": 0}, ValueError), ({"mixed_precision": "bf16"}, ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error"), BAD, ids=[str(c) for c, _ in BAD])
def test_bad_parameters_are_refused_in_fit(change, error, noisy_blobs):
    est = VolMaxDCC(3, **(QUICK | change))
    with pytest.raises(error, match=rf"^{next(iter(change))}: expected"):
        est.fit(noisy_blobs.X, noisy_blobs.answers.pairs, noisy_blobs.answers.similar)


def test_new_items_must_look_like_the_old(fitted, noisy_blobs):
    with pytest.raises(PairDataError, match="expecting 4 features"):
        fitted.predict(noisy_blobs.X[:, :2])
    with pytest.raises(NotFittedError):
        VolMaxDCC(3).predict(noisy_blobs.X)


def test_clone_and_params(fitted):
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert not hasattr(twin, "model_")
    assert twin.set_params(volume=0.5).volume == 0.5


@pytest.mark.parametrize("n_pairs", [2, 3, 8])
def test_a_handful_of_pairs(n_pairs):
    X = make_blobs(n=12).X
    pairs = np.array([[0, 3], [0, 1], [1, 4], [2, 5], [1, 2], [0, 2], [3, 4], [4, 5]])[:n_pairs]
    similar = np.array([1, 0, 1, 1, 0, 0, 0, 0])[:n_pairs]
    est = VolMaxDCC(3, epochs=2, hidden=(8,), random_state=0).fit(X, pairs, similar)
    assert np.isfinite(est.memberships_).all()
    assert "too few answers to compare partitions by" in est.report_.reason


class FromLabelsVolMaxDCC(FromLabels, VolMaxDCC):
    def fit_transform(self, X, y=None):
        return self.fit(X, y).transform(X)


CLASSIFIER = "the check takes whatever has predict_proba for a classifier of four classes; tests/test_sklearn_use.py fits sparse X"
PROBA = {"check_estimator_sparse_array": CLASSIFIER, "check_estimator_sparse_matrix": CLASSIFIER}


@pytest.mark.slow
def test_scikit_learn_conventions():
    """All of scikit-learn's checks on an adapter that only supplies pairs."""
    est = FromLabelsVolMaxDCC(
        2, hidden=(4,), epochs=1, scale=None, init="kmeans", confusion="none", volume=0.0, random_state=0
    )
    follows_scikit_learn(est, REFUSED | PROBA)


@pytest.mark.parametrize("scale", [None, "standard"])
def test_read_only_arrays_fit_without_a_word(noisy_blobs, scale):
    """A mapped file, or a column of a table: torch warns about sharing such memory, and warnings are errors here."""
    X, pairs, similar = (
        noisy_blobs.X.astype(np.float32),
        noisy_blobs.answers.pairs.copy(),
        noisy_blobs.answers.similar.copy(),
    )
    for part in (X, pairs, similar):
        part.setflags(write=False)
    est = VolMaxDCC(3, hidden=(8,), epochs=1, scale=scale, confusion="none", volume=0.0, init="random", progress=False)
    assert est.fit(X, pairs, similar).predict(X).shape == (len(X),)
    assert est.predict_pairs(X, pairs).shape == (len(pairs),)
