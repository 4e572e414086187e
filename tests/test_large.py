"""Features that are too large to be copied: read row by row, scaled batch by batch, looked at in stated samples."""

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from pdcc import PairData, VanillaDCC, VolMaxDCC, read_answers, rows
from pdcc.baselines import PCKMeans
from pdcc.cli import app
from pdcc.data.io import read_features
from pdcc.data.sampling import among, drawn_answers
from pdcc.data.scaling import Scaler, check_scaled
from pdcc.errors import PairDataError
from pdcc.identifiability import diagnose as diagnosing
from pdcc.inference import PairTensors
from pdcc.inference.rows import RowSource, scaled_items
from pdcc.metrics import acc
from pdcc.rows import FeatureRows
from pdcc.sampled import sampled
from pdcc.select import numbers
from pdcc.select.compare import Sample, View
from pdcc.select.count import choose_n_clusters
from pdcc.training import Shape, Source, Start
from pdcc.validation import check_features

N, D, M = 300, 6, 1500
QUICKLY = {"hidden": (16,), "scale": "standard", "epochs": 3, "random_state": 0, "init": "kmeans"}


def world():
    rng = np.random.default_rng(0)
    classes = np.arange(N) % 3
    X = (3 * np.eye(3, D)[classes] + rng.normal(size=(N, D))).astype(np.float32)
    pairs = rng.integers(N, size=(M, 2))
    similar = (classes[pairs[:, 0]] == classes[pairs[:, 1]]) ^ (rng.random(M) < 0.1)
    return X, pairs, similar


class OnlyRows:
    """Has a shape and hands out rows, never more than ``most`` at once; counts what it handed out."""

    def __init__(self, X, most):
        self.X, self.most, self.largest, self.shape = X, most, 0, X.shape

    def __getitem__(self, which):
        assert isinstance(which, slice) or (np.diff(which) > 0).all()
        part = self.X[which]
        self.largest = max(self.largest, len(part))
        if len(part) > self.most:
            raise MemoryError(f"{len(part)} rows at once")
        return part


@pytest.fixture
def tiny(monkeypatch):
    """Everything is large."""
    monkeypatch.setattr(rows, "LARGEST_IN_MEMORY", 64)


def test_a_fit_to_a_mapped_file_ends_where_one_in_memory_does(monkeypatch, tmp_path):
    X, pairs, similar = world()
    how = {"confusion": "stochastic", "volume": 0.01, **QUICKLY, "init": "pairs"}
    in_memory = VolMaxDCC(3, **how).fit(X, pairs, similar)
    monkeypatch.setattr(rows, "LARGEST_IN_MEMORY", 64)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    streamed = VolMaxDCC(3, **how).fit(mapped, pairs, similar)
    assert isinstance(check_features(mapped), FeatureRows)
    np.testing.assert_allclose(streamed.memberships_, in_memory.memberships_, atol=1e-6)
    assert streamed.report_.useful.held_out == pytest.approx(in_memory.report_.useful.held_out, abs=1e-6)
    np.testing.assert_allclose(streamed.predict_proba(mapped), in_memory.memberships_, atol=1e-6)
    np.testing.assert_allclose(
        streamed.predict_pairs(mapped, pairs[:9]), in_memory.predict_pairs(X[:], pairs[:9]), atol=1e-6
    )
    assert streamed.objective(mapped, pairs, similar) == pytest.approx(in_memory.objective(X, pairs, similar), abs=1e-6)


