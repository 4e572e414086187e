"""The benchmark: every cell once, failures on record, nothing held out was seen, tables that mark the best."""

import json
from importlib import metadata

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs
from typer.testing import CliRunner

from pdcc import VanillaDCC, datasets
from pdcc.cli import app
from pdcc.datasets import Judgments
from pdcc.experiments import cells, compare, methods, presets, tables, tasks, wording
from pdcc.experiments.paper.published import published
from pdcc.metrics import membership_mse
from pdcc.select.count import Selection
from pdcc.storage.provenance import source_hash


class Simple:
    """A method that always puts items together by the sign of their first feature."""

    def __init__(self, n_clusters, fails=False):
        self.n_clusters, self.fails = n_clusters, fails

    def fit(self, X, pairs, similar, annotators=None):
        if self.fails:
            raise ValueError("no solution here")
        self.labels_ = self.predict(X)
        return self

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(np.int64)


class Perfect(Simple):
    """A method that reads the truth off the last feature."""

    def predict(self, X):
        return np.asarray(X)[:, -1].astype(np.int64)


def problem(task, trial, seed=0):
    blobs = make_blobs(n=60, n_pairs=100, seed=trial)
    X = np.column_stack([blobs.X, blobs.y])
    held = {"new pairs": tasks.Held(blobs.answers.pairs[80:], blobs.answers.similar[80:], np.zeros(20, np.int64))}
    return tasks.Problem(
        3, X, blobs.answers.pairs[:80], blobs.answers.similar[:80], flip_rate=0.0, X_unseen=X[:20], truth=(blobs.y, blobs.y[:20]), held=held
    )  # fmt: skip


@pytest.fixture
def toy(monkeypatch):
    made = {
        "simple": methods.Method("Simple", lambda k, s, c: Simple(k)),
        "perfect": methods.Method("Perfect", lambda k, s, c: Perfect(k)),
        "broken": methods.Method("Broken", lambda k, s, c: Simple(k, fails=True)),
    }
    for module in (methods, cells, tables, presets, wording):
        monkeypatch.setattr(module, "METHODS", made)
    monkeypatch.setattr(tasks, "load", problem)
    preset = presets.Preset("Toy", ("one", "two"), ("simple", "perfect", "broken"), 3)
    monkeypatch.setitem(presets.PRESETS, "quick", preset)
    return made


def test_tables_mark_the_best_and_show_failures(toy, tmp_path):
    text = presets.bench("quick", tmp_path)
    summary = pd.read_csv(tmp_path / "summary.csv")
    perfect = summary[(summary["method"] == "perfect") & (summary["measure"] == "acc_seen")]
    assert (perfect["mean"] == 1.0).all()
    assert (perfect["done"] == 3).all()
    broken = summary[(summary["method"] == "broken") & (summary["measure"] == "acc_seen")]
    assert broken["mean"].isna().all()
    assert (broken["failed"] == 3).all()
    assert "**1.000 ± 0.000** / 1.000 ± 0.000 (3)" in text
    assert text.count("| Broken | failed (3) | failed (3) |") == 7  # every table, those of held-out answers too
    assert "no solution here" in text
    assert "| log-loss of held-out answers | one, new pairs | two, new pairs |" in text
    losses = summary[summary["measure"] == "log_loss, new pairs"].set_index("method").groupby(level=0)["mean"].mean()
    assert losses["perfect"] < losses["simple"]
    rows = pd.read_csv(tmp_path / "cells.csv")
    assert len(rows) == 18
    assert {"seconds", "peak_mb", "flip_rate", "acc_unseen", "message"} <= set(rows.columns)
    assert (rows["peak_mb"] > 10).all()
    body = json.loads((tmp_path / "summary.json").read_text())
    assert f"torch {metadata.version('torch')}" in body["made"]
    assert source_hash() in body["made"]
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_killed_run_goes_on(toy, tmp_path, monkeypatch):
    todo = cells.plan(["one"], ["simple", "perfect"], 2, seed=0)
    cells.run_bench(todo[:2], tmp_path)
    path = tmp_path / cells.CELLS
    path.write_bytes(path.read_bytes() + b'{"task": "one", "meth')  # the kill came in the middle of a line
    ran = []
    once = cells.run_cell

    def counted(cell, cache):
        ran.append(cell)
        return once(cell, cache)

    monkeypatch.setattr(cells, "run_cell", counted)
    records = cells.run_bench(todo, tmp_path)
    assert ran == todo[2:]
    assert [(r["method"], r["trial"]) for r in records] == [
        ("simple", 0),
        ("perfect", 0),
        ("simple", 1),
        ("perfect", 1),
    ]
    ran.clear()
    cells.run_bench(todo, tmp_path)
    assert ran == []


