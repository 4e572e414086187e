"""The paper's experiments by one command each, on small made-up files in every layout; oracles, volumes and what noise costs."""

import pickle

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pdcc import VanillaDCC, VolMaxDCC
from pdcc.baselines import KMeans
from pdcc.cli import app
from pdcc.datasets import digits
from pdcc.estimator import OracleVolMaxDCC
from pdcc.experiments import cells, methods, presets, robustness, tables, tasks, wording
from pdcc.experiments.paper import data as paper_data
from pdcc.experiments.paper.data import Sizes
from pdcc.experiments.paper.published import published
from pdcc.metrics import acc
from pdcc.storage.journal import read_lines

SMALL = Sizes(seen=600, valid=97, unseen=300, pairs=1500)
TINY = {"hidden": (8,), "epochs": 2, "progress": False}


@pytest.fixture(scope="module")
def items():
    """997 digits, sorted by class."""
    found = digits(n_unseen=0)
    X, y = found.X[: SMALL.items], found.y[: SMALL.items]
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """PDCC_DATA/paper, small counts, and methods that are quick."""
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    monkeypatch.setattr(paper_data, "SIZES", dict.fromkeys(paper_data.SIZES, SMALL))

    def tiny(title, make, oracle=False):
        return methods.Method(title, make, oracle)

    volumes = {"volumes": (0.0, 0.1)}
    made = {
        "kmeans": tiny("K-means", lambda k, s, c: KMeans(k, n_init=1, random_state=s)),
        "vanilla-paper": tiny("Vanilla", lambda k, s, c: VanillaDCC.paper(k, random_state=s, **TINY)),
        "volmax-paper-oracle": tiny(
            "Oracle", lambda k, s, c: VolMaxDCC.paper(k, oracle=methods.NO_ITEMS, random_state=s, **volumes, **TINY), True
        ),
        "volmax-paper-v0": tiny("v0", lambda k, s, c: VolMaxDCC.paper(k, 0.0, random_state=s, **TINY)),
        "volmax-paper-v0.1": tiny("v0.1", lambda k, s, c: VolMaxDCC.paper(k, 0.1, random_state=s, **TINY)),
    }  # fmt: skip
    three = {
        "vanilla-paper-three": made["vanilla-paper"],
        "volmax-paper-three-oracle": made["volmax-paper-oracle"],
    }
    for module in (methods, cells, tables, presets, wording):
        monkeypatch.setattr(module, "METHODS", made | three)
    for name, preset in presets.PRESETS.items():
        few = tuple(m for m in preset.methods if m in made | three)
        monkeypatch.setitem(presets.PRESETS, name, presets.Preset(preset.title, preset.tasks, few, preset.trials))
    (tmp_path / "paper").mkdir()
    return tmp_path / "paper"