@pytest.mark.parametrize("init", ["pairs", "random"])
def test_no_more_than_a_few_rows_are_ever_asked_for(monkeypatch, init):
    X, pairs, similar = world()
    monkeypatch.setattr(rows, "LARGEST_IN_MEMORY", 64)
    most = 128  # rows of a chunk, and of a batch of 64 pairs
    for module in ("pdcc.rows", "pdcc.inference.rows", "pdcc.inference.predict", "pdcc.select.compare"):
        monkeypatch.setattr(f"{module}.ROWS_AT_ONCE", most)
    monkeypatch.setattr(rows.blocks_of, "__defaults__", (most,))
    monkeypatch.setattr(rows, "SAMPLED_ITEMS", most)
    monkeypatch.setattr(numbers, "SAMPLE", most)
    seen = OnlyRows(X, most)
    est = VanillaDCC(3, batch_size=64, **QUICKLY | {"init": init}).fit(seen, pairs, similar)
    assert 64 < seen.largest <= most
    assert est.memberships_.shape == (N, 3)
    if init == "pairs":
        assert (np.bincount(est.labels_ * 3 + np.arange(N) % 3, minlength=9) > 0.3 * N).sum() >= 2
    assert est.predict(seen).tolist() == est.labels_.tolist()


STARTS = [
    Start(source, shape) for source in Source for shape in Shape if (source, shape) != (Source.ANSWERS, Shape.NONE)
]


def test_every_partition_of_streamed_items_is_that_of_items_in_memory(tiny):
    X, pairs, similar = world()
    data = PairData.from_arrays(X, pairs, similar)
    scaler = Scaler.fit(data.features, "unit")
    config, cpu, everything = VolMaxDCC(3).config(0), torch.device("cpu"), np.arange(N)
    streamed, whole = (View.of(f, everything, scaler, cpu, config, None) for f in (data.features, X))
    assert isinstance(streamed.x, RowSource)
    assert isinstance(whole.x, torch.Tensor)
    for start in STARTS:
        a, b = (view.extended(view.way.make(start, data).labels) for view in (streamed, whole))
        assert (a == b).mean() > 0.99, start


@pytest.mark.parametrize("large", [False, True], ids=["in memory", "streamed"])
def test_partitions_of_a_sample_are_extended_to_all_items(monkeypatch, large):
    if large:
        monkeypatch.setattr(rows, "LARGEST_IN_MEMORY", 64)
    monkeypatch.setattr(numbers, "SAMPLE", 200)
    X, pairs, similar = world()
    data = PairData.from_arrays(X, pairs, similar)
    sample = Sample.of(data, 0)
    assert len(sample.rows) == 200
    scaler = Scaler.fit(data.features, "standard")
    view = View.of(data.features, sample.rows, scaler, torch.device("cpu"), VolMaxDCC(3).config(0), None)
    for start in STARTS:
        labels = view.extended(view.way.make(start, sample.answers).labels)
        assert labels.shape == (N,)
        assert acc(np.arange(N) % 3, labels) > 0.75, start  # a third by chance; all of it finds .9


def test_graphs_and_mixtures_are_made_of_few_items_alone(monkeypatch):
    X, pairs, similar = world()
    data = PairData.from_arrays(X, pairs, similar)
    monkeypatch.setattr(numbers, "GRAPH_ITEMS", N - 1)
    est = VolMaxDCC(3, **QUICKLY | {"init": "pairs"})
    compared = [row["setting"] for row in est.prepare(data).compared]
    assert not [row for row in compared if str(Start(Source.GRAPH)) in row or "mixture" in row]
    assert [row for row in compared if str(Start(Source.GUIDED)) in row]


def test_a_bad_number_is_found_with_its_row(tiny):
    X, pairs, similar = world()
    X[277, 3] = np.nan
    with pytest.raises(PairDataError, match="NaN in 1 row") as caught:
        VolMaxDCC(3).fit(OnlyRows(X, 8192), pairs, similar)
    assert caught.value.row == 277


def test_scaled_numbers_that_float32_cannot_hold_are_found_with_their_row(tiny):
    X = np.ones((50, 2))
    X[31, 1] = 1e30
    source = scaled_items(check_features(X), Scaler.fit(X, None), torch.device("cpu"))
    with pytest.raises(PairDataError) as caught:
        source[torch.tensor([40, 31, 2])]
    assert caught.value.row == 31
    assert check_scaled(np.ones((1, 1), np.float32), np.array([5])).shape == (1, 1)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (OnlyRows(np.array([["a", "b"]] * 30), 99), "numbers"),
        (OnlyRows(np.ones((30, 2)) * 1j, 99), "real numbers"),
        (OnlyRows(np.ones((30, 2, 2)), 99), "2D"),
    ],
)
def test_what_hands_out_rows_is_checked_like_an_array(tiny, source, words):
    with pytest.raises(PairDataError, match=words):
        check_features(source)


