"""The paper's tasks and figures are what the paper says; its files cannot run code."""

import os
import pickle

import numpy as np
import pytest
from helpers import FLIP_TOLERANCE, Call, same

from pdcc.datasets import digits
from pdcc.errors import PairDataError, UnsafeFileError
from pdcc.experiments.paper.data import (
    AMT_FILE,
    FILE_TASKS,
    PAPER_TASKS,
    SHORT_TRAINED_TASKS,
    SIZES,
    Sizes,
    paper_features,
    paper_items,
    paper_task,
    paper_trial,
)
from pdcc.experiments.paper.published import published

SMALL = Sizes(seen=1200, valid=97, unseen=500, pairs=3000)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    (tmp_path / "paper").mkdir()
    return tmp_path / "paper"


@pytest.fixture(scope="module")
def by_class():
    """All digits, sorted by class, as ImageFolder would: X (1797, 64), y (1797,)."""
    data = digits(n_unseen=0)
    order = np.argsort(data.y, kind="stable")
    return data.X[order], data.y[order]


def test_sizes_and_levels_are_the_papers():
    assert {name: (s.seen, s.unseen, s.items, s.pairs, s.clusters) for name, s in SIZES.items()} == {
        "stl10": (10_000, 2_000, 13_000, 10_000, 10),
        "cifar10": (10_000, 45_000, 60_000, 10_000, 10),
        "imagenet10": (10_000, 2_000, 13_000, 10_000, 10),
        "imagenet10-amt": (10_000, 2_000, 13_000, 8_994, 10),
        "imagenet10-600": (10_000, 2_000, 13_000, 10_000, 10),
        "cifar100": (10_000, 45_000, 60_000, 10_000, 20),
    }
    assert len(PAPER_TASKS) == 13
    assert PAPER_TASKS["stl10-15.0"] == ("stl10", 0.15)
    table = published(setting="main")
    found = table.groupby("task").agg(data=("data", "first"), noise=("noise", "first"))
    assert {task: tuple(row) for task, *row in found.itertuples()} == {
        task: (name, 0.2309 if level is None else level) for task, (name, level) in PAPER_TASKS.items()
    }
    deeper, shorter = (set(published(setting=s)["task"]) for s in ("three hidden layers", "600-epoch features"))
    assert deeper == {task for task in PAPER_TASKS if task.startswith(("stl10", "cifar10"))}
    assert shorter == set(SHORT_TRAINED_TASKS) == {"imagenet10-600-0.0", "imagenet10-600-4.4", "imagenet10-600-5.8"}
    assert set(FILE_TASKS) - set(PAPER_TASKS) - shorter == {f"cifar100-{p}" for p in (0.0, 4.9, 8.7, 10.9)}


def test_every_form_of_the_files_gives_the_same_split(folder, by_class):
    X, y = by_class
    np.savez(folder / "stl10.npz", X=X, y=y)
    (folder / "cifar10.pkl").write_bytes(pickle.dumps({"X": X.astype(np.float64), "Y": y, "path": ["a", "b"]}))
    (folder / "imagenet10").mkdir()
    np.save(folder / "imagenet10" / "feature.npy", X)
    np.save(folder / "imagenet10" / "label.npy", y.astype(np.uint8))
    stl, *others = (paper_features(name, SMALL) for name in ("stl10", "cifar10", "imagenet10"))
    for part in ("X", "y", "X_unseen", "y_unseen"):
        for other in others:
            same(getattr(stl, part), getattr(other, part))
    assert (stl.X.dtype, stl.y.dtype) == (np.float32, np.int64)
    assert (stl.X.shape, stl.X_unseen.shape) == ((1200, 64), (500, 64))
    assert len(np.unique(stl.y)) == len(np.unique(stl.y_unseen)) == 10
    # No item is on both sides, and rows keep their classes.
    where = {row.tobytes(): k for row, k in zip(X, y, strict=True)}
    assert not {row.tobytes() for row in stl.X} & {row.tobytes() for row in stl.X_unseen}
    assert [where[row.tobytes()] for row in stl.X] == stl.y.tolist()
    np.savez(folder / "stl10.npz", X_seen=X[::-1][:1200], y_seen=y[::-1][:1200], X_unseen=X[:500], y_unseen=y[:500])
    with pytest.raises(PairDataError, match=r"10 classes in y_seen, found \d\b"):
        paper_features("stl10", SMALL)
    np.savez(folder / "stl10.npz", X_seen=stl.X, y_seen=stl.y, X_unseen=stl.X_unseen, y_unseen=stl.y_unseen)
    same(paper_features("stl10", SMALL).X, stl.X)