def test_records_of_another_source_are_kept_and_told(toy, tmp_path, monkeypatch, caplog):
    todo = cells.plan(["one"], ["simple"], 1, seed=0)
    assert cells.run_bench(todo, tmp_path)[0]["source"] == source_hash()
    monkeypatch.setattr(cells, "source_hash", lambda: "another")
    again = cells.run_bench([*todo, cells.Cell("one", "simple", 1, 0)], tmp_path)
    assert [r["source"] for r in again] == [source_hash(), "another"]
    assert "1 cells on record" in caplog.text
    assert f"(source {', '.join(sorted([source_hash(), 'another']))})" in tables.stamp(again)


def test_failed_cells_are_tried_again(toy, tmp_path):
    todo = cells.plan(["one"], ["broken"], 1, seed=0)
    assert cells.run_bench(todo, tmp_path)[0]["status"] == "failed"
    toy["broken"] = toy["simple"]
    assert cells.run_bench(todo, tmp_path)[0]["status"] == "done"


def test_methods_of_a_trial_share_data_and_seed(monkeypatch, tmp_path):
    seen = []
    made = {n: methods.Method(n, lambda k, s, c: seen.append(s) or Simple(k)) for n in ("a", "b")}
    monkeypatch.setattr(cells, "METHODS", made)
    monkeypatch.setattr(tasks, "load", problem)
    cells.run_bench(cells.plan(["one"], ["a", "b"], 2, seed=3), tmp_path)
    assert seen == [3000, 3000, 3001, 3001]


