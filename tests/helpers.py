"""Shared by tests: small problems with known answers, and checks that several files make."""

import os
import subprocess
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pdcc.annotators import Answers, answer_through, draw_pairs
from pdcc.cli import main


@dataclass(frozen=True)
class Blobs:
    """Three Gaussian clusters with truth, and answers about their pairs."""

    X: np.ndarray
    y: np.ndarray
    answers: Answers


def make_blobs(
    n: int = 150, n_pairs: int = 600, flip: float = 0.0, seed: int = 0, n_clusters: int = 3, d: int = 4
) -> Blobs:
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=4.0, size=(n_clusters, d))
    y = np.arange(n) % n_clusters
    X = (centres[y] + rng.normal(size=(n, d))).astype(np.float32)
    A = np.full((n_clusters, n_clusters), flip / n_clusters) + (1 - flip) * np.eye(n_clusters)
    answers = answer_through(np.eye(n_clusters)[y], draw_pairs(n, n_pairs, rng), A, rng)
    return Blobs(X, y, answers)


class FromLabels:
    """An adapter for scikit-learn's checks, whose ``fit(X, y)`` knows no pairs: neighbours in X make them up."""

    def made_up(self, X):
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        n = max(shape[0] if shape else 0, 1)
        i = np.arange(n)
        pairs = np.concatenate([np.column_stack([i, (i + 1) % n]), np.column_stack([i, (i + 2) % n])])
        return pairs, np.arange(2 * n) < n

    def fit(self, X, y=None):
        return super().fit(X, *self.made_up(X))

    def score(self, X, y=None):
        return super().score(X, *self.made_up(X))

    def fit_predict(self, X, y=None):
        return self.fit(X, y).labels_


# Checks of scikit-learn that ask for what we refuse on purpose.
ONE_CLUSTER = "the check sets n_clusters=1, which is refused by design: one cluster needs no clustering"
REFUSED = {
    "check_dont_overwrite_parameters": ONE_CLUSTER,
    "check_methods_subset_invariance": ONE_CLUSTER,
    "check_fit2d_1feature": ONE_CLUSTER,
    "check_fit2d_predict1d": ONE_CLUSTER,
    "check_fit2d_1sample": "one item cannot form a pair, and the error says that instead",
}


def follows_scikit_learn(est: BaseEstimator, expected: dict[str, str]) -> None:
    """Run all of scikit-learn's checks; those ``expected`` to fail must fail, and no other may."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks fit tiny random data and probe deprecated paths
        results = check_estimator(est, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed, failed
    assert sum(r["status"] == "passed" for r in results) > 30
    unexpected = [r["check_name"] for r in results if r["check_name"] in expected and r["status"] == "passed"]
    assert not unexpected, f"listed as failing but pass: {unexpected}"


FLIP_TOLERANCE = 0.005 + 1e-9  # the default of machine_annotators, which takes rates on its edge for within


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


class Call:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


def truth_of(classes, pairs):
    return classes[pairs[:, 0]] == classes[pairs[:, 1]]


def recount(labels, pairs, similar):
    """Broken answers, one by one."""
    found = {"must_link": 0, "cannot_link": 0}
    for (i, j), same in zip(pairs.tolist(), similar.tolist(), strict=True):
        if same != (labels[i] == labels[j]):
            found["must_link" if same else "cannot_link"] += 1
    return found


def overlapping(seed: int, flip: float = 0.0) -> Blobs:
    """Five clusters that K-means cannot tell apart by features alone, and as many pairs as items."""
    rng = np.random.default_rng(seed)
    y = np.arange(300) % 5
    X = (1.2 * rng.normal(size=(5, 4))[y] + rng.normal(size=(300, 4))).astype(np.float32)
    pairs = draw_pairs(300, 300, rng)
    return Blobs(X, y, Answers(pairs, truth_of(y, pairs) ^ (rng.random(300) < flip), flip))


# A deep baseline that fits a hundred items in a second.
DEEP = {
    "hidden": (32,), "latent": 4, "batch_size": 64, "pretrain_epochs": 60, "epochs": 8, "random_state": 0, "device": "cpu",
}  # fmt: skip


class OneDevice(TorchDispatchMode):
    """Fails on any operator that sees tensors of two devices."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen = {t.device.type for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)}
        assert len(seen) <= 1, f"{func} mixes {seen}"
        return func(*args, **(kwargs or {}))


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def triples(read):
    return [tuple(row) for row in read.frame[["i", "j", "similar"]].itertuples(index=False)]


def pdcc(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0)


def run(*command, cwd) -> str:
    """What a command says; on one thread, since the tests themselves run side by side."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [str(c) for c in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