def in_pieces(path, content, n):
    """``content`` cut into ``n`` files as SpherePair's repository cuts them: equal but for the last."""
    size = len(content) // n
    for k in range(n):
        end = (k + 1) * size if k < n - 1 else None
        path.with_name(f"{path.name}.part{k + 1}").write_bytes(content[k * size : end])


@pytest.mark.parametrize("name", ["cifar10", "stl10", "imagenet10", "cifar100"])
def test_features_are_read_as_spherepairs_repository_keeps_them(folder, by_class, name):
    X, y = by_class
    sizes = SMALL if name != "cifar100" else Sizes(1200, 97, 500, 3000, 20)
    y = y if name != "cifar100" else 2 * y + np.arange(len(y)) % 2
    content = pickle.dumps((X, y))
    np.savez(folder / f"{name}.npz", X=X, y=y)
    expected, (X_valid, y_valid) = paper_items(name, sizes)
    assert (X_valid.shape, y_valid.shape) == ((97, 64), (97,))
    (folder / f"{name}.npz").unlink()
    (folder / name).mkdir()
    flat, deep = (folder / part / f"{name}_pretrained_dataset.pkl" for part in ("", name))
    for path, n_pieces in ((flat, 1), (deep, 1), (deep, 2), (flat, 12)):
        if n_pieces == 1:
            path.write_bytes(content)
        else:
            in_pieces(path, content, n_pieces)
        found, valid = paper_items(name, sizes)
        for part in ("X", "y", "X_unseen", "y_unseen"):
            same(getattr(found, part), getattr(expected, part))
        same(valid[0], X_valid)
        for file in path.parent.glob("*.pkl*"):
            file.unlink()


def test_pieces_that_are_missing_or_damaged_are_named(folder, by_class):
    path = folder / "cifar10_pretrained_dataset.pkl"
    content = pickle.dumps(by_class)
    in_pieces(path, content, 3)
    middle, last = (path.with_name(f"{path.name}.part{k}") for k in (2, 3))
    kept = middle.read_bytes()
    middle.unlink()
    with pytest.raises(
        PairDataError, match=r"dataset\.pkl: expected all pieces from \.part1 to \.part3, found no \.part2"
    ):
        paper_features("cifar10", SMALL)
    middle.write_bytes(kept)
    last.unlink()  # no name tells, but the bytes do
    with pytest.raises(PairDataError, match="a damaged one"):
        paper_features("cifar10", SMALL)
    last.write_bytes(b"")
    with pytest.raises(PairDataError, match="a damaged one"):
        paper_features("cifar10", SMALL)
    path.write_bytes(content)  # the whole is taken before its pieces
    assert paper_features("cifar10", SMALL).X.shape == (1200, 64)
    path.write_bytes(pickle.dumps((*by_class, "third")))
    with pytest.raises(PairDataError, match="expected X and y"):
        paper_features("cifar10", SMALL)
    path.write_bytes(pickle.dumps((np.full(by_class[0].shape, "a"), by_class[1])))
    with pytest.raises(PairDataError, match="numbers in X and y, found <U1"):
        paper_features("cifar10", SMALL)


def test_pieces_run_nothing_either(folder, by_class, tmp_path):
    mark = tmp_path / "ran"
    in_pieces(folder / "stl10_pretrained_dataset.pkl", pickle.dumps((Call(os.mkdir, str(mark)), by_class[1])), 2)
    with pytest.raises(UnsafeFileError, match=r"posix\.mkdir"):
        paper_features("stl10", SMALL)
    assert not mark.exists()


