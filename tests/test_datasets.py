"""Generators do what the paper says, and report the noise they made."""

import numpy as np
import pytest

from pdcc import annotators, datasets


def test_synthetic_is_the_appendix_construction():
    data = datasets.synthetic(4000, "paper", seed=3)
    m = data.memberships
    assert m.shape == (4000, 3)
    assert data.n_seen == 2000
    np.testing.assert_allclose(m.sum(axis=1), 1.0)
    assert (m >= 0).all()
    np.testing.assert_allclose(data.X, np.column_stack([2 * m[:, 0], 3 * m[:, 1] + 1, m[:, 0] * m[:, 1] + m[:, 2] - 2]))
    np.testing.assert_array_equal(data.confusion, [[1.0, 0.2, 0.3], [0.0, 0.8, 0.3], [0.0, 0.0, 0.4]])
    # The largest membership's mean depends on the noise's variance (.1, not a deviation of .1): compare with its own draws.
    rng = np.random.default_rng(0)
    raw = np.clip(np.array([1.0, 0, 0]) + rng.normal(0, np.sqrt(0.1), size=(400_000, 3)), 0, None)
    direct = (raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-300)).max(axis=1)
    spread = m.max(axis=1).std() / np.sqrt(len(m))
    assert abs(m.max(axis=1).mean() - direct.mean()) < 4 * spread


def test_seeds_fix_and_vary():
    a, b, c = (datasets.synthetic(50, None, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(a.X, b.X)
    assert not np.array_equal(a.X, c.X)
    np.testing.assert_array_equal(a.answers(30, 5).similar, b.answers(30, 5).similar)


def test_bernoulli_answers_have_the_models_rate():
    data = datasets.synthetic(2000, "paper", seed=0)
    answers = data.answers(20000, seed=1)
    assert answers.pairs.max() < data.n_seen
    G = data.memberships @ data.confusion.T
    p = (G[answers.pairs[:, 0]] * G[answers.pairs[:, 1]]).sum(axis=1)
    error = np.sqrt((p * (1 - p)).sum()) / len(p)
    assert abs(answers.similar.mean() - p.mean()) < 4 * error


def test_machine_annotator_is_transitively_consistent_and_noisier_with_fewer_labels():
    data = datasets.digits()
    pairs = annotators.draw_pairs(len(data.X), 4000, np.random.default_rng(0))
    rates = [annotators.machine_annotator(data.X, data.y, pairs, n_labels=n, seed=0).flip_rate for n in (20, 60, 600)]
    assert rates[0] > rates[1] > rates[2] > 0
    i, j, k = np.random.default_rng(1).integers(len(data.X), size=(3, 500))
    sides = [np.column_stack(ends) for ends in ((i, j), (j, k), (i, k))]
    similar = [annotators.machine_annotator(data.X, data.y, side, n_labels=20, seed=0).similar for side in sides]
    assert not (np.sum(similar, axis=0) == 2).any()


def test_mixed_annotators_differ():
    rng = np.random.default_rng(0)
    F = np.eye(3)[rng.integers(3, size=200)]
    pairs = annotators.draw_pairs(200, 6000, rng)
    blind = np.full((3, 3), 1 / 3)
    answers = annotators.mixed_annotators(F, pairs, np.stack([np.eye(3), blind]), rng)
    wrong = (F.argmax(1)[pairs[:, 0]] == F.argmax(1)[pairs[:, 1]]) != answers.similar
    assert wrong[answers.annotators == 0].mean() == 0.0
    # One who sees nothing says similar with probability 1/3: wrong on 2/3 of the same-class pairs and 1/3 of the rest.
    blind_pairs = pairs[answers.annotators == 1]
    same = (F.argmax(1)[blind_pairs[:, 0]] == F.argmax(1)[blind_pairs[:, 1]]).mean()
    error = np.sqrt(2 / 9 / len(blind_pairs))
    assert abs(wrong[answers.annotators == 1].mean() - (2 * same + 1 - same) / 3) < 4 * error
    assert answers.flip_rate == pytest.approx(wrong.mean())


def test_worker_pairs_come_from_one_worker():
    given = np.array([[0, -1], [0, 1], [1, 1], [-1, 2]])
    answers = annotators.worker_pairs([0, 0, 1, 2], given, 100, np.random.default_rng(0))
    found = {
        (int(i), int(j), int(w)): bool(s)
        for (i, j), w, s in zip(answers.pairs, answers.annotators, answers.similar, strict=True)
    }
    assert found == {
        (0, 1, 0): True,
        (0, 2, 0): False,
        (1, 2, 0): False,
        (1, 2, 1): True,
        (1, 3, 1): False,
        (2, 3, 1): False,
    }
    assert answers.flip_rate == pytest.approx(1 / 6)


@pytest.mark.parametrize("bad", [np.eye(2), -np.eye(3), np.ones((3, 3))])
def test_confusion_must_be_column_stochastic(bad):
    with pytest.raises(ValueError, match="columns sum to 1"):
        datasets.synthetic(20, bad).answers(5, 0)


def test_archives_are_read_or_clearly_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("PDCC_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="PDCC_DATA is not set"):
        datasets.labelme()
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"has no cifar10n\.npz"):
        datasets.cifar10n()
    with pytest.raises(ValueError, match="noise"):
        datasets.cifar10n("loud")
    X, y = np.ones((4, 3), np.float16), np.arange(4, dtype=np.int8)
    np.savez(tmp_path / "cifar10n.npz", X_seen=X, y_seen=y, X_unseen=X, y_unseen=y, human_worse=y[::-1])
    data, labels = datasets.cifar10n("worse")
    assert data.X.dtype == np.float32
    assert labels.tolist() == [3, 2, 1, 0]
    np.savez(tmp_path / "dwug_bar_nn.npz", X=X, i=y[:2], j=y[2:], judgment=np.array([2, 3]), annotator=y[:2], cluster=y)
    assert datasets.dwug("bar_nn").similar.tolist() == [False, True]
