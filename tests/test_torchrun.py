"""torchrun --nproc-per-node 2 -m pdcc fit, from the files to the run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import make_blobs, pdcc

from pdcc import VolMaxDCC
from pdcc.cli import processes
from pdcc.cli.app import complain, say
from pdcc.errors import LostProcessError

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
HOW = ["-k", "3", "--confusion", "sigmoid", "--volume", "0.01", "--scale", "standard", "--init", "random"]


@pytest.fixture
def files(tmp_path):
    blobs = make_blobs(n=90, n_pairs=400)
    np.save(tmp_path / "features.npy", blobs.X)
    rows = [f"{i},{j},{int(s)}" for (i, j), s in zip(blobs.answers.pairs, blobs.answers.similar, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,similar", *rows]))
    return tmp_path


def launch(files, program, **told):
    command = [*TORCHRUN, *program, "fit", "features.npy", "pairs.csv", *HOW, "--epochs", "8", "-o", "run"]
    return subprocess.run(
        command,
        cwd=files,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | told,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_two_processes_leave_one_run(files):
    done = launch(files, ["-m", "pdcc"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Run kept in run") == 1
    assert done.stderr.count("fit: All 8 epochs used") == 1
    est = VolMaxDCC.load(files / "run")
    assert est.memberships_.shape == (90, 3)
    again = launch(files, ["-m", "pdcc"])
    assert again.returncode != 0
    assert again.stderr.count("already holds a finished run") == 1


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_command_and_one_alone_goes_on(files, killed, monkeypatch, capfd):
    program = [str(Path(__file__).with_name("killed_process.py"))]
    done = launch(files, program, KILLED=str(killed))
    assert done.returncode != 0
    assert "Go on with the same command and --resume" in done.stderr or killed == 0
    assert not (files / "run" / "run.json").exists()
    kept = list((files / "run" / "unfinished" / "checkpoints").glob("*.safetensors"))
    if killed == 1:  # the first, killed before its first checkpoint was due, leaves none
        assert "process 1 of 2: Another process of this job ended" in done.stderr
        assert "The state after step 10 is kept." in done.stderr
        assert len(kept) == 1
    monkeypatch.chdir(files)
    assert pdcc("fit", "features.npy", "pairs.csv", *HOW, "--epochs", "8", "-o", "run", "--resume") == 0
    assert ("resumed at step 10" in capfd.readouterr().err) == (killed == 1)
    assert VolMaxDCC.load(files / "run").memberships_.shape == (90, 3)


def told(monkeypatch, rank, local_rank=None, size=2):
    names = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("LOCAL_RANK", str(rank if local_rank is None else local_rank))


def test_one_process_says_what_came_of_it_and_one_per_machine_what_went_wrong(monkeypatch, capsys):
    wrong, lost = ValueError("wrong"), LostProcessError("lost")
    for rank, local_rank, heard in ((0, 0, "said wrong lost"), (1, 1, "lost"), (2, 0, "wrong lost")):
        told(monkeypatch, rank, local_rank, size=4)
        say("said")
        complain("wrong", wrong)
        complain("lost", lost)
        out, err = capsys.readouterr()
        assert (out + err).split() == heard.split(), rank


def test_without_a_launcher_there_is_one_process(monkeypatch):
    for name in processes.TOLD:
        monkeypatch.delenv(name, raising=False)
    assert (processes.n_processes(), processes.rank()) == (1, 0)
    told(monkeypatch, 1)
    assert (processes.n_processes(), processes.rank()) == (2, 1)
    monkeypatch.delenv("MASTER_ADDR")
    assert (processes.n_processes(), processes.rank()) == (1, 0)