def test_what_oracles_choose_by_is_neither_seen_nor_unseen(folder, by_class):
    X, y = by_class
    np.savez(folder / "stl10.npz", X=X, y=y)
    trial = paper_trial("stl10-8.3", sizes=SMALL)
    rows = {row.tobytes() for row in trial.valid[0]}
    assert len(rows) == 97
    assert not rows & {row.tobytes() for row in (*trial.data.X, *trial.data.X_unseen)}
    parts = {"X_seen": X[:1200], "y_seen": np.arange(1200) % 10, "X_unseen": X[:500], "y_unseen": np.arange(500) % 10}
    np.savez(folder / "stl10.npz", **parts)
    assert paper_items("stl10", SMALL)[1] is None
    np.savez(folder / "stl10.npz", X_valid=X[:9], y_valid=y[:9], **parts)
    same(paper_items("stl10", SMALL)[1][0], X[:9])
    np.savez(folder / "stl10.npz", X_valid=X[:9], y_valid=y[:8], **parts)
    with pytest.raises(PairDataError, match=r"X_valid \(9, d\) and y_valid \(9,\)"):
        paper_items("stl10", SMALL)


def test_a_trial_draws_pairs_anew_and_the_same_at_every_noise(folder, by_class):
    np.savez(folder / "stl10.npz", X=by_class[0], y=by_class[1])
    data, clean, n_clusters = paper_task("stl10-0.0", 0, sizes=SMALL)
    _, noisy, _ = paper_task("stl10-15.0", 0, sizes=SMALL)
    _, again, _ = paper_task("stl10-15.0", 0, sizes=SMALL)
    other_data, other, _ = paper_task("stl10-8.3", 1, sizes=SMALL)
    assert n_clusters == 10
    assert clean.flip_rate == 0.0
    assert abs(noisy.flip_rate - 0.15) <= FLIP_TOLERANCE
    assert abs(other.flip_rate - 0.083) <= FLIP_TOLERANCE
    same(clean.pairs, noisy.pairs)
    same(noisy.similar, again.similar)
    same(data.X, other_data.X)
    assert not np.array_equal(clean.pairs, other.pairs)
    assert clean.pairs.shape == (3000, 2)
    assert clean.pairs.max() < SMALL.seen
    assert abs(paper_task("stl10-8.3", 1, sizes=SMALL, flip=0.05)[1].flip_rate - 0.05) <= FLIP_TOLERANCE


def test_missing_and_wrong_files_say_what_to_do(folder, monkeypatch, by_class):
    X, y = by_class
    with pytest.raises(
        ValueError, match=r"task: expected one of stl10-0\.0, .*imagenet10-amt, .*cifar100-10\.9, found 'stl10'"
    ):
        paper_task("stl10")
    with pytest.raises(
        ValueError, match="name: expected one of stl10, cifar10, imagenet10, imagenet10-600, cifar100, found"
    ):
        paper_features("imagenet10-amt")
    with pytest.raises(FileNotFoundError, match=r"cifar10\.npz.*label\.npy.*60,000"):
        paper_task("cifar10-4.9")
    with pytest.raises(FileNotFoundError, match="pair_8994_real"):
        paper_task("imagenet10-amt")
    np.savez(folder / "cifar10.npz", X=X, y=y)
    with pytest.raises(
        PairDataError, match=r"cifar10\.npz: expected X \(60000, d\).*shapes \(1797, 64\) and \(1797,\)"
    ):
        paper_task("cifar10-4.9")
    np.savez(folder / "cifar10.npz", X=X)
    with pytest.raises(PairDataError, match="expected X and y, found X"):
        paper_task("cifar10-4.9")
    np.savez(folder / "cifar10.npz", X=np.array([Call(os.system, "true")], dtype=object), y=y)
    with pytest.raises(PairDataError, match="plain arrays"):
        paper_task("cifar10-4.9")
    (folder / "stl10.pkl").write_bytes(pickle.dumps({"X": Call(os.system, "true"), "Y": y}))
    with pytest.raises(UnsafeFileError, match=r"posix\.system"):
        paper_task("stl10-0.0")
    monkeypatch.delenv("PDCC_DATA")
    with pytest.raises(FileNotFoundError, match=r"PDCC_DATA.*13,000"):
        paper_task("stl10-0.0")