def test_rows_of_another_shape_are_refused(tiny):
    class Wrong:
        shape = (30, 4)

        def __getitem__(self, which):
            return np.ones((2, 4))

    with pytest.raises(PairDataError, match="rows of shape"):
        check_features(Wrong())


def test_small_ones_that_hand_out_rows_become_arrays():
    X = world()[0]
    found = check_features(OnlyRows(X, N))
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, X)


def test_rows_come_in_the_order_asked_for_and_are_read_in_theirs():
    X = np.arange(40.0).reshape(20, 2)
    found = FeatureRows(OnlyRows(X, 20))
    which = np.array([7, 3, 3, 19, 0])
    np.testing.assert_array_equal(found[which], X[which])
    np.testing.assert_array_equal(found[4:9], X[4:9])
    np.testing.assert_array_equal(found[1:9:3], X[1:9:3])
    np.testing.assert_array_equal(found[5], X[5])
    source = RowSource(lambda r: X[r].astype(np.float32), X.shape, torch.device("cpu"))
    np.testing.assert_array_equal(source[torch.as_tensor(which)].numpy(), X[which])
    assert torch.cat(list(source.split(7))).tolist() == X.tolist()


def test_the_exact_volume_is_refused_before_any_work(tiny):
    X, pairs, similar = world()
    with pytest.raises(ValueError, match="volume_estimator: expected"):
        VolMaxDCC(3, volume_estimator="full", **QUICKLY).fit(X, pairs, similar)
    source = RowSource(lambda r: X[r], X.shape, torch.device("cpu"))
    some = torch.arange(4)
    with pytest.raises(ValueError, match="exact one of all items"):
        PairTensors(source, some, some + 1, torch.ones(4)).batch(some, exact_volume=True)


def test_what_copies_features_says_so(tiny):
    X, pairs, similar = world()
    with pytest.raises(PairDataError, match="PCKMeans copies them"):
        PCKMeans(3).fit(X, pairs, similar)


def test_an_interrupted_fit_knows_other_features_by_their_stream(tiny, tmp_path):
    X, pairs, similar = world()
    est = VolMaxDCC(3, confusion="none", volume=0.0, **QUICKLY)
    est.fit_data(PairData.from_arrays(X, pairs, similar), checkpoints=tmp_path)
    with pytest.raises(ValueError, match="for other data"):
        est.fit_data(PairData.from_arrays(X + X[::-1] / 10, pairs, similar), checkpoints=tmp_path)


def test_clusters_of_streamed_items_are_counted(tiny):
    X, pairs, similar = world()
    found = choose_n_clusters(PairData.from_arrays(X, pairs, similar), (2, 3, 4))
    assert found.value == 3
    assert "hardly tell" not in found.reason


def test_a_number_of_clusters_that_answers_cannot_tell_is_called_so():
    rng = np.random.default_rng(0)
    pairs = rng.integers(120, size=(400, 2))
    data = PairData.from_arrays(rng.normal(size=(120, 4)), pairs, rng.random(400) < 0.3)
    assert "hardly tell how many" in choose_n_clusters(data, range(2, 10)).reason


def test_more_answers_go_on_from_a_streamed_fit(tiny):
    X, pairs, similar = world()
    est = VolMaxDCC(3, confusion="none", volume=0.0, **QUICKLY).fit(X, pairs[:1000], similar[:1000])
    est.refit(X, pairs, similar)
    assert est.changes_.n_added == M - 1000 - int((pairs[1000:, 0] == pairs[1000:, 1]).sum())


