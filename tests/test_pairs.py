"""Bad input gets one clear error before any work; good input of every form ends up the same."""

import logging
import pickle
import tracemalloc
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from pdcc import PairData, PairDataError, VolMaxDCC, dense
from pdcc.data.io import read_features
from pdcc.data.splits import folds, hold_out, split
from pdcc.validation import check_features, check_n_clusters, check_similar

X = np.arange(12.0).reshape(6, 2)
PAIRS = np.array([[0, 1], [2, 3], [4, 5], [1, 2]])
SIMILAR = np.array([1, 0, 1, 0])


def test_every_form_of_similar_means_the_same():
    forms = [
        SIMILAR,
        SIMILAR.astype(bool),
        2 * SIMILAR - 1,
        SIMILAR.astype(float),
        SIMILAR.tolist(),
        np.array([True, False, True, False], dtype=object),
        np.array([1, 0, 1, 0], dtype=object),
    ]
    for form in forms:
        assert PairData.from_arrays(X, PAIRS, form).similar.tolist() == [True, False, True, False]


BAD = [
    ({"pairs": [[0, 1], [2, 6], [4, 5], [1, 2]]}, "pairs", 1, r"0 to 5.*\[2, 6\]"),
    ({"pairs": [[0, 1], [2, 3], [-1, 5], [1, 2]]}, "pairs", 2, "0 to 5"),
    ({"pairs": [[0.0, 1.0], [2, 3], [4, 5], [1, 2]]}, "pairs", 0, "integers.*float64"),
    ({"pairs": [["a", "b"], ["a", "c"], ["a", "b"], ["b", "c"]]}, "pairs", 0, "integers"),
    ({"pairs": PAIRS[:, :1]}, "pairs", None, r"shape \(M, 2\)"),
    ({"pairs": np.zeros((0, 2), int), "similar": []}, "pairs", None, "at least one pair"),
    ({"pairs": [[1, 1], [2, 2], [0, 0], [3, 3]]}, "pairs", 0, "two different items"),
    ({"similar": [1, 0, 2, 0]}, "similar", 2, r"found .*\b2\b"),
    ({"similar": [1, -1, 0, 0]}, "similar", 1, r"found .*-1\b"),
    ({"similar": [1, 0, 0.5, 0]}, "similar", 2, r"found .*0\.5"),
    ({"similar": [1, 0, np.nan, 0]}, "similar", 2, "nan"),
    ({"similar": ["yes", "no", "yes", "no"]}, "similar", 0, "yes"),
    ({"similar": [1, 0, None, 0]}, "similar", 2, "None"),
    ({"similar": [1, 0, 1]}, "similar", None, "each of the 4 pairs"),
    ({"similar": [1, 1, 1, 1]}, "similar", None, "only 'similar'"),
    ({"similar": [0, 0, 0, 0]}, "similar", None, "only 'different'"),
    ({"similar": SIMILAR[:, None]}, "similar", None, "1D"),
    ({"X": np.where(np.arange(12).reshape(6, 2) == 7, np.nan, X)}, "X", 3, "NaN"),
    ({"X": np.where(np.arange(12).reshape(6, 2) == 4, np.inf, X)}, "X", 2, "inf"),
    ({"X": X[:, 0]}, "X", None, "2D"),
    ({"X": np.zeros((6, 0))}, "X", None, "0 feature"),
    ({"X": np.array([["1", "x"]] * 6)}, "X", 0, "numbers"),
    ({"X": X + 1j}, "X", None, "real numbers"),
    ({"X": [[1, 2], [3]]}, "X", None, "rows of one length"),
    ({"pairs": [[0, 1], [2]]}, "pairs", None, "rows of one length"),
    ({"item_ids": ["a", "b", None, "c", "d", "e"]}, "item_ids", 2, "None"),
    ({"item_ids": ["a", "b", ["c"], "d", "e", "f"]}, "item_ids", 2, r"hashable.*\['c'\]"),
    ({"annotators": ["a", "b"]}, "annotators", None, "each of the 4 pairs"),
    ({"annotators": ["a", "b", None, "a"]}, "annotators", 2, "missing"),
    ({"item_ids": ["a", "b", "c"]}, "item_ids", None, "6 rows"),
    ({"item_ids": torch.zeros(6, 2, dtype=torch.bfloat16)}, "item_ids", None, "a list of ids"),
    ({"item_ids": torch.zeros(6, 2, device="meta")}, "item_ids", None, "a list of ids"),
    ({"item_ids": list("abcdea")}, "item_ids", 5, "'a'"),
    ({"item_ids": list("abcdef"), "pairs": [["a", "b"], ["c", "z"], ["d", "e"], ["a", "c"]]}, "pairs", 1, "'z'"),
]


