"""The command line as a person uses it: files in, files out, one sentence on error."""

import logging
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from pdcc import PairData, VolMaxDCC, datasets, metrics
from pdcc.cli import main
from pdcc.data.splits import hold_out
from pdcc.errors import ArtifactError
from pdcc.storage.run import read_data


def pdcc(*arguments) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code)


@pytest.fixture
def files(tmp_path, noisy_blobs):
    np.save(tmp_path / "x.npy", noisy_blobs.X)
    a = noisy_blobs.answers
    pd.DataFrame({"i": a.pairs[:, 0], "j": a.pairs[:, 1], "similar": a.similar.astype(int)}).to_csv(
        tmp_path / "pairs.csv", index=False
    )
    return tmp_path


def fit(files, *more, run="run") -> int:
    return pdcc("fit", files / "x.npy", files / "pairs.csv", "-k", 3, "-o", files / run, "--epochs", 3, *more)


def test_fit_then_predict(files, capsys, noisy_blobs):
    assert fit(files) == 0
    assert "600 answers about 150 items" in capsys.readouterr().out
    assert pdcc("predict", files / "run", files / "x.npy", "-o", files / "out.csv") == 0
    table = pd.read_csv(files / "out.csv")
    assert table.columns.tolist() == ["item", "label", "m0", "m1", "m2"]
    est = VolMaxDCC.load(files / "run")
    np.testing.assert_allclose(table[["m0", "m1", "m2"]], est.predict_proba(noisy_blobs.X), rtol=1e-12)
    assert table.label.tolist() == est.labels_.tolist()


@pytest.mark.parametrize("named", [False, True], ids=["row numbers", "ids"])
def test_columns_are_found_by_their_names(files, capsys, noisy_blobs, named):
    """A table with its columns turned round gives the same labels; without the right columns there are none."""
    table = pd.DataFrame(noisy_blobs.X * [1, 5, 25, 125], columns=list("abcd"))
    pairs = pd.read_csv(files / "pairs.csv")
    ids = ["--id-column", "name"] if named else []
    if named:
        table.insert(2, "name", [f"n{r}" for r in range(len(table))])
        pairs.assign(i="n" + pairs.i.astype(str), j="n" + pairs.j.astype(str)).to_csv(files / "pairs.csv", index=False)
    forms = {
        "x.csv": table,
        "turned.csv": table[table.columns[::-1]],
        "less.csv": table.drop(columns="b"),
        "more.csv": table.assign(price=1),
    }
    for name, form in forms.items():
        form.to_csv(files / name, index=False)
    run, out = files / "run", files / "out.csv"
    assert pdcc("fit", files / "x.csv", files / "pairs.csv", "-k", 3, "-o", run, "--epochs", 3, *ids) == 0
    est = VolMaxDCC.load(run)
    assert est.feature_names_in_.tolist() == list("abcd")
    for name, how in (("x.csv", ids), ("turned.csv", ids), ("turned.csv", [])):
        assert pdcc("predict", run, files / name, "-o", out, *how) == 0
        written = pd.read_csv(out)
        assert written.item.tolist() == (table.name.tolist() if named else list(range(len(table))))
        assert written.label.tolist() == est.labels_.tolist()
        np.testing.assert_allclose(written[["m0", "m1", "m2"]], est.memberships_, rtol=1e-12)
    table[list("abcd")].to_csv(files / "nameless.csv", index=False)
    assert pdcc("predict", run, files / "nameless.csv", "-o", out) == 0
    assert pd.read_csv(out).item.tolist() == list(range(len(table)))
    est.save(files / "alone")  # which keeps no id column
    assert pdcc("predict", files / "alone", files / "nameless.csv", "-o", out) == 0
    assert read_data(run).feature_names == tuple("abcd")
    capsys.readouterr()
    for name, words in {"less.csv": "found no 'b'", "more.csv": "found besides 'price'"}.items():
        assert pdcc("predict", run, files / name, "-o", out, *ids) == 2
        said = capsys.readouterr().err
        assert words in said
        assert len(said.splitlines()) == 1


@pytest.mark.parametrize("first", ["npy", "csv"])
def test_files_without_names_are_taken_in_their_order(files, capfd, noisy_blobs, first):
    """Said in one line, and no Python warning."""
    pd.DataFrame(noisy_blobs.X, columns=list("abcd")).to_csv(files / "x.csv", index=False)
    second = {"npy": "csv", "csv": "npy"}[first]
    fitted = pdcc("fit", files / f"x.{first}", files / "pairs.csv", "-k", 3, "-o", files / "run", "--epochs", 2)
    assert fitted == 0
    capfd.readouterr()
    assert pdcc("predict", files / "run", files / f"x.{second}", "-o", files / "out.csv") == 0
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1
    assert "order is taken as it is" in said[0]
    assert pd.read_csv(files / "out.csv").label.tolist() == VolMaxDCC.load(files / "run").labels_.tolist()
    assert pdcc("predict", files / "run", files / f"x.{first}", "-o", files / "out.csv") == 0
    assert capfd.readouterr().err == ""