def test_a_sample_keeps_both_ends_of_its_answers():
    X, pairs, similar = world()
    data = PairData.from_arrays(X, pairs, similar)
    items, part = among(data, 120, 0)
    assert len(items) == 120
    assert len(part) >= 50
    assert max(part.i.max(), part.j.max()) < 120
    known = {(a, b, s) for a, b, s in zip(data.i.tolist(), data.j.tolist(), data.similar.tolist(), strict=True)}
    named = zip(items[part.i].tolist(), items[part.j].tolist(), part.similar.tolist(), strict=True)
    assert set(named) <= known
    assert len(drawn_answers(data, 200, 0)) == 200


def test_a_diagnosis_and_a_posterior_say_which_sample_they_looked_at(tiny, monkeypatch):
    X, pairs, similar = world()
    est = VanillaDCC(3, **QUICKLY).fit(X, pairs, similar)
    monkeypatch.setattr(diagnosing, "DIAGNOSED_ITEMS", 200)
    monkeypatch.setattr("pdcc.posterior.draws.POSTERIOR_ITEMS", 100)
    trusted = {n: n % 3 for n in range(30)}
    found = est.diagnose(X, pairs, similar, trusted=trusted, quick=True, draws=2, work=0.1)
    assert found.sample is not None
    assert 200 <= found.sample.n_items == len(found.items) < N
    assert 0 < found.sample.n_answers < found.sample.of_answers
    assert set(range(30)) <= set(found.items["item"])
    assert f"of {N:,} items" in str(found)
    assert found.to_dict()["sample"]["of_answers"] == len(est.fitted_.split.held)
    assert found.accuracy.high > 0.8
    drawn = est.posterior(X, pairs, similar, method="svi", draws=5, steps=20)
    assert drawn.posterior["memberships"].shape == (1, 5, 100, 3)
    assert f"100 of {N} items" in drawn.attrs["sample"]