@pytest.mark.parametrize(("change", "argument", "row", "words"), BAD)
def test_bad_input_says_argument_row_and_fix(change, argument, row, words):
    with pytest.raises(PairDataError, match=words) as caught:
        PairData.from_arrays(**({"X": X, "pairs": PAIRS, "similar": SIMILAR} | change))
    assert caught.value.argument == argument
    assert caught.value.row == row
    text = str(caught.value)
    assert "expected" in text
    assert "found" in text
    assert row is None or f"row {row}" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


@pytest.mark.parametrize(
    ("k", "error"),
    [(1, PairDataError), (0, PairDataError), (7, PairDataError), ("3", TypeError), (2.0, TypeError), (True, TypeError)],
)
def test_n_clusters(k, error):
    with pytest.raises(error, match="n_clusters"):
        check_n_clusters(k, 6)
    with pytest.raises(error, match="n_clusters"):
        VolMaxDCC(k).fit(X, PAIRS, SIMILAR)


def test_self_pairs_are_dropped_and_counted(caplog):
    with caplog.at_level(logging.INFO, logger="pdcc"):
        data = PairData.from_arrays(X, [[0, 0], *PAIRS.tolist()], [1, *SIMILAR.tolist()], list("zabab"))
    assert (len(data), data.self_pairs) == (4, 1)
    assert "dropped 1 " in caplog.text
    assert [data.annotator_names[k] for k in data.annotator] == list("abab")


def test_repeated_and_contradictory_pairs_are_kept():
    data = PairData.from_arrays(X, [[0, 1], [0, 1], [1, 0]], [1, 0, 1])
    assert len(data) == 3


@pytest.mark.parametrize(
    "ids", [list("abcdef"), [10, 20, 30, 40, 50, 60], [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]]
)
def test_hashable_ids(ids):
    ends = np.empty((4, 2), dtype=object)
    for m, (a, b) in enumerate(PAIRS):
        ends[m, 0], ends[m, 1] = ids[a], ids[b]
    data = PairData.from_arrays(X, ends, SIMILAR, item_ids=ids)
    assert np.column_stack([data.i, data.j]).tolist() == PAIRS.tolist()


FRAME = pd.DataFrame({"i": PAIRS[:, 0], "j": PAIRS[:, 1], "similar": SIMILAR, "annotator": ["u", "v", "u", "v"]})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("features", ["npy", "npz", "csv", "parquet"])
def test_files(tmp_path, kind, features):
    pairs, path = tmp_path / f"pairs.{kind}", tmp_path / f"x.{features}"
    FRAME.to_csv(pairs, index=False) if kind == "csv" else FRAME.to_parquet(pairs)
    table = pd.DataFrame(X, columns=["a", "b"])
    {
        "npy": lambda: np.save(path, X),
        "npz": lambda: np.savez(path, X=X, other=X[:1]),
        "csv": lambda: table.to_csv(path, index=False),
        "parquet": lambda: table.to_parquet(path),
    }[features]()
    data = PairData.read(path, pairs)
    np.testing.assert_array_equal(data.features, X.astype(np.float32))
    assert data.similar.tolist() == [True, False, True, False]
    assert data.annotator_names == ("u", "v")


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_files(tmp_path, form):
    sparse.save_npz(tmp_path / "x.npz", form(X))
    FRAME.to_csv(tmp_path / "pairs.csv", index=False)
    np.testing.assert_array_equal(PairData.read(tmp_path / "x.npz", tmp_path / "pairs.csv").features, X)