def test_fit_refuses_to_overwrite_and_resumes(files, capsys):
    assert fit(files) == 0
    before = {p.name: p.read_bytes() for p in (files / "run").iterdir() if p.is_file()}
    assert fit(files) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert fit(files, "--resume") == 0
    assert "already finished" in capsys.readouterr().out
    assert before == {p.name: p.read_bytes() for p in (files / "run").iterdir() if p.is_file()}
    assert fit(files, "--resume", "--seed", 4) == 2
    assert "seed" in capsys.readouterr().err
    assert fit(files, "--overwrite", "--seed", 4) == 0


def test_true_and_false_and_quiet(files, capfd):
    table = pd.read_csv(files / "pairs.csv")
    table.assign(similar=table.similar == 1).to_csv(files / "pairs.csv", index=False)
    assert pdcc("-q", "fit", files / "x.npy", files / "pairs.csv", "-k", 3, "-o", files / "run", "--epochs", 2) == 0
    assert capfd.readouterr().err == ""


def test_version(capsys):
    assert pdcc("--version") == 0
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["version"]
    assert capsys.readouterr().out.strip() == declared


def test_resume_with_no_run_starts_one(files):
    assert fit(files, "--resume") == 0
    assert (files / "run" / "run.json").exists()


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(files):
    """kill -9 in mid-training, then --resume; parameters equal those of a run that was left alone."""
    options = [
        "-k",
        "3",
        "--epochs",
        "40",
        "--init",
        "kmeans",
        "--scale",
        "none",
        "--confusion",
        "stochastic",
        "--volume",
        "0.01",
    ]
    often = "from pdcc.inference import svi; svi.CHECKPOINT_SECONDS = 0.02"
    command = [
        sys.executable,
        "-c",
        f"{often}; from pdcc.cli import main; main()",
        "fit",
        str(files / "x.npy"),
        str(files / "pairs.csv"),
        *options,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "-o", str(files / "whole")], check=True, env=environment, capture_output=True)
    process = subprocess.Popen(
        [*command, "-o", str(files / "killed")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while (
        not list((files / "killed" / "unfinished" / "checkpoints").glob("fit-*.safetensors"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (files / "killed" / "run.json").exists()
    again = subprocess.run(
        [*command, "-o", str(files / "killed"), "--resume"], check=True, env=environment, capture_output=True, text=True
    )
    assert "resumed at step" in again.stderr
    whole, killed = (next((files / run).glob("model-*.safetensors")) for run in ("whole", "killed"))
    assert whole.name == killed.name  # named by their bytes
    whole, killed = load_file(whole), load_file(killed)
    assert whole.keys() == killed.keys()
    for name, value in whole.items():
        assert value.equal(killed[name]), name


def test_an_interrupted_benchmark_is_not_told_to_resume(tmp_path, monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("pdcc.experiments.presets.bench", interrupted)
    assert pdcc("bench", "quick", "-o", tmp_path) == 130
    said = capsys.readouterr().err
    assert "Interrupted" in said
    assert "--resume" not in said


def test_interrupt_is_130_and_keeps_the_run(files, monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(VolMaxDCC, "fit_data", interrupted)
    assert fit(files) == 130
    assert "--resume" in capsys.readouterr().err
    assert pdcc("predict", files / "run", files / "x.npy", "-o", files / "out.csv") == 2
    assert "interrupted" in capsys.readouterr().err
    monkeypatch.undo()
    assert fit(files, "--resume") == 0


BAD = [
    (["fit", "{d}/none.npy", "{d}/pairs.csv", "-k", "3", "-o", "{d}/run"], "none.npy"),
    (["fit", "{d}/x.npy", "{d}/x.npy", "-k", "3", "-o", "{d}/run"], "ends in .csv, .tsv"),
    (["fit", "{d}/x.npy", "{d}/pairs.csv", "-k", "1", "-o", "{d}/run"], "n_clusters"),
    (["fit", "{d}/x.npy", "{d}/pairs.csv", "-k", "3", "-o", "{d}/run", "--volume", "lots"], "volume"),
    (["fit", "{d}/x.npy", "{d}/pairs.csv", "-k", "3", "-o", "{d}/x.npy"], "directory"),
    (["fit", "{d}/x.npy", "{d}/pairs.csv", "-k", "3", "-o", "{d}"], "other files"),
    (["fit", "{d}/x.npy", "{d}/pairs.csv", "-o", "{d}/run"], "--clusters"),
    (["fit", "{d}/x.npy", "{d}/pairs.csv", "-k", "3", "-o", "{d}/run", "--seed", "-1"], "random_state"),
    (["predict", "{d}", "{d}/x.npy", "-o", "{d}/out.csv"], "expected a pdcc run"),
    (["nonsense"], "No such command"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_is_one_sentence_and_exit_2(files, capsys, arguments, words):
    assert pdcc(*(a.format(d=files) for a in arguments)) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err
    assert not (files / "run").exists()


def test_debug_shows_the_traceback(files):
    with pytest.raises(ValueError, match=r"none\.npy"):
        main(["--debug", "fit", str(files / "none.npy"), str(files / "pairs.csv"), "-k", "3", "-o", str(files / "run")])


def test_demo_prints_the_table_and_leaves_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pdcc.experiments.demo.N_PAIRS", 400)
    monkeypatch.setattr("pdcc.training.EPOCHS", 3)
    assert pdcc("-q", "demo", "-o", tmp_path / "demo") == 0
    out = capsys.readouterr().out
    assert "400 pairs" in out
    scores = {}
    for name in ("K-means", "VanillaDCC", "VolMaxDCC"):
        row = next(line for line in out.splitlines() if line.startswith(name))
        scores[name] = [float(v) for v in row.split()[-6:]]
    # What is shown of VolMaxDCC is what its run scores: ACC, NMI and ARI, each of seen and unseen items.
    kept, data = VolMaxDCC.load(tmp_path / "demo"), datasets.digits(seed=0)
    sides = ((data.y, kept.labels_), (data.y_unseen, kept.predict(data.X_unseen)))
    shown = [round(score(*side), 3) for score in (metrics.acc, metrics.nmi, metrics.ari) for side in sides]
    assert scores["VolMaxDCC"] == pytest.approx(shown)
    assert len(set(map(tuple, scores.values()))) == 3
    assert "Labels: " in out  # the diagnosis
    assert "are settled" in out
    report = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert f"for a browser: {tmp_path / 'demo' / 'report.html'}" in out
    assert "1,297 items in 10 clusters, from 400 answers of 8 annotators" in report
    assert report.count('class="thumb"') > 40


def test_demo_and_fit_keep_off_each_others_runs(files, capsys, monkeypatch):
    assert fit(files) == 0
    before = (files / "run" / "run.json").read_bytes()
    assert pdcc("-q", "demo", "-o", files / "run") == 2
    assert str(files / "run") in capsys.readouterr().err
    assert (files / "run" / "run.json").read_bytes() == before
    est = VolMaxDCC.load(files / "run")
    for _ in range(2):  # again, over itself
        est.save(files / "saved")
    with pytest.raises(ArtifactError, match="answers would be lost"):
        est.save(files / "run")
    assert len(read_data(files / "run")) == 600
    assert fit(files, "--resume", run="saved") == 2
    assert str(files / "saved") in capsys.readouterr().err
    assert {p.name.split("-")[0] for p in (files / "run").iterdir()} == {"model", "pairs", "run.json"}
    assert (files / "run" / "run.json").stat().st_mode & 0o077 == 0o666 & ~umask() & 0o077


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_help_is_there_for_everyone(capsys):
    for command in ([], ["fit"], ["predict"], ["demo"]):
        assert pdcc(*command, "--help") == 0
        assert "Usage" in capsys.readouterr().out


def test_a_run_holds_out_the_same_annotators_when_read_again(tmp_path, noisy_blobs):
    """Twenty people numbered 0 to 19: as text their order differs, and others would count as held out."""
    np.save(tmp_path / "x.npy", noisy_blobs.X)
    a = noisy_blobs.answers
    who = np.arange(len(a.similar)) % 20
    frame = pd.DataFrame({"i": a.pairs[:, 0], "j": a.pairs[:, 1], "similar": a.similar.astype(int), "annotator": who})
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    assert (
        pdcc("-q", "fit", tmp_path / "x.npy", tmp_path / "pairs.csv", "-k", 3, "-o", tmp_path / "run", "--epochs", 1)
        == 0
    )
    fresh = PairData.read(tmp_path / "x.npy", tmp_path / "pairs.csv")
    again = read_data(tmp_path / "run")
    one, two = hold_out(fresh, 0.1, 0), hold_out(again, 0.1, 0)
    assert one.by == two.by == "annotators"
    assert one.held.tolist() == two.held.tolist()
    assert fresh.annotator.tolist() == again.annotator.tolist()
    assert VolMaxDCC.load(tmp_path / "run").fitted_.split.held.tolist() == one.held.tolist()


def test_quiet_lasts_only_as_long_as_the_command(files):
    assert pdcc("-q", "predict", files / "none", files / "x.npy", "-o", files / "out.csv") == 2
    assert logging.getLogger("pdcc").level == logging.NOTSET
    assert not logging.getLogger("pdcc").handlers