def save(folder, name, layout, X, y):
    whole = pickle.dumps((X, y))
    if layout == "npz":
        np.savez(folder / f"{name}.npz", X=X, y=y)
    elif layout == "dict":
        (folder / f"{name}.pkl").write_bytes(pickle.dumps({"X": X, "Y": y}))
    elif layout == "npy":
        (folder / name).mkdir()
        np.save(folder / name / "feature.npy", X)
        np.save(folder / name / "label.npy", y)
    elif layout == "tuple":
        (folder / f"{name}_pretrained_dataset.pkl").write_bytes(whole)
    else:
        (folder / name).mkdir()
        for k, part in enumerate((whole[: len(whole) // 2], whole[len(whole) // 2 :])):
            (folder / name / f"{name}_pretrained_dataset.pkl.part{k + 1}").write_bytes(part)


@pytest.mark.parametrize(
    ("preset", "task", "layout"),
    [
        ("paper", "stl10-8.3", "npz"),
        ("paper", "cifar10-0.0", "tuple"),
        ("paper", "imagenet10-0.0", "npy"),
        ("paper-layers", "cifar10-0.0", "pieces"),
        ("paper-600", "imagenet10-600-4.4", "dict"),
        ("paper-volumes", "stl10-0.0", "pieces"),
    ],
)
def test_each_table_by_one_command_from_files_in_each_layout(folder, items, tmp_path, preset, task, layout):
    save(folder, task.rpartition("-")[0], layout, *items)
    asked = ["bench", preset, "-o", str(tmp_path / "out"), "--task", task, "--trials", "1"]
    out = CliRunner().invoke(app, asked)
    assert out.exception is None, out.output
    found = read_lines(tmp_path / "out" / cells.CELLS)
    assert [r["method"] for r in found] == list(presets.PRESETS[preset].methods)
    assert all(r["status"] == "done" and r["task"] == task for r in found), found
    assert {"acc_seen", "nmi_unseen", "acc_valid"} <= set(found[0])
    # A second call finds all of it on record.
    assert CliRunner().invoke(app, asked).exception is None
    assert len(read_lines(tmp_path / "out" / cells.CELLS)) == len(found)
    if preset == "paper-volumes":
        assert "by classes of validation items (oracle)" in out.output
        return
    beside = pd.read_csv(tmp_path / "out" / "beside_paper.csv")
    setting = {"paper": "main", "paper-layers": "three hidden layers", "paper-600": "600-epoch features"}[preset]
    theirs = published(setting=setting)
    theirs = theirs[(theirs["task"] == task) & (theirs["method"] == "VolMaxDCC")]
    oracle = beside[beside["method"].str.endswith("oracle")]
    assert len(oracle) == len(theirs) == 6
    assert sorted(oracle["mean_paper"]) == sorted(theirs["mean"])


def test_twenty_superclasses(folder, items, monkeypatch):
    monkeypatch.setitem(paper_data.SIZES, "cifar100", Sizes(600, 97, 300, 1500, 20))
    X, y = items
    save(folder, "cifar100", "pieces", X, 2 * y + np.arange(len(y)) % 2)
    assert tasks.load("cifar100-0.0", 0).n_clusters == 20
    assert set(presets.PRESETS["paper-cifar100"].tasks) == {f"cifar100-{p}" for p in (0.0, 4.9, 8.7, 10.9)}


def test_an_oracle_is_given_labelled_items_and_nothing_else_is(folder, items):
    save(folder, "stl10", "npz", *items)
    one = tasks.load("stl10-8.3", 0)
    made = {name: cells.make(method, one, 0, None) for name, method in methods.METHODS.items()}
    oracle = made["volmax-paper-oracle"]
    assert isinstance(oracle, OracleVolMaxDCC)
    assert np.array_equal(oracle.oracle[0], one.valid[0])
    assert np.array_equal(oracle.oracle[1], one.valid[1])
    assert not any("oracle" in est.get_params() for name, est in made.items() if "oracle" not in name)
    X, y = items
    order = np.random.default_rng(1).permutation(len(y))
    X, y = X[order], y[order]
    np.savez(folder / "stl10.npz", X_seen=X[:600], y_seen=y[:600], X_unseen=X[-300:], y_unseen=y[-300:])
    record = cells.run_cell(cells.Cell("stl10-0.0", "volmax-paper-oracle", 0, 0))
    assert record["status"] == "failed"
    assert "valid: expected items with known classes" in record["message"]


def test_published_methods_differ_in_what_the_paper_says_they_do():
    plain = VolMaxDCC.paper(10, random_state=3, progress=False).get_params()
    for volume in methods.PAPER_VOLUMES:
        assert methods.METHODS[f"volmax-paper-v{volume:g}"].make(10, 3, None).get_params() == plain | {"volume": volume}
    assert methods.PAPER_VOLUMES == (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    selected = methods.METHODS["volmax-paper-selected"].make(10, 3, None)
    assert (selected.volumes, selected.hidden) == (methods.PAPER_VOLUMES, (512, 512))
    for name, method in methods.THREE_LAYERS.items():
        three = method.make(10, 3, None)
        assert three.hidden == (512, 512, 512), name
    for kind, changes in (("unit", {"scale": "unit"}), ("started", {"scale": "unit", "init": "pairs"})):
        assert methods.METHODS[f"volmax-paper-{kind}"].make(10, 3, None).get_params() == plain | changes
    oracle = methods.METHODS["volmax-paper-three-oracle"].make(10, 3, None)
    assert oracle.volumes == methods.PAPER_VOLUMES
    sphere = methods.METHODS["spherepair-paper"].make(10, 3, None).get_params()
    expected = {"omega": 2.0, "reconstruction_weight": 0.02, "latent": 10, "lr": 1e-3, "batch_size": 256}
    assert {k: sphere[k] for k in expected} == expected
    assert (sphere["scale"], sphere["init"], sphere["validation_fraction"]) == ("standard", "own", 0.0)


# ---- machine annotators on the features of CIFAR-10N


def test_the_machine_protocol_on_made_up_features(folder, items, tmp_path, monkeypatch):
    X, y = items
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    np.savez(tmp_path / "cifar10n.npz", X_seen=X[:700], y_seen=y[:700], X_unseen=X[700:], y_unseen=y[700:])
    monkeypatch.setattr(tasks, "HUMAN_PAIRS", 1500)
    clean, noisy = (tasks.load(f"cifar10n-machine-{p}", 0) for p in (0.0, 8.7))
    assert np.array_equal(clean.pairs, noisy.pairs)  # the same pairs at every noise
    assert np.array_equal(clean.given, clean.truth[0])
    same = noisy.given[noisy.pairs[:, 0]] == noisy.given[noisy.pairs[:, 1]]
    assert np.array_equal(same, noisy.similar)  # one annotator, whose labels answer
    assert noisy.flip_rate == pytest.approx(0.087, abs=0.0051)
    assert not np.array_equal(tasks.load("cifar10n-machine-0.0", 1).pairs, clean.pairs)
    assert (len(noisy.valid[1]), len(noisy.X_unseen)) == (59, 238)
    out = CliRunner().invoke(app, ["bench", "machine", "-o", str(tmp_path / "out"), "--only", "0.0", "--only", "8.7", "--trials", "1"])  # fmt: skip
    assert out.exception is None, out.output
    found = read_lines(tmp_path / "out" / cells.CELLS)
    assert len(found) == 2 * 3
    assert all(r["status"] == "done" for r in found), found
    last = next(r for r in found if r["task"] == "cifar10n-machine-8.7")
    assert last["annotator_acc"] == acc(noisy.truth[0], noisy.given) < 1
    assert last["held_out"] > 0
    assert f"| {robustness.ANNOTATOR} | 1.000 | {1 - last['annotator_acc']:.3f} (1) |" in out.output
    followed = out.output.partition("ACC against the annotator's own labels")[2].partition("\n\n")[0]
    assert "Vanilla" in followed
    assert "**" not in followed  # following is neither good nor bad
    assert "annotator_acc" not in out.output  # a property of the task, not a measure of methods


def record(task, method, trial, acc_seen, **more):
    return {"task": task, "method": method, "trial": trial, "seed": 0, "status": "done", "acc_seen": acc_seen} | more


def test_volumes_are_chosen_as_each_way_would():
    def three(trial, seen, valid, held):
        names = (f"{robustness.GRID}{v}" for v in ("0", "0.001", "0.1"))
        each = zip(names, seen, valid, held, strict=True)
        return [record("t", name, trial, a, acc_valid=v, held_out=h) for name, a, v, h in each]

    records = [
        *three(0, (0.5, 0.7, 0.6), (0.4, 0.5, 0.8), (0.2, 0.3, 0.4)),
        *three(1, (0.5, 0.4, 0.3), (0.9, 0.9, 0.1), (0.3, 0.2, 0.4)),
        record("u", "volmax-paper-v0", 0, 0.9, acc_valid=0.9),  # one volume is no choice
    ]
    text = robustness.volume_choices(records)
    (row,) = [line for line in text.splitlines() if line.startswith("| t ")]
    cells_ = [cell.strip() for cell in row.split("|")[2:-1]]
    # Of equals the least volume: by labels of validation items 0.1 and 0; by held-out answers 0 and 0.001.
    assert cells_ == ["0.550 ± 0.050 at 0, 0.1", "0.450 ± 0.050 at 0, 0.001", "0.600 ± 0.100 at 0, 0.001", "2"]
    assert "| u " not in text
    assert robustness.volume_choices([record("t", "volmax", 0, 0.5)]) == ""


def test_what_noise_costs_is_paired_over_trials():
    records = [
        *(record("d-0.0", "volmax", t, v, annotator_acc=1.0) for t, v in enumerate((0.9, 0.8, 0.7))),
        *(record("d-10.9", "volmax", t, v, annotator_acc=0.7) for t, v in enumerate((0.6, 0.6))),
        *(record("d-0.0", "vanilla", t, v) for t, v in enumerate((0.5, 0.5))),
        *(record("d-10.9", "vanilla", t, v) for t, v in enumerate((0.45, 0.45))),
        record("e-clean", "volmax", 0, 0.9),
        record("f-5.0", "volmax", 0, 0.9),  # no clean twin
        record("d-0.0", "kmeans", 0, 0.5),  # never with noise
    ]
    text = robustness.degradation(records)
    assert "| **VolMaxDCC, default** | 0.800 | 0.250 ± 0.050 (2) |" in text
    assert "| VanillaDCC | 0.500 | **0.050 ± 0.000 (2)** |" in text
    assert f"| {robustness.ANNOTATOR} | 1.000 | 0.300 ± 0.000 (2) |" in text
    assert "lost at 10.9 %" in text
    assert robustness.ANNOTATOR in text.splitlines()[-1]  # a bar, below the methods
    assert "K-means" not in text
    assert robustness.degradation(records[5:7]) == ""
