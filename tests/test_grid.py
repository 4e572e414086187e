"""The one runner of grids: the same records by processes and on a Dask cluster, where workers die and cells fail."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdcc import VolMaxDCC
from pdcc.criticism.sbc import run_sbc
from pdcc.errors import PairDataError
from pdcc.experiments.grid import run_study
from pdcc.grid import cluster as on
from pdcc.grid.runner import run_grid
from pdcc.storage.journal import read_lines

distributed = pytest.importorskip("distributed")


@dataclass(frozen=True)
class Setting:
    """What a cell of these tests is: ``does`` says how it goes wrong, if it does."""

    seed: int
    does: str = "fits"

    @property
    def name(self) -> str:
        return f"{self.does}-{self.seed}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two processes, which gives a cell up when it has killed two of them."""
    import cloudpickle
    import dask
    import test_grid

    cloudpickle.register_pickle_by_value(test_grid)  # workers have pdcc, but no tests
    quick = {"distributed.scheduler.allowed-failures": 1, "distributed.comm.timeouts.connect": "10s"}
    with (
        dask.config.set(quick),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, memory_limit=0
        ) as local,
    ):
        yield local.scheduler_address
    cloudpickle.unregister_pickle_by_value(test_grid)


def small_fit(setting: Setting, killed: Path | None = None) -> dict[str, Any]:
    """A fit, unless the setting says that it fails, or that its process dies: the first time only, where ``killed`` keeps count."""
    if setting.does == "raises":
        raise RuntimeError("never works")
    if setting.does == "dies" and killed is not None:
        with killed.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if setting.seed < 0 or len(killed.read_text().split()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    rng = np.random.default_rng(abs(setting.seed))
    X, pairs = rng.normal(size=(40, 2)) + 4 * (np.arange(40) % 2)[:, None], rng.integers(0, 40, (60, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    est = VolMaxDCC(2, hidden=(4,), epochs=2, confusion="rates", volume=0.0, random_state=0, progress=False)
    est.fit(X, pairs, pairs[:, 0] % 2 == pairs[:, 1] % 2)
    return {"name": setting.name, "memberships": est.memberships_.ravel().tolist()}


def test_a_study_whose_worker_is_killed_has_the_same_table(address, tmp_path):
    settings = [Setting(seed, "dies" if seed == 2 else "fits") for seed in range(6)]
    here = run_study(settings, small_fit, tmp_path / "here.jsonl")
    count = tmp_path / "killed"
    there = run_study(settings, lambda s: small_fit(s, count), tmp_path / "there.jsonl", dask=address)
    assert len(set(count.read_text().split())) == 2  # one process died of it, another did it
    assert there == here
    order = [row["name"] for row in read_lines(tmp_path / "there.jsonl")]
    assert sorted(order) == sorted(s.name for s in settings)


def test_a_cell_that_kills_all_its_workers_is_recorded_and_tried_again(address, tmp_path):
    settings, path, count = [Setting(0), Setting(-1, "dies"), Setting(1, "raises")], tmp_path / "s.jsonl", tmp_path / "k"
    good, dies, raises = run_study(settings, lambda s: small_fit(s, count), path, dask=address)
    assert len(good["memberships"]) == 80
    assert dies["error"].startswith("KilledWorker")
    assert dies["seed"] == -1
    assert raises["error"] == "RuntimeError: never works"
    ran = []

    def mended(setting: Setting) -> dict[str, Any]:
        ran.append(setting)
        return {"name": setting.name}

    again = run_study(settings, mended, path)
    assert ran == settings[1:]
    assert again[0] == good
    assert not any("error" in row for row in again)


def test_without_a_record_for_failures_an_error_is_the_callers(address):
    for dask in (None, address):
        with pytest.raises(RuntimeError, match="never works"):
            run_grid([Setting(0, "raises")], small_fit, lambda r: r["name"], None, dask=dask)


def test_calibration_runs_on_the_cluster_too(address):
    def simulate(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
        return None, {"mu": rng.normal()}

    def engine(problem: Any, seed: int) -> dict[str, Any]:
        return {"mu": np.random.default_rng(seed).normal(size=20)}

    here, there = (run_sbc(simulate, engine, replicates=6, dask=dask) for dask in (None, address))
    np.testing.assert_array_equal(here.ranks, there.ranks)
    with pytest.raises(ValueError, match="found none of mu"):
        run_sbc(simulate, lambda problem, seed: {}, replicates=2, dask=address)


def test_workers_with_another_source_are_refused(address, monkeypatch):
    monkeypatch.setattr(on, "_source", lambda: "another")
    with pytest.raises(PairDataError, match="the same pdcc on the scheduler and all workers"):
        run_grid([Setting(0)], small_fit, lambda r: r["name"], None, dask=address)
    with pytest.raises(PairDataError, match="at a worker"):
        on._run(Setting(0), small_fit, "mine")


def test_bad_addresses_and_combinations_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(on, "CONNECT_SECONDS", 0.2)
    for wrong in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(PairDataError, match="the address of a running Dask scheduler"):
            run_study([Setting(0)], small_fit, tmp_path / "s.jsonl", dask=wrong)
    with pytest.raises(ValueError, match="n_jobs: expected 1 beside a Dask cluster, found 2"):
        run_study([Setting(0)], small_fit, tmp_path / "s.jsonl", n_jobs=2, dask="tcp://127.0.0.1:1")
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(PairDataError, match=r"pip install 'pdcc\[scale\]'"):
        run_study([Setting(0)], small_fit, tmp_path / "s.jsonl", dask="tcp://127.0.0.1:1")
    assert not (tmp_path / "s.jsonl").exists()