def turk_file(X, y, changes):
    """The pair file as the authors' code writes it: X in the shuffled order, numpy numbers in the pairs."""
    rng = np.random.default_rng(0)
    shuffle = rng.permutation(len(X))
    true_y = y[shuffle[: SMALL.seen]]
    i, j = rng.integers(SMALL.seen, size=(2, SMALL.pairs))
    true = (true_y[i] == true_y[j]) * 1.0
    given = np.where(rng.random(SMALL.pairs) < 0.2309, 1 - true, true).astype(np.float32)
    content = {
        "shuffle_inds": shuffle,
        "ind_pairs": list(zip(i, j, strict=True)),
        "label_pairs": given,
        "true_label_pairs": true,
        "X": X[shuffle[: SMALL.seen]],
        "true_y": true_y,
    }
    return {key: value for key, value in (content | changes).items() if value is not None}


def test_turk_pairs_are_read_from_the_authors_file(folder, by_class):
    X, y = by_class
    content = turk_file(X, y, {})
    (folder / AMT_FILE).write_bytes(pickle.dumps(content))
    np.savez(folder / "imagenet10.npz", X=X, y=y)
    data, answers, n_clusters = paper_task("imagenet10-amt", sizes=SMALL)
    assert n_clusters == 10
    same(data.X, content["X"])
    assert answers.pairs.tolist() == [[int(i), int(j)] for i, j in content["ind_pairs"]]
    assert answers.similar.tolist() == content["label_pairs"].astype(bool).tolist()
    assert answers.flip_rate == np.mean(content["label_pairs"] != content["true_label_pairs"])
    rest = content["shuffle_inds"][SMALL.seen + SMALL.valid :]
    same(data.X_unseen, X[rest])
    same(data.y_unseen, y[rest])
    # The same, all in the pair file, or with the unseen items in a file of their own.
    whole = content | {"X": X[content["shuffle_inds"]], "true_y": y[content["shuffle_inds"]]}
    parts = dict(X_seen=data.X, y_seen=data.y, X_unseen=X[rest], y_unseen=y[rest])
    for pair_file, features in ((whole, None), (turk_file(X, y, {"shuffle_inds": None}), parts)):
        (folder / "imagenet10.npz").unlink()
        if features is not None:
            np.savez(folder / "imagenet10.npz", **features)
        (folder / AMT_FILE).write_bytes(pickle.dumps(pair_file))
        other, _, _ = paper_task("imagenet10-amt", 3, sizes=SMALL)
        same(other.X, data.X)
        same(other.X_unseen, data.X_unseen)
        np.savez(folder / "imagenet10.npz", X=X, y=y)
    with pytest.raises(ValueError, match="flip: expected None"):
        paper_task("imagenet10-amt", flip=0.1, sizes=SMALL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ind_pairs": None}, "expected a dict with ind_pairs"),
        ({"label_pairs": np.full(3000, 2.0)}, "3000 pairs, answered 0 or 1"),
        ({"label_pairs": np.zeros(5)}, r"answers of shape \(5,\)"),
        ({"ind_pairs": [(0, 1)] * 10}, "found 10 pairs"),
        ({"ind_pairs": [(0, 1200)] * 3000}, "row numbers from 0 to 1199"),
        ({"true_label_pairs": np.zeros(3000)}, "out of order"),
        ({"X": np.zeros((7, 64))}, r"expected X \(1200, d\)"),
        ({"shuffle_inds": None}, "no shuffle_inds there"),
        ({"shuffle_inds": np.arange(1797)}, "found another order"),
    ],
)
def test_turk_files_that_contradict_themselves_are_refused(folder, by_class, changes, message):
    np.savez(folder / "imagenet10.npz", X=by_class[0], y=by_class[1])
    (folder / AMT_FILE).write_bytes(pickle.dumps(turk_file(*by_class, changes)))
    with pytest.raises(PairDataError, match=message):
        paper_task("imagenet10-amt", sizes=SMALL)


# ---- the paper's figures