def test_sparse_is_never_dense_in_double_precision():
    wide = sparse.random_array(
        (1500, 4000), density=0.001, format="csc", dtype=np.float64, rng=np.random.default_rng(0)
    )
    tracemalloc.start()
    try:
        dense_form = check_features(wide)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dense_form.flags.c_contiguous
    assert dense_form.dtype == np.float32
    # Itself, and which of its entries are finite: a quarter more. In double precision it would be twice as large.
    assert peak < 1.5 * dense_form.nbytes


def test_sparse_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr(dense, "memory_limit", lambda: 47.0)
    with pytest.raises(
        PairDataError, match=r"X: .*at most 4.7e-08 GB.*found shape \(6, 2\), which takes 4.8e-08 GB.*TruncatedSVD"
    ):
        VolMaxDCC(2).fit(sparse.csr_array(X), PAIRS, SIMILAR)
    monkeypatch.undo()
    assert dense.memory_limit() > 1e6
    huge = sparse.csr_array((10**7, 10**7), dtype=np.float32)
    with pytest.raises(PairDataError, match=r"4e\+05 GB"):
        check_features(huge)
    with pytest.raises(PairDataError, match="real numbers"):
        check_features(sparse.csr_array(np.eye(3) * 1j))
    with pytest.raises(PairDataError, match=r"inf in 1 row.*first at row 1,"):
        check_features(sparse.csr_array(np.diag([1.0, 1e300])))


def test_files_with_ids(tmp_path):
    names = ["n1", "n2", "n3", "n4", "n5", "n6"]
    pd.DataFrame({"name": names, "a": X[:, 0], "b": X[:, 1]}).to_csv(tmp_path / "x.csv", index=False)
    FRAME.assign(i=[names[k] for k in FRAME.i], j=[names[k] for k in FRAME.j]).to_csv(tmp_path / "p.csv", index=False)
    data = PairData.read(tmp_path / "x.csv", tmp_path / "p.csv", id_column="name")
    assert data.i.tolist() == PAIRS[:, 0].tolist()
    with pytest.raises(PairDataError, match="id column"):
        PairData.read(tmp_path / "x.csv", tmp_path / "p.csv", id_column="nope")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.drop(columns="similar"), "pairs table: .*similar"),
        (FRAME.assign(price=1), "price"),
        (FRAME.assign(weight=-1), "weights: .*row 0"),
        (FRAME.assign(similar=[1, 0, None, 0]), "row 2"),
        (FRAME.assign(i=["0", "1", "x", "2"]), "integers"),
    ],
)
def test_bad_frames(frame, words):
    with pytest.raises(PairDataError, match=words):
        PairData.from_frame(X, frame)