def test_paired_difference_and_oracle_loss_by_hand():
    values = {"a": [0.8, 0.9, 0.7], "b": [0.7, 0.9, 0.4], "chosen": [0.75, 0.9, 0.7]}
    records = [
        {"task": "t", "method": m, "trial": t, "seed": 0, "status": "done", "acc_seen": v}
        for m, row in values.items()
        for t, v in enumerate(row)
    ]
    row = compare.paired(records, "acc_seen", "a", "b").iloc[0]
    gaps = np.array([0.1, 0.0, 0.3])
    assert row["difference"] == pytest.approx(gaps.mean())
    assert row["se"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    loss = compare.oracle_loss(records, "chosen", ["a", "b"]).iloc[0]
    assert loss["loss"] == pytest.approx(np.mean([0.05, 0.0, 0.0]))
    assert loss["se"] == pytest.approx(np.std([0.05, 0.0, 0.0], ddof=1) / np.sqrt(3))
    records[0]["acc_seen"] = np.nan  # a score that could not be had is no trial
    assert compare.paired(records, "acc_seen", "a", "b").iloc[0]["trials"] == 2


def test_a_misspelt_method_is_guessed(tmp_path):
    with pytest.raises(ValueError, match=r"^method: expected .*'pckmeans'.*pck-means") as caught:
        presets.bench("quick", tmp_path, methods=("pckmeans",))
    assert "raw-v0" not in str(caught.value)  # the preset's own methods are named, not all there are


def records_of(values, task="t", measure="acc_seen"):
    return [
        {"task": task, "method": m, "trial": t, "seed": 0, "status": "done", measure: v, "seconds": 1.0, "peak_mb": 9.0}
        | {"date": "2024-05-06", "versions": {"torch": "2"}}
        for m, row in values.items()
        for t, v in enumerate(row)
    ]


def test_tables_show_the_deviation_over_trials():
    assert "| K-means | 0.600 ± 0.100 (3) |" in tables.markdown(records_of({"kmeans": [0.5, 0.6, 0.7]}))
    assert "| K-means | 0.500 (1) |" in tables.markdown(records_of({"kmeans": [0.5]}))


def test_the_papers_figures_stand_beside_ours(tmp_path):
    ours = records_of({"kmeans": [0.5, 0.6], "volmax": [0.9, 0.9]}, task="stl10-0.0")
    text = tables.write_report(ours, tmp_path, "Beside the paper")
    theirs = published("stl10", setting="main", method="Kmeans", split="seen", metric="ACC", noise=0.0).iloc[0]
    (row,) = [line for line in text.splitlines() if line.startswith("| stl10-0.0 | K-means | seen |")]
    assert row.split("|")[4].startswith(f" {theirs['mean']:.3f}")
    assert row.endswith("| 0.550 ± 0.071 |")
    assert set(pd.read_csv(tmp_path / "beside_paper.csv")["method"]) == {"kmeans"}  # the paper has no default of ours


def test_the_default_is_set_beside_the_best():
    level = records_of({"volmax": [0.80, 0.70, 0.60], "kmeans": [0.5, 0.5, 0.5], "vanilla": [0.79, 0.73, 0.59]})
    behind = records_of({"volmax": [0.60, 0.61], "vanilla": [0.70, 0.72], "an-oracle": [0.9, 0.9]}, task="u")
    losses = records_of({"volmax": [0.30, 0.31], "vanilla": [0.40, 0.40]}, task="v", measure="log_loss, new people")
    found = compare.against_best(level + behind + losses, "volmax").set_index("task")
    assert found["best_other"].tolist() == ["vanilla"] * 3  # an oracle is no rival
    gaps = np.array([0.01, -0.03, 0.01])
    assert found.loc["t", "difference"] == pytest.approx(gaps.mean())
    assert found.loc["t", "se"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert found["within"].tolist() == [True, False, True]
    assert found.loc["v", "difference"] == pytest.approx(0.095)  # a smaller loss is better
    one = compare.against_best(records_of({"volmax": [0.6], "vanilla": [0.7]}), "volmax")
    assert one["within"].tolist() == [None]


def test_the_report_says_what_the_tables_are_read_for():
    people = records_of({"volmax-per-annotator": [0.9, 0.8], "volmax-shared": [0.8, 0.8]})
    volumes = records_of({"volmax": [0.7, 0.7], "volmax-v0": [0.8, 0.6], "volmax-v0.01": [0.7, 0.7]}, task="u")
    text = tables.comparisons(people + volumes)
    assert "| t | acc_seen | +0.050 ± 0.050 | 2 |" in text
    assert "| u | 0.750 | 0.700 | 0.050 ± 0.050 | 2 |" in text
    assert "| mean | 0.750 | 0.700 | 0.050 |  |" in text
    assert "best of the others" not in text  # of a sweep that is the oracle's
    assert "best of the others" in tables.comparisons(records_of({"volmax": [0.7, 0.7], "vanilla": [0.8, 0.6]}))
    assert tables.comparisons(records_of({"kmeans": [0.5, 0.6]})) == ""


def test_a_report_of_what_is_on_record(toy, tmp_path):
    with pytest.raises(FileNotFoundError, match=cells.CELLS):
        presets.bench("quick", tmp_path, report_only=True)
    cells.run_bench(cells.plan(["one"], ["simple"], 2, seed=0), tmp_path)
    out = CliRunner().invoke(app, ["bench", "quick", "-o", str(tmp_path), "--report"])
    assert out.exit_code == 0
    assert "| Simple |" in out.output
    assert "Perfect" not in out.output
    assert len((tmp_path / cells.CELLS).read_text().splitlines()) == 2


def test_a_selected_volume_is_fitted_with(monkeypatch):
    seen = []

    def select(X, y, *, estimator, volumes, random_state, progress):
        seen.append((estimator.get_params()["confusion"], volumes, random_state, y.n_answers))
        return Selection("volume", 0.01, "because", pd.DataFrame(), "items and pairs")

    monkeypatch.setattr(methods, "select_volume", select)
    small = {
        "hidden": (8,),
        "epochs": 2,
        "scale": None,
        "init": "kmeans",
        "partition_weight": 0.0,
        "confusion": "stochastic",
    }
    made = []

    def make(k, seed, cache):
        made.append(methods.SelectedVolume(k, random_state=seed, progress=False, **small))
        return made[0]

    monkeypatch.setattr(cells, "METHODS", {"selected": methods.Method("Selected", make)})
    monkeypatch.setattr(tasks, "load", problem)
    record = cells.run_cell(cells.Cell("one", "selected", 0, 0))
    assert record["status"] == "done", record
    assert seen == [("stochastic", methods.VOLUMES, 0, 80)]
    assert made[0].report_.chosen.volume == 0.01
    assert made[0].get_params()["volume"] == "auto"  # what was asked for stays
    assert '"volume": 0.01' in record["message"]


def test_nothing_held_out_was_seen():
    rng = np.random.default_rng(0)
    pairs = rng.integers(40, size=(900, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    judged = Judgments(
        np.zeros((40, 2)), pairs, rng.random(len(pairs)) < 0.5, rng.integers(9, size=len(pairs)), np.zeros(40, np.int64)
    )
    train, held = tasks.split_judgments(judged, rng)
    known = {frozenset(p) for p in pairs[train].tolist()}
    for part in held.values():
        assert len(part.pairs) > 20
        assert not known & {frozenset(p) for p in part.pairs.tolist()}
    assert not set(judged.annotators[train]) & set(held["new people"].annotators)
    assert set(held["new pairs"].annotators) <= set(judged.annotators[train])
    assert len(pairs) / 3 < train.sum() < 0.7 * len(pairs)


def test_digits_with_machine_annotators_load():
    one = tasks.load("digits-machine-10", 0)
    assert abs(one.flip_rate - 0.10) <= 0.005
    assert len(one.pairs) == len(one.X)
    again = tasks.load("digits-machine-10", 0)
    np.testing.assert_array_equal(one.pairs, again.pairs)
    assert not np.array_equal(one.pairs, tasks.load("digits-machine-10", 1).pairs)


def test_synthetic_task_is_scored_by_memberships(monkeypatch):
    made = []

    def make(k, seed, cache):
        made.append(VanillaDCC(k, random_state=seed, epochs=2, hidden=(8,), progress=False))
        return made[0]

    monkeypatch.setattr(cells, "METHODS", {"vanilla": methods.Method("Vanilla", make)})
    record = cells.run_cell(cells.Cell("synthetic-noisy-1000", "vanilla", 0, 0))
    one = tasks.load("synthetic-noisy-1000", 0)
    for side, X, truth in zip(("seen", "unseen"), (one.X, one.X_unseen), one.memberships, strict=True):
        assert record[f"mse_{side}"] == membership_mse(truth, made[0].predict_proba(X))
    assert {"acc_seen", "acc_unseen"} <= set(record)


def test_hard_labels_get_two_rates():
    one = problem("one", 0)
    est = Perfect(3).fit(one.X, one.pairs, one.similar)
    p = cells.pair_probabilities(est, one, one.held["new pairs"])
    same = (est.labels_[one.held["new pairs"].pairs] == est.labels_[one.held["new pairs"].pairs][:, :1]).all(axis=1)
    assert len(np.unique(p)) == 2
    assert p[same].min() > p[~same].max()


def test_every_method_of_the_presets_exists():
    for preset in presets.PRESETS.values():
        assert set(preset.methods) <= set(methods.METHODS)
    assert set(methods.IN_PAPER) <= set(methods.METHODS)
    # Labels choose in the reproductions of what the authors did with them, and nowhere else; the name says so.
    assert {name for name, preset in presets.PRESETS.items() if any("oracle" in m for m in preset.methods)} == {
        "paper", "paper-layers", "paper-600", "paper-volumes", "paper-cifar100",
    }  # fmt: skip
    assert all(("oracle" in name) == method.oracle for name, method in methods.METHODS.items())


def test_missing_data_is_said_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.delenv("PDCC_DATA", raising=False)
    out = CliRunner().invoke(app, ["bench", "human-noise", "-o", str(tmp_path / "out")])
    assert isinstance(out.exception, FileNotFoundError)
    assert "PDCC_DATA" in str(out.exception)
    assert not (tmp_path / "out" / cells.CELLS).exists()


@pytest.mark.parametrize(("args", "word"), [(["nonsense"], "quick"), (["quick", "--task", "x"], "digits-machine-00"), (["quick", "--method", "x"], "volmax"), (["quick", "--trials", "0"], "at least 1")])  # fmt: skip
def test_bad_requests_are_answered_with_what_there_is(args, word, tmp_path):
    out = CliRunner().invoke(app, ["bench", *args, "-o", str(tmp_path)])
    assert isinstance(out.exception, ValueError)
    assert word in str(out.exception)


@pytest.mark.skipif(datasets.data_directory() is None, reason="PDCC_DATA is not set")
@pytest.mark.parametrize("task", presets.PRESETS["human-noise"].tasks)
def test_human_noise_tasks_load(task: str):
    one = tasks.load(task, 0)
    assert (one.truth is None) == task.startswith("dwug")
    assert len(one.pairs) == len(one.similar) > 0
