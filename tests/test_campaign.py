"""A part of the campaign (`make campaign` runs all of it), and that it would see a fault."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from campaign import __main__ as campaign
from campaign import files, tally
from campaign.tally import Tally

SHARES = {"inputs": 0.04, "files": 0.1, "processes": 0.02, "repeats": 0.02}


@pytest.mark.parametrize(
    "part", [part if part in ("inputs", "files") else pytest.param(part, marks=pytest.mark.slow) for part in SHARES]
)
def test_a_part_of_the_campaign_finds_no_fault(part):
    """Other attempts than those of the whole campaign: another seed."""
    command = [sys.executable, "-m", "campaign", "--seed", "1", "--part", part, "--share", str(SHARES[part])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "| all |" in done.stdout


def test_what_counts_as_a_fault(monkeypatch):
    monkeypatch.setattr(tally, "SECONDS", 1)
    seen = Tally()

    def fail(error: BaseException):
        raise error

    seen.attempt("works", 0, lambda: None)
    seen.attempt("refused", 0, lambda: files.read_pickle(Path("none.pkl")))
    seen.attempt("no sense", 0, lambda: "does not hold together")
    seen.attempt("wrong type", 0, lambda: fail(KeyError("k")))
    seen.attempt("not ours", 0, lambda: str(np.zeros((2, 2)) @ np.zeros(3)))
    seen.attempt("hung", 0, lambda: time.sleep(5))
    seen.attempt("exit", 0, lambda: sys.exit(1))
    assert [fault["kind"] for fault in seen.faults] == ["no sense", "wrong type", "not ours", "hung", "exit"]
    assert seen.attempts.total() == 7
    assert seen.refused == {"refused": 1, "not ours": 1}


def test_a_part_that_dies_is_a_fault(monkeypatch):
    monkeypatch.setattr(files, "run", lambda *_: os.kill(os.getpid(), 9))
    found = campaign.run_part("files", 0, 1.0)
    assert "ended with -9" in found.faults[0]["what"]
    assert "| files | 1 | 0 | 1 |" in campaign.as_table({"files": found})


def seen_in(attempt: Callable[..., str | None], count: int, home: Path) -> set[str | None]:
    """What ``count`` attempts found that were not refused."""
    found = set()
    for k in range(count):
        with suppress(Exception):
            found.add(attempt(np.random.default_rng([0, k]), home))
    return found


def test_a_file_that_runs_code_would_be_seen(monkeypatch, tmp_path):
    """The reader replaced by pickle's own."""
    import pickle

    monkeypatch.setattr(files, "read_pickle", lambda path: pickle.loads(path.read_bytes()))
    assert "CODE FROM A FILE WAS RUN" in seen_in(files.pickles, 40, tmp_path)


def test_an_altered_run_that_loads_would_be_seen(monkeypatch, tmp_path):
    """Hashes no longer compared: damage that the format survives comes through, and is told."""
    monkeypatch.setattr("pdcc.storage.model.file_of", lambda path, body, name: path / body["files"][name]["name"])
    files._run.cache_clear()
    assert "an altered run was loaded as if nothing had happened" in seen_in(files.runs, 60, tmp_path)