def test_bad_files(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 torn")
    (tmp_path / "torn.parquet").write_bytes(b"nothing")
    (tmp_path / "x.txt").write_text("1,2")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    pd.DataFrame(X).to_csv(tmp_path / "index.csv")
    for name, words in {
        "objects.npy": "plain numeric array.*allow_pickle",
        "torn.npz": "plain numeric array",
        "torn.parquet": r"readable \.parquet file",
        "x.txt": r"found the ending '\.txt'",
        "index.csv": "first column without a name",
        "two.npz": "found a, b",
        "none.npy": "found none there",
    }.items():
        with pytest.raises(PairDataError, match=rf"{name}: .*{words}"):
            read_features(tmp_path / name)


@settings(max_examples=50, deadline=None)
@given(st.integers(4, 200), st.floats(0.05, 0.6), st.integers(0, 5), st.integers(2, 9))
def test_split_is_stratified_disjoint_and_seeded(m, fraction, seed, people):
    pairs = np.random.default_rng(seed).permutation(list(combinations(range(25), 2)))[:m]
    data = PairData.from_arrays(np.eye(25), pairs, np.arange(m) % 2, np.arange(m) % people)
    found = split(data, fraction, seed)
    train, held = found.train(data), found.test(data)
    assert found.by == "pairs"
    assert len(train) + len(held) == m
    for kind in (True, False):
        n = int((data.similar == kind).sum())
        assert (held.similar == kind).sum() == min(max(1, round(fraction * n)), n - 1)
    assert split(data, fraction, seed).held.tolist() == found.held.tolist()
    whole = split(data, fraction, seed, by="annotators")
    train, held = whole.train(data), whole.test(data)
    assert whole.by == "annotators"
    assert len(held) > 0
    assert len(train) > 0
    assert not set(train.annotator) & set(held.annotator)


@settings(max_examples=50, deadline=None)
@given(st.integers(4, 200), st.floats(0.05, 0.4), st.integers(0, 5), st.sampled_from(["pairs", "items"]))
def test_answers_about_one_pair_stay_together(m, fraction, seed, by):
    """Several people are asked about the same pair, either way round: what one says gives the others away."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(list(combinations(range(12), 2)))[rng.integers(20, size=m)]
    turned = np.where(rng.random((m, 1)) < 0.5, pairs, pairs[:, ::-1])
    data = PairData.from_arrays(np.eye(12), turned, np.arange(m) % 2)
    found = split(data, fraction, seed, by=by)
    # So few pairs that one kind of answer would be gone: nothing is held out then.
    held = found.test(data) if found.held.any() else data.subset(found.held)
    parts = [(found.train(data), held), *folds(data, 3, seed)]
    for train, test in parts:
        sides = [{frozenset(p) for p in zip(d.i.tolist(), d.j.tolist(), strict=True)} for d in (train, test)]
        assert not sides[0] & sides[1]
        assert len(train) + len(test) == m
    if by == "pairs":
        assert set(parts[0][0].similar) == {False, True}
    # So few pairs that a fold would be empty: there are none then.
    assert sum(len(test) for _, test in parts[1:]) in ((m,) if len(parts) > 1 else (0,))
    assert len(parts) in (1, 4)


def test_a_heavy_annotator_is_not_held_out_for_a_tenth():
    who = np.repeat(np.arange(12), [450, *[50] * 11])
    m = len(who)
    data = PairData.from_arrays(X, np.column_stack([np.zeros(m, int), 1 + np.arange(m) % 5]), np.arange(m) % 2, who)
    for seed in range(10):
        assert split(data, 0.1, seed, by="annotators").held.sum() == 100


def test_folds_test_every_pair_once_and_keep_annotators_together():
    m = 60
    data = PairData.from_arrays(
        X, np.column_stack([np.zeros(m, int), 1 + np.arange(m) % 5]), np.arange(m) % 2, np.arange(m) % 12
    )
    parts = folds(data, 5, 0)
    assert sum(len(test) for _, test in parts) == m
    for train, test in parts:
        assert not set(train.annotator) & set(test.annotator)
        assert len(train) + len(test) == m


def test_nothing_is_held_out_where_nothing_is_asked_for_or_could_be_spared():
    data = PairData.from_arrays(X, PAIRS, SIMILAR)
    none = hold_out(data, 0.0, 0)
    assert none.by == "nothing"
    assert none.test(data) is None
    assert len(none.train(data)) == 4
    # One question of each kind, asked twice: to hold one out would leave one kind of answer.
    twice = PairData.from_arrays(X, [[0, 1], [1, 0], [2, 3], [3, 2]], [1, 1, 0, 0])
    few = hold_out(twice, 0.5, 0)
    assert few.by == "nothing"
    assert few.test(twice) is None
    with pytest.raises(PairDataError, match=r"^by: expected .*'clusters'"):
        split(data, 0.5, 0, by="clusters")
    with pytest.raises(PairDataError, match=r"^by: expected annotator"):
        split(data, 0.5, 0, by="annotators")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(-3, 3), st.floats(), st.booleans(), st.text(max_size=2), st.none()), max_size=6))
def test_similar_is_accepted_or_refused_never_garbled(values):
    try:
        out = check_similar(np.array(values, dtype=object))
    except PairDataError:
        return
    assert out.dtype == bool
    assert {float(v) for v in values} <= {0.0, 1.0} or {float(v) for v in values} <= {-1.0, 1.0}
    assert out.tolist() == [float(v) == 1.0 for v in values]