def shell(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def files(place, X, pairs, similar):
    """A table of features with ids and one of answers by these."""
    names = [f"item {n}" for n in range(N)]
    table = pd.DataFrame(X.astype(np.float64), columns=[f"c{k}" for k in range(D)])
    table.insert(2, "name", names)
    table.to_parquet(place / "x.parquet", row_group_size=70)
    np.save(place / "x.npy", X)
    answers = pd.DataFrame({"i": pairs[:, 0], "j": pairs[:, 1], "similar": similar})
    answers.to_csv(place / "rows.csv", index=False)
    answers.assign(i=[names[n] for n in answers.i], j=[names[n] for n in answers.j]).to_csv(
        place / "names.csv", index=False
    )
    return table


def test_the_command_line_fits_and_predicts_a_mapped_file(tiny, tmp_path):
    files(tmp_path, *world())
    assert isinstance(read_features(tmp_path / "x.npy")[0], np.memmap)
    how = ("--epochs", 2, "--scale", "standard", "--init", "kmeans", "--confusion", "none", "--volume", 0)
    shell("fit", tmp_path / "x.npy", tmp_path / "rows.csv", "-k", 3, "-o", tmp_path / "run", *how)
    shell("predict", tmp_path / "run", tmp_path / "x.npy", "-o", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    kept = VolMaxDCC.load(tmp_path / "run")
    np.testing.assert_allclose(found[["m0", "m1", "m2"]], kept.memberships_, atol=1e-12)


def test_a_large_parquet_table_is_converted_once_beside_the_run(tiny, tmp_path, monkeypatch):
    X, pairs, similar = world()
    table = files(tmp_path, X, pairs, similar)
    monkeypatch.setattr("pdcc.data.parquet.ROWS_AT_ONCE", 64)
    monkeypatch.setattr("pdcc.cli.fit.LINES_AT_ONCE", 100)
    how = ("--epochs", 2, "--scale", "standard", "--init", "kmeans", "--confusion", "none", "--volume", 0)
    named = ("--id-column", "name")
    run = tmp_path / "run"
    shell("fit", tmp_path / "x.parquet", tmp_path / "names.csv", "-k", 3, "-o", run, *how, *named)
    made = list(tmp_path.glob("run-features-*.npy"))
    assert len(made) == 1
    np.testing.assert_array_equal(np.load(made[0]), table.drop(columns="name").to_numpy())
    before = made[0].stat().st_mtime_ns
    shuffled = table[[*table.columns[::-1]]]
    shuffled.to_parquet(tmp_path / "again.parquet")
    for source in ("x.parquet", "again.parquet"):
        shell("predict", run, tmp_path / source, "-o", tmp_path / f"{source}.csv", *named)
    assert made[0].stat().st_mtime_ns == before
    one, other = (pd.read_csv(tmp_path / f"{source}.csv") for source in ("x.parquet", "again.parquet"))
    pd.testing.assert_frame_equal(one, other)
    assert one["item"].tolist() == table["name"].tolist()
    assert one.shape == (N, 5)


def test_an_empty_cell_of_a_large_parquet_table_is_found_with_its_row(tiny, tmp_path, monkeypatch):
    table = files(tmp_path, *world())
    table.loc[211, "c4"] = np.nan
    table.to_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr("pdcc.data.parquet.ROWS_AT_ONCE", 64)
    with pytest.raises(PairDataError) as caught:
        read_features(tmp_path / "x.parquet", id_column="name", beside=tmp_path / "run")
    assert caught.value.row == 211
    assert not list(tmp_path.glob("*features*"))
    assert not list(tmp_path.glob(".pdcc*"))
    with pytest.raises(PairDataError, match="id column"):
        read_features(tmp_path / "x.parquet", id_column="nobody")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_large_table_of_whole_numbers_is_read_as_such(tmp_path, monkeypatch, ending):
    _, pairs, similar = world()
    table = pd.DataFrame(
        {"annotator": np.arange(M) % 7, "i": pairs[:, 0], "j": pairs[:, 1], "similar": similar.astype(int)}
    )
    path = tmp_path / f"answers.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    slowly = read_answers(path)
    monkeypatch.setattr("pdcc.data.plain_numbers.LARGE_FILE", 1)
    quickly = read_answers(path)
    assert quickly.frame["annotator"].dtype == np.int64
    assert slowly.frame["annotator"].dtype == object
    X = np.arange(2.0 * N).reshape(N, 2)
    a, b = (PairData.from_arrays(X, read) for read in (slowly, quickly))
    assert a.fingerprint() == b.fingerprint()
    assert a.annotator_names == b.annotator_names
    np.testing.assert_array_equal(a.annotator, b.annotator)


def test_anything_else_in_a_large_table_of_answers_is_read_cell_by_cell(tmp_path, monkeypatch):
    monkeypatch.setattr("pdcc.data.plain_numbers.LARGE_FILE", 1)
    path = tmp_path / "answers.csv"
    path.write_text("i,j,similar\n0,1,1\n1,2,0\n0,2,?\n")
    assert len(read_answers(path).unsure) == 1
    path.write_text("i,j,similar\n0,1,1\n1,x2,0\n0,2,3\n")
    with pytest.raises(PairDataError) as caught:
        read_answers(path)
    assert caught.value.row == 2


def test_many_answers_about_few_items_are_sampled_too(monkeypatch):
    X, pairs, similar = world()
    est = VanillaDCC(3, **QUICKLY).fit(X, pairs, similar)
    data = PairData.from_arrays(X, pairs, similar)
    assert sampled(est.fitted_, data, 1000, 0)[2] is None
    monkeypatch.setattr("pdcc.sampled.ALL_ANSWERS", 400)
    fitted, part, found = sampled(est.fitted_, data, 1000, 0)
    assert (found.n_items, found.n_answers, found.of_answers) == (N, 400, len(data))
    assert len(fitted.split.held) == len(part) == 400
    assert fitted.holds(part)
    assert 3 < fitted.report.epochs <= 20
