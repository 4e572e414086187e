"""A run directory at every moment: the old run, the new one, or one to resume; and one process in it at a time."""

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs

from pdcc import VolMaxDCC
from pdcc.cli import main
from pdcc.cli.app import Printable, say
from pdcc.errors import ArtifactError, BusyError
from pdcc.storage import files
from pdcc.storage import run as runs
from pdcc.storage.files import write_atomic
from pdcc.storage.lock import LOCK, claimed

QUICK = ("--epochs", "2", "--confusion", "none", "--volume", "0", "--init", "kmeans", "--scale", "standard")


@pytest.fixture
def home(tmp_path):
    blobs = make_blobs(n=40, n_pairs=120, seed=0)
    np.save(tmp_path / "X.npy", blobs.X)
    rows = [f"{i},{j},{int(s)}" for (i, j), s in zip(blobs.answers.pairs, blobs.answers.similar, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,similar", *rows]))
    return tmp_path


def arguments(home, *more: object) -> list[str]:
    return ["-q", "fit", str(home / "X.npy"), str(home / "pairs.csv"), "-k", "3", "-o", str(home / "run"), *QUICK, *map(str, more)]  # fmt: skip


def fit(home, *more: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(arguments(home, *more))
    return int(stop.value.code or 0)


def seed_of(run) -> int:
    """The seed of the finished run, which must load and predict."""
    assert np.isfinite(VolMaxDCC.load(run).memberships_).all()
    return int(json.loads((run / "run.json").read_text())["options"]["random_state"])


class Killed(BaseException):
    pass


CHANGES = ("replace", "unlink", "mkdir", "rmdir", "write", "fsync")


@pytest.fixture
def remake(home, monkeypatch):
    """remake(seed, step, ...): what `fit` does to the directory, by a fit that is known already, dead from the step-th change on.

    An odd step dies before a change of the disk, an even one after it; a dead process changes nothing any more. Returns how
    many changes there were, and whether it was refused.
    """
    assert fit(home) == 0
    estimator = VolMaxDCC.load(home / "run")
    data = runs.read_data(home / "run")
    source = runs.Source.of(home / "X.npy", home / "pairs.csv", None)
    real = {name: getattr(os, name) for name in CHANGES}

    def make(seed: int, step: int = -1, *, resume: bool = False, overwrite: bool = False) -> tuple[int, bool]:
        count = 0

        def dying(name):
            def change(*args, **options):
                nonlocal count
                count += 1
                if 0 < step <= 2 * count - 1:
                    raise Killed
                done = real[name](*args, **options)
                if step == 2 * count:
                    raise Killed
                return done

            return change

        with monkeypatch.context() as patch:
            for name in CHANGES:
                patch.setattr(os, name, dying(name))
            try:
                with claimed(home / "run"):
                    options = {"random_state": seed}
                    if runs.begin(home / "run", source, options, resume=resume, overwrite=overwrite):
                        write_atomic(home / "run" / runs.CHECKPOINTS / "fit.safetensors", b"half way")
                        tensors, described = estimator.described()
                        tensors["agreement"] = tensors["agreement"] * (1 - seed / 8)
                        runs.finish(home / "run", tensors, described, data, source, options)
            except Killed:
                pass
            except ArtifactError:
                return count, True
        # Partial files of this process, which lives on, are those of the dead one.
        for file in (home / "run").rglob(".pdcc-*.partial") if step > 0 else ():
            file.rename(file.with_name(file.name.replace(str(os.getpid()), "4194305")))
        return count, False

    return make


def content(run) -> list[str]:
    return sorted(p.name.split("-")[0] for p in run.rglob("*"))


WHOLE = ["model", "pairs", "run.json"]


def test_at_every_step_of_an_overwrite_there_is_the_old_run_or_the_new(home, remake):
    """Whatever the moment of death, the directory holds a whole run, and both --resume and --overwrite go on from there."""
    steps, refused = remake(1, overwrite=True)
    assert steps > 10
    assert not refused
    seen = set()
    for step in range(1, 2 * steps + 1):
        for go_on in ({"resume": True}, {"overwrite": True}):
            assert not remake(0, overwrite=True)[1]
            remake(1, step, overwrite=True)
            after = seed_of(home / "run")
            begun = (home / "run" / "unfinished" / "begun.json").exists()
            seen.add((after, begun))
            refused = remake(1, **go_on)[1]
            assert refused == ("resume" in go_on and after == 0 and not begun)  # nothing had begun yet
            assert seed_of(home / "run") == (0 if refused else 1)
            assert content(home / "run") == WHOLE
    assert seen == {(0, False), (0, True), (1, True), (1, False)}


def test_at_every_step_of_a_first_fit_it_can_be_resumed(home, remake):
    shutil.rmtree(home / "run")
    steps, _ = remake(0)
    for step in range(1, 2 * steps + 1):
        for go_on in ({"resume": True}, {"overwrite": True}):
            shutil.rmtree(home / "run")
            remake(0, step)
            assert not remake(0, **go_on)[1]
            assert content(home / "run") == WHOLE
            assert seed_of(home / "run") == 0


def test_a_resumed_run_is_the_one_that_was_begun(home, capsys):
    assert fit(home) == 0
    assert fit(home, "--resume", "--seed", 1) == 2
    assert "the seed changed" in capsys.readouterr().err
    assert seed_of(home / "run") == 0
    assert fit(home, "--resume") == 0
    assert "already finished" in capsys.readouterr().out


def test_what_dead_processes_left_is_removed_and_what_others_write_stays(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = tmp_path / f".pdcc-{files.HOST}-{child.pid}-x.partial"
    living = tmp_path / f".pdcc-{files.HOST}-{os.getppid()}-x.partial"
    elsewhere = tmp_path / f".pdcc-00000000-{child.pid}-x.partial"
    for file in (dead, living, elsewhere):
        file.write_bytes(b"part")
    write_atomic(tmp_path / "new", b"whole")
    assert {p.name for p in tmp_path.iterdir()} == {living.name, elsewhere.name, "new"}


def test_a_directory_in_use_is_refused_by_name(home, capsys):
    with claimed(home / "run"):
        for more in ((), ("--resume",), ("--overwrite",)):
            assert fit(home, *more) == 2
            said = capsys.readouterr().err
            assert f"process {os.getpid()} on " in said
        with pytest.raises(BusyError, match="in use by process"), claimed(home / "run"):
            pass
    assert not (home / "run").exists()  # nothing came of it
    assert fit(home) == 0
    estimator = VolMaxDCC.load(home / "run")
    with claimed(home / "run"), pytest.raises(BusyError):
        estimator.save(home / "run")
    assert not (home / "run" / LOCK).exists()


def test_the_lock_of_a_killed_process_holds_nothing_up(home):
    """Another process takes the lock and is killed with it; its file stays, and the next fit goes on."""
    code = f"""
        import time; from pathlib import Path; from pdcc.storage.lock import claimed
        with claimed(Path({str(home / "run")!r})): print("held", flush=True); time.sleep(60)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BusyError, match=f"process {holder.pid} on"), claimed(home / "run"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (home / "run" / LOCK).exists()
    assert fit(home) == 0
    assert seed_of(home / "run") == 0


def test_directories_with_other_files_are_left_alone(home):
    (home / "run").mkdir()
    (home / "run" / "thesis.tex").write_text("years")
    for more in ((), ("--resume",), ("--overwrite",)):
        assert fit(home, *more) == 2
    assert [p.name for p in (home / "run").iterdir()] == ["thesis.tex"]
    (home / "file").write_text("")
    with pytest.raises(ArtifactError, match="found a file"), claimed(home / "file"):
        pass


def test_a_full_disk_is_no_bad_input_and_loses_nothing(home, monkeypatch, capsys):
    assert fit(home) == 0

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert fit(home, "--overwrite", "--seed", 1) == 3
    said = capsys.readouterr().err
    assert "No space left" in said
    assert "make room" in said
    assert seed_of(home / "run") == 0
    assert fit(home, "--overwrite", "--seed", 1) == 0
    assert content(home / "run") == WHOLE


def test_names_steer_neither_the_terminal_nor_a_spreadsheet(home, capsys):
    """Ids that are formulas, a column name with escape sequences: spelled out on the screen, and as they are, or safe, in the CSV."""
    rng = np.random.default_rng(0)
    ids = ["=1+1", "+2", "-3", "@A1", "plain", *(f"item {k}" for k in range(15))]
    table = pd.DataFrame(rng.normal(size=(20, 2)), columns=["\x1b[31mred", "b"])
    table.insert(0, "name", ids)
    table.to_csv(home / "table.csv", index=False)
    pairs = pd.DataFrame({"i": ids[:10], "j": ids[10:], "similar": [0, 1] * 5})
    pairs.to_csv(home / "named.csv", index=False)
    named = ["--id-column", "name"]
    for arguments, code in (
        (["fit", home / "table.csv", home / "named.csv", "-k", 2, "-o", home / "run", *QUICK, *named], 0),
        (["predict", home / "run", home / "table.csv", "-o", home / "plain.csv", *named], 0),
        (["predict", home / "run", home / "table.csv", "-o", home / "safe.csv", "--safe-csv", *named], 0),
        (["fit", home / "table.csv", home / "named.csv", "-k", 2, "-o", home / "other", "--id-column", "\x1b[2J"], 2),
    ):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        assert (stop.value.code or 0) == code
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\\x1b" in said.err
    assert pd.read_csv(home / "plain.csv", dtype=str)["item"].tolist() == ids
    assert pd.read_csv(home / "safe.csv", dtype=str)["item"].tolist() == [f"'{i}" for i in ids[:4]] + ids[4:]


def test_log_lines_and_reports_are_printable(capsys):
    say("a\x1b[31mb\nc")
    assert capsys.readouterr().out == "a\\x1b[31mb\nc\n"
    with pytest.raises(SystemExit):
        main(["fit", "none\x1b.npy", "none.csv", "-k", "2", "-o", "none"])
    record = logging.LogRecord("pdcc", logging.INFO, "", 0, "%s", ("\x1b[2J",), None)
    assert Printable("%(message)s").format(record) == "\\x1b[2J"


def test_directories_called_unfinished_and_locks_of_others_stay(home):
    (home / "run" / "unfinished").mkdir(parents=True)
    (home / "run" / "unfinished" / "thesis.tex").write_text("years")
    (home / "run" / ".lock").write_text("another program's")
    assert fit(home) == 2
    assert (home / "run" / "unfinished" / "thesis.tex").read_text() == "years"
    assert (home / "run" / ".lock").read_text() == "another program's"


def test_the_same_command_with_resume_goes_on_with_an_overwrite(home, remake):
    """After an interrupt the user is told to add --resume to the same command: what was begun is not thrown away."""
    steps, _ = remake(1, overwrite=True)
    remake(0, overwrite=True)
    for step in range(1, 2 * steps + 1):
        remake(1, step, overwrite=True)
        if (home / "run" / runs.CHECKPOINTS).exists() and (home / "run" / "unfinished" / "begun.json").exists():
            break
    before = (home / "run" / "unfinished" / "begun.json").stat().st_ino
    source = runs.Source.of(home / "X.npy", home / "pairs.csv", None)
    with claimed(home / "run"):
        assert runs.begin(home / "run", source, {"random_state": 1}, resume=True, overwrite=True)
    assert (home / "run" / "unfinished" / "begun.json").stat().st_ino == before
    (home / "run" / "run.json").write_text("{")  # the old run is damaged: the new one goes on all the same
    with claimed(home / "run"):
        assert runs.begin(home / "run", source, {"random_state": 1}, resume=True, overwrite=False)


def test_a_runs_own_features_are_no_input_for_its_successor(home, capsys):
    assert fit(home) == 0
    kept = home / "run" / "features-0123456789ab.npy"
    kept.write_bytes((home / "X.npy").read_bytes())
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(kept), str(home / "pairs.csv"), "-k", "3", "-o", str(home / "run"), "--overwrite", *QUICK])
    assert stop.value.code == 2
    assert "a file of the run that is to be replaced" in capsys.readouterr().err
    assert kept.exists()


def test_two_ways_to_fall_back_have_checkpoints_of_their_own(tmp_path):
    """Three distinct items and five clusters: both ways leave clusters empty, and the command ends all the same."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    np.save(tmp_path / "x.npy", np.eye(3)[y])
    pairs = rng.integers(60, size=(300, 2))
    rows = [f"{a},{b},{int(y[a] == y[b])}" for a, b in pairs]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,similar", *rows]))
    with pytest.raises(SystemExit) as stop:
        main(["-q", "fit", str(tmp_path / "x.npy"), str(tmp_path / "pairs.csv"), "-k", "5", "-o", str(tmp_path / "run"), "--epochs", "2"])  # fmt: skip
    assert not stop.value.code
