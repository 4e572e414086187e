"""What is odd rather than plainly wrong: damaged files, dates, masks, numbers that nothing can hold. One clear error each."""

import io
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from pdcc import PairData, VolMaxDCC, check_ssc, metrics
from pdcc.baselines import KMeans
from pdcc.cli import main
from pdcc.data.io import read_features, read_table
from pdcc.errors import PairDataError
from pdcc.training import Source, Start
from pdcc.validation import check_count, check_device, check_features, check_matrix, check_number, check_similar

X = np.random.default_rng(0).normal(size=(6, 3))
PAIRS, SIMILAR = [[0, 1], [2, 3], [4, 5]], [1, 0, 1]


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def declared(shape: str, descr: str = "'<f8'") -> bytes:
    """A file of numpy's format that says it has this shape, and has next to nothing."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\x00" * 16


def zipped(content: bytes, name: str = "X.npy") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


BROKEN = {
    "shape of 10^12": declared("(1000000, 1000000)"),
    "shape beyond 64 bits": declared("(99999999999999999999, 3)"),
    "negative shape": declared("(-4, 3)"),
    "header nested deeply": declared("(" * 30 + ")" * 30),
    "header cut off": npy(X)[:40],
    "unclosed header": declared("(2, 3", "['<f8'"),
    "objects": declared("(2,)", "'|O'"),
    "dtype of no kind": declared("(2, 1)", "'<q9'"),
    "empty": b"",
    "noise": bytes(range(256)) * 8,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_damaged_arrays_get_one_error(tmp_path, content, ending):
    for data in (content, zipped(content)) if ending == ".npz" else (content,):
        path = tmp_path / f"X{ending}"
        path.write_bytes(data)
        with pytest.raises(PairDataError, match="expected"):
            check_features(read_features(path)[0])


def test_every_byte_of_an_archive_may_be_damaged(tmp_path):
    """One byte at a time, all over: the features as they were, other numbers, or one error; nothing else."""
    whole, path = npz(X=X), tmp_path / "X.npz"
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:
            check_features(read_features(path)[0])
        except PairDataError:
            pass


def test_a_table_without_columns_is_named(tmp_path):
    pd.DataFrame(index=range(3)).to_parquet(tmp_path / "X.parquet")
    with pytest.raises(PairDataError, match="at least one column"):
        read_features(tmp_path / "X.parquet")
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1" + b"\x00" * 40 + b"PAR1")
    with pytest.raises(PairDataError, match=r"readable \.parquet"):
        read_table(tmp_path / "pairs.parquet")


@pytest.mark.parametrize("kind", ["datetime64[D]", "timedelta64[s]"])
def test_dates_are_no_numbers(kind):
    dates = np.arange(6).astype(kind)
    with pytest.raises(PairDataError, match="X: expected numbers, found dates"):
        check_features(np.column_stack([dates, dates]))
    with pytest.raises(PairDataError, match="similar: expected numbers, found dates"):
        PairData.from_arrays(X, PAIRS, dates[:3])
    with pytest.raises(PairDataError, match="pairs: expected numbers, found dates"):
        PairData.from_arrays(X, dates.reshape(3, 2), SIMILAR)


def test_masks_are_not_lost():
    masked = np.ma.masked_array(X, mask=np.arange(18).reshape(6, 3) == 7)
    with pytest.raises(PairDataError, match=r"masked entries.*row 2"):
        check_features(masked)
    with pytest.raises(PairDataError, match="masked"):
        check_similar(np.ma.masked_array([1, 0, 1], mask=[0, 1, 0]))
    np.testing.assert_array_equal(check_features(np.ma.masked_array(X, mask=False)), X)


def test_complex_numbers_are_refused_where_only_their_real_part_would_be_kept():
    with pytest.raises(PairDataError, match="complex"):
        check_ssc(np.eye(3) + 1j)
    with pytest.raises(PairDataError, match="complex"):
        check_matrix("A", np.eye(2) * 1j)


@pytest.mark.parametrize("huge", [10**400, -(10**400)])
def test_whole_numbers_that_nothing_can_hold(huge):
    rows = [[0.0, huge], [1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(PairDataError, match="X: expected numbers"):
        PairData.from_arrays(rows, [[0, 1], [1, 2]], [1, 0])
    with pytest.raises(PairDataError, match="similar"):
        PairData.from_arrays(X, PAIRS, [1, 0, huge])
    with pytest.raises(PairDataError, match="pairs"):
        PairData.from_arrays(X, [[0, 1], [2, huge]], [1, 0])
    with pytest.raises(PairDataError):
        check_ssc([[huge, 0], [0, 1]])
    with pytest.raises(ValueError, match="lr: expected"):
        check_number("lr", huge, 0.0)
    with pytest.raises(ValueError, match="n_init: expected"):
        check_count("n_init", huge)
    with pytest.raises(ValueError, match="volume: expected"):
        VolMaxDCC(2, volume=huge).fit(X, PAIRS, SIMILAR)


def test_counts_that_would_never_end_are_refused():
    with pytest.raises(ValueError, match="at most"):
        check_count("n_restarts", 2**63)


def test_tensors_that_require_a_gradient_are_numbers():
    t = torch.tensor(X, requires_grad=True)
    np.testing.assert_array_equal(check_features(t), X)
    pairs, similar = torch.tensor(PAIRS), torch.tensor([1.0, 0.0, 1.0], requires_grad=True)
    assert PairData.from_arrays(t, pairs, similar).similar.tolist() == [True, False, True]
    assert check_ssc(torch.eye(3, requires_grad=True)).rho_lb == pytest.approx(1.0)


@pytest.mark.parametrize("device", ["mps", "xpu", "hpu", "meta"])
def test_devices_we_do_not_train_on_are_named(device):
    with pytest.raises(ValueError, match="neither the CPU nor CUDA"):
        check_device(device)


@pytest.mark.parametrize("names", [["inf", "nan", "-inf"], ["NA", "null", "1.50"], ["1", "2", "inf"]])
def test_names_are_names_in_files(tmp_path, names):
    """Whatever pandas would make of them, annotators keep the names that the file gives them."""
    rows = [f"{a},{b},{s},{name}" for (a, b), s, name in zip(PAIRS, SIMILAR, names, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,similar,annotator", *rows]))
    np.save(tmp_path / "X.npy", X)
    data = PairData.read(tmp_path / "X.npy", tmp_path / "pairs.csv")
    assert [data.annotator_names[r] for r in data.annotator] == names
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,similar,annotator", *rows, "0,2,1,"]))
    with pytest.raises(PairDataError, match=r"annotator.*empty cell"):
        PairData.read(tmp_path / "X.npy", tmp_path / "pairs.csv")


def test_an_annotator_called_infinity_is_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    features = y[:, None] + 0.1 * rng.normal(size=(40, 2))
    pairs = rng.integers(40, size=(120, 2))
    names = np.array([np.inf, -np.inf, 2.5])[rng.integers(3, size=120)]
    given = features, pairs, y[pairs[:, 0]] == y[pairs[:, 1]], names
    est = VolMaxDCC(2, confusion="per-annotator", volume=0.0, hidden=(4,), epochs=2, random_state=0).fit(*given)
    est.save(tmp_path / "run")
    loaded = VolMaxDCC.load(tmp_path / "run")
    assert loaded.fitted_.annotators == (-np.inf, 2.5, np.inf)
    np.testing.assert_array_equal(
        loaded.predict_pairs(features, pairs, names), est.predict_pairs(features, pairs, names)
    )


@pytest.mark.parametrize("size", [1e25, 1e38, 1e300])
def test_numbers_too_large_to_be_squared_are_refused_and_scaled_ones_are_not(size):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    features = (y[:, None] + 0.1 * rng.normal(size=(40, 3))) * size
    pairs = rng.integers(40, size=(80, 2))
    given = pairs, y[pairs[:, 0]] == y[pairs[:, 1]]
    how = {"epochs": 2, "hidden": (4,), "random_state": 0, "confusion": "none", "volume": 0.0}
    with pytest.raises(PairDataError, match="X: expected numbers whose squares"):
        VolMaxDCC(2, scale=None, **how).fit(features, *given)
    est = VolMaxDCC(2, **how).fit(features, *given)
    assert np.isfinite(est.memberships_).all()
    assert metrics.acc(y, KMeans(2, random_state=0).fit(features, *given).labels_) == 1.0
    unscaled = VolMaxDCC(2, scale=None, **how).fit(features / size, *given)
    with pytest.raises(PairDataError, match="X: expected numbers whose squares"):
        unscaled.predict(features)


def test_answers_about_one_pair_alone_are_fitted_or_refused_in_words():
    est = VolMaxDCC(2, epochs=2, hidden=(4,), random_state=0).fit(X, [[0, 1]] * 10, [1, 0] * 5)
    assert np.isfinite(est.memberships_).all()
    assert est.report_.start == Start(Source.KMEANS)
    with pytest.raises(PairDataError, match="pairs: expected enough answers of both kinds to count clusters by"):
        VolMaxDCC("auto").fit(X, [[0, 1]] * 10, [1, 0] * 5)
    assert KMeans(2, random_state=0).fit(X, [[0, 1]] * 10, [1, 0] * 5).labels_.shape == (6,)


def test_pandas_own_whole_numbers_are_row_numbers():
    table = pd.DataFrame({"i": [0, 2, 4], "j": [1, 3, 5], "similar": SIMILAR}).astype({"i": "Int64", "j": "Int64"})
    assert PairData.from_frame(X, table).i.tolist() == [0, 2, 4]
    assert PairData.from_arrays(X, table[["i", "j"]], SIMILAR).j.tolist() == [1, 3, 5]
    with pytest.raises(PairDataError, match="integers"):
        PairData.from_arrays(X, np.array([[True, False]], dtype=object), [1])


def test_ids_may_be_tuples():
    ids = [("a", k) for k in range(6)]
    pairs = [(ids[0], ids[1]), (ids[2], ids[5])]
    data = PairData.from_arrays(X, pairs, [1, 0], item_ids=ids)
    assert data.i.tolist() == [0, 2]
    assert data.j.tolist() == [1, 5]


def test_names_cannot_steer_the_terminal(tmp_path, capsys):
    (tmp_path / "X.csv").write_text("a\x1b[31m,b\n0,1\n1,2\n")
    (tmp_path / "pairs.csv").write_text("i,j\x1b]0;mine\x07,similar\n0,1,1\n")
    with pytest.raises(SystemExit):
        main(["fit", str(tmp_path / "X.csv"), str(tmp_path / "pairs.csv"), "-k", "2", "-o", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\\x1b]0;mine\\x07" in said