def test_published_has_every_figure_of_every_table():
    table = published()
    counts = table.groupby(["data", "setting"]).size().to_dict()
    # Clean blocks: 3 metrics x (3 classical methods seen + 4 deep ones seen and unseen); noisy ones lack K-means.
    assert counts == {
        ("stl10", "main"): 33 + 3 * 30,
        ("cifar10", "main"): 33 + 3 * 30,
        ("imagenet10", "main"): 33 + 3 * 30,
        ("imagenet10-amt", "main"): 3 * (3 + 3 * 2),
        ("stl10", "three hidden layers"): 4 * 3 * 4 * 2,
        ("cifar10", "three hidden layers"): 4 * 3 * 4 * 2,
        ("imagenet10", "600-epoch features"): 33 + 2 * 30,
    }
    assert table["mean"].between(0, 1).all()
    assert table["std"].dropna().between(0, 0.2).all()
    key = ["data", "setting", "noise", "method", "split", "metric"]
    assert not table.duplicated(key).any()
    undeviating = table[table["std"].isna()]
    assert set(undeviating["setting"][undeviating["method"] != "Kmeans"]) == {"main", "three hidden layers"}
    assert published(setting="main", noise=0.083)["std"].notna().all()
    unseen = table[table["split"] == "unseen"]["method"]
    assert set(unseen) == {"DC-GMM", "C-IDEC", "VanillaDCC", "VolMaxDCC"}
    with pytest.raises(ValueError, match="data: expected one of 'stl10'"):
        published("mnist")
    with pytest.raises(ValueError, match="noise: expected one of"):
        published("stl10", noise=0.5)


@pytest.mark.parametrize(
    ("where", "mean", "std"),
    [
        (("stl10", "main", 0.15, "VolMaxDCC", "unseen", "ACC"), 0.81, 0.00),
        (("stl10", "main", 0.103, "PCKmeans", "seen", "NMI"), 0.73, 0.01),
        (("stl10", "main", 0.0, "Kmeans", "seen", "ARI"), 0.54, 0.03),
        (("stl10", "main", 0.15, "VanillaDCC", "seen", "NMI"), 0.50, 0.01),  # printed as ARI
        (("stl10", "main", 0.15, "VanillaDCC", "seen", "ARI"), 0.33, 0.01),  # printed as NMI
        (("cifar10", "main", 0.109, "DC-GMM", "unseen", "NMI"), 0.68, 0.02),
        (("cifar10", "main", 0.049, "VolMaxDCC", "unseen", "ARI"), 0.74, 0.00),  # printed as NMI
        (("cifar10", "main", 0.087, "COP-Kmeans", "seen", "ACC"), 0.64, 0.06),
        (("imagenet10", "main", 0.112, "C-IDEC", "unseen", "ARI"), 0.68, 0.03),
        (("imagenet10", "main", 0.034, "VolMaxDCC", "seen", "NMI"), 0.89, 0.01),  # printed as ARI
        (("imagenet10", "600-epoch features", 0.058, "VolMaxDCC", "unseen", "ACC"), 0.92, 0.01),
        (("imagenet10", "600-epoch features", 0.044, "DC-GMM", "seen", "NMI"), 0.85, 0.01),
        (("stl10", "three hidden layers", 0.15, "VolMaxDCC", "seen", "ACC"), 0.85, None),
        (("cifar10", "three hidden layers", 0.087, "DC-GMM", "seen", "ARI"), 0.59, None),
        (("imagenet10-amt", "main", 0.2309, "VolMaxDCC", "unseen", "NMI"), 0.88, None),  # printed as ARI
        (("imagenet10-amt", "main", 0.2309, "COP-Kmeans", "seen", "ARI"), 0.42, None),
    ],
)
def test_published_figures_against_the_paper(where, mean, std):
    data, setting, noise, method, split, metric = where
    row = published(data, setting=setting, noise=noise, method=method, split=split, metric=metric)
    assert row["mean"].tolist() == [mean]
    assert row["std"].isna().all() if std is None else row["std"].tolist() == [std]


def test_only_the_authors_methods_are_unswapped_and_say_so():
    table = published()
    own = table["method"].isin(["VanillaDCC", "VolMaxDCC"])
    swapped = own & table["metric"].isin(["NMI", "ARI"])
    assert table[~swapped]["note"].eq("").all()
    assert table[swapped & (table["metric"] == "NMI")]["note"].eq("printed as ARI").all()
    assert table[swapped & (table["metric"] == "ARI")]["note"].eq("printed as NMI").all()
    # Un-swapped, their NMI exceeds their ARI where answers are noisy, as it does for every rival.
    noisy = table[table["noise"] > 0.08].pivot(
        index=["data", "setting", "noise", "method", "split"], columns="metric", values="mean"
    )
    assert (noisy["NMI"] >= noisy["ARI"]).all()
