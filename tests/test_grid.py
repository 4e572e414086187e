"""The one runner of grids: the same records by processes and on a Dask cluster, where workers die and cells fail."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
import test_grid
from distributed import LocalCluster

from pdcc.cli import main
from pdcc.criticism.sbc import run_sbc
from pdcc.errors import PairDataError
from pdcc.experiments.grid import run_study
from pdcc.grid import cluster as on
from pdcc.grid.runner import run_grid
from pdcc.storage.journal import read_lines


@dataclass(frozen=True)
class Setting:
    """A cell of these tests. does: what it does: counts, fits, raises, dies once or dies always."""

    seed: int
    does: str = "counts"

    @property
    def name(self) -> str:
        return f"{self.does}-{self.seed}"


@contextmanager
def started(**options: Any) -> Iterator[Any]:
    """A cluster at this machine's own address, which gives a cell up when it has killed three workers.

    A worker has one cell at a time: one that waits beside the cell that kills its worker is blamed for it as well.
    """
    ours = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "memory_limit": 0,
        "n_workers": 2,
        "threads_per_worker": 1,
    }
    one_by_one = {"distributed.scheduler.allowed-failures": 2, "distributed.scheduler.worker-saturation": 1.0}
    with dask.config.set(one_by_one), LocalCluster(**ours, **options) as local:
        yield local


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two workers that are threads of this process: a client reaches them as any others."""
    with started(processes=False, protocol="tcp://") as local:
        yield local.scheduler_address


def cell(setting: Setting, killed: Path | None = None) -> dict[str, Any]:
    """What the setting says: numbers or a fit, an error, or the death of its process, which ``killed`` keeps count of."""
    if setting.does == "raises":
        raise RuntimeError("never works")
    if killed is not None and setting.does.startswith("dies"):
        with killed.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if setting.does == "dies always" or len(killed.read_text().split()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    rng = np.random.default_rng(setting.seed)
    X, pairs = rng.normal(size=(40, 2)), rng.integers(0, 40, (60, 2))
    if setting.does != "fits":
        return {"name": setting.name, "memberships": X.ravel().tolist()}
    from pdcc import VolMaxDCC  # only here: it takes seconds in every new process

    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    est = VolMaxDCC(
        2, confusion="rates", volume=0.0, scale=None, init="kmeans", hidden=(4,), epochs=2, random_state=setting.seed
    )  # fmt: skip
    est.fit(X, pairs, pairs[:, 0] % 2 == pairs[:, 1] % 2)
    return {"name": setting.name, "memberships": est.memberships_.ravel().tolist()}


def test_a_study_on_a_cluster_has_the_same_table_and_goes_on(address, tmp_path):
    settings = [Setting(seed) for seed in range(6)]
    here = run_study(settings, cell, tmp_path / "here.jsonl")
    path = tmp_path / "there.jsonl"
    run_study(settings[:4], cell, path, dask=address)
    assert run_study(settings, cell, path, dask=address) == here
    assert sorted(row["name"] for row in read_lines(path)) == sorted(s.name for s in settings)


@pytest.mark.slow
def test_a_study_whose_workers_are_killed_has_the_same_table(tmp_path):
    """Fits, to the bit. A cell that kills whoever runs it is recorded, ends nothing, and is tried again by the next run."""
    settings = [*(Setting(seed, "fits") for seed in range(4)), Setting(4, "dies once"), Setting(5, "dies always")]
    path, count = tmp_path / "there.jsonl", tmp_path / "killed"
    cloudpickle.register_pickle_by_value(test_grid)  # workers have pdcc, but no tests
    try:
        with started(processes=True) as local:
            *there, given_up = run_study(settings, lambda s: cell(s, count), path, dask=local.scheduler_address)
    finally:
        cloudpickle.unregister_pickle_by_value(test_grid)
    assert len(set(count.read_text().split())) >= 3  # processes that died, and one that did what one of them had begun
    assert there == run_study(settings[:-1], cell, tmp_path / "here.jsonl")
    assert given_up["error"].startswith("KilledWorker")
    assert given_up["seed"] == 5
    ran = []

    def mended(setting: Setting) -> dict[str, Any]:
        ran.append(setting)
        return {"name": setting.name}

    assert run_study(settings, mended, path)[:-1] == there
    assert ran == settings[-1:]


def test_a_cell_that_raises_is_recorded_or_else_the_callers(address, tmp_path):
    for number, where in enumerate((None, address)):
        path = tmp_path / f"{number}.jsonl"
        raised, good = run_study([Setting(0, "raises"), Setting(1)], cell, path, dask=where)
        assert raised["error"] == "RuntimeError: never works"
        assert good["memberships"]
        assert len(read_lines(path)) == 2
        with pytest.raises(RuntimeError, match="never works"):
            run_grid([Setting(0, "raises")], cell, lambda r: r["name"], None, dask=where)


def test_calibration_runs_on_the_cluster_too(address):
    def simulate(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        return None, {"mu": rng.normal()}

    def engine(problem: Any, seed: int) -> dict[str, Any]:
        return {"mu": np.random.default_rng(seed).normal(size=20)}

    here, there = (run_sbc(simulate, engine, replicates=6, dask=where) for where in (None, address))
    np.testing.assert_array_equal(here.ranks, there.ranks)
    with pytest.raises(ValueError, match="found none of mu"):
        run_sbc(simulate, lambda problem, seed: {}, replicates=2, dask=address)


def test_workers_with_another_source_are_refused(address, monkeypatch):
    monkeypatch.setattr(on, "_source", lambda: "another")
    with pytest.raises(PairDataError, match="the same pdcc on the scheduler and all workers"):
        run_grid([Setting(0)], cell, lambda r: r["name"], None, dask=address)
    with pytest.raises(PairDataError, match="at a worker"):
        on._run(Setting(0), cell, "mine")


def test_bad_addresses_and_combinations_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(on, "CONNECT_SECONDS", 0.2)
    for wrong in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(PairDataError, match="the address of a running Dask scheduler"):
            run_study([Setting(0)], cell, tmp_path / "s.jsonl", dask=wrong)
    with pytest.raises(ValueError, match="n_jobs: expected 1 beside a Dask cluster, found 2"):
        run_study([Setting(0)], cell, tmp_path / "s.jsonl", n_jobs=2, dask="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PairDataError, match=r"pip install 'pdcc\[scale\]'"):
        run_study([Setting(0)], cell, tmp_path / "s.jsonl", dask="tcp://127.0.0.1:1")
    assert not (tmp_path / "s.jsonl").exists()


@pytest.mark.parametrize("command", [["simulate", "synthetic", "--size", "1"], ["bench", "quick", "--trials", "1"]])
def test_the_commands_hand_the_address_on(command, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([*command, "-o", str(tmp_path / "out"), "--dask", "nonsense://x"])
    assert stopped.value.code == 2
    assert "dask: expected the address of a running Dask scheduler, found 'nonsense://x'" in capsys.readouterr().err
