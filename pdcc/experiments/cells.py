"""methods x tasks x trials, each cell once: a killed run goes on, failures are records like others."""

import contextlib
import functools
import json
import logging
import math
import resource
import sys
import time
import traceback
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.metrics import roc_auc_score

from pdcc import metrics
from pdcc.baselines.rates import two_rates
from pdcc.data.pairs import PairData
from pdcc.estimator import OracleVolMaxDCC
from pdcc.experiments import tasks
from pdcc.experiments.methods import METHODS, NEED_ANNOTATORS, Clusterer, Method
from pdcc.experiments.people import leaves_out
from pdcc.grid.runner import run_grid
from pdcc.storage.journal import read_lines
from pdcc.storage.provenance import package_versions, source_hash

logger = logging.getLogger(__name__)

CELLS = "cells.jsonl"
SCORES = {"acc": metrics.acc, "nmi": metrics.nmi, "ari": metrics.ari}


@dataclass(frozen=True)
class Cell:
    """One method on one trial of one task."""

    task: str
    method: str
    trial: int
    seed: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What identifies it among records."""
        return self.task, self.method, self.trial, self.seed


def plan(names: Iterable[str], methods: Iterable[str], trials: int, seed: int) -> list[Cell]:
    """All cells, trial by trial, so that an interrupted run has complete trials; per-annotator only where there are ids."""
    methods = list(methods)
    return [
        Cell(task, method, trial, seed)
        for trial in range(trials)
        for task in names
        for method in methods
        if not leaves_out(task, method) and (method not in NEED_ANNOTATORS or tasks.has_annotators(task))
    ]


def run_cell(cell: Cell, cache: Path | None = None) -> dict[str, Any]:
    """Fit and score; a method that fails leaves a record that says so."""
    record: dict[str, Any] = {"task": cell.task, "method": cell.method, "trial": cell.trial, "seed": cell.seed}
    problem = tasks.load(cell.task, cell.trial, cell.seed)  # missing data is no failure of a method: it raises
    record |= {"n_items": len(problem.X), "n_pairs": len(problem.pairs), "flip_rate": problem.flip_rate}
    fresh = _reset_peak()
    began = time.perf_counter()
    try:
        # A seed of its own for each trial, shared by the methods, as the data is.
        estimator = make(METHODS[cell.method], problem, 1000 * cell.seed + cell.trial, cache)
        estimator.fit(problem.X, problem.pairs, problem.similar, problem.annotators)
        record |= {"seconds": time.perf_counter() - began, "peak_mb": _peak(fresh)}
        record |= _scores(estimator, problem) | {"status": "done", "message": _chosen(estimator)}
    except Exception as error:
        logger.debug("%s failed", cell, exc_info=True)
        where = traceback.extract_tb(error.__traceback__)[-1]
        record |= {
            "seconds": time.perf_counter() - began, "peak_mb": _peak(fresh), "status": "failed",
            "message": f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})",
        }  # fmt: skip
    return record


def make(method: Method, problem: tasks.Problem, seed: int, cache: Path | None) -> Clusterer:
    """The estimator of a cell; only an oracle is given labelled items to choose by."""
    estimator = method.make(problem.n_clusters, seed, cache)
    if method.oracle:
        if problem.valid is None:
            raise ValueError(
                "valid: expected items with known classes for an oracle to choose by, found none in this task. Leave the oracle out."
            )
        cast(OracleVolMaxDCC, estimator).set_params(oracle=problem.valid)
    return estimator


def _scores(estimator: Clusterer, problem: tasks.Problem) -> dict[str, float]:
    out: dict[str, float] = {}
    sides = [("seen", estimator.labels_, 0)]
    if problem.X_unseen is not None:
        sides.append(("unseen", estimator.predict(problem.X_unseen), 1))
    if problem.truth is not None:
        for side, labels, k in sides:
            out |= {f"{name}_{side}": score(problem.truth[k], labels) for name, score in SCORES.items()}
        if problem.given is not None:
            out["followed"] = metrics.acc(problem.given, estimator.labels_)
            out["annotator_acc"] = metrics.acc(problem.truth[0], problem.given)
    if problem.valid is not None:
        out["acc_valid"] = metrics.acc(problem.valid[1], estimator.predict(problem.valid[0]))
    held_out = getattr(getattr(estimator, "report_", None), "useful", None)
    if held_out is not None and held_out.held_out is not None:
        out["held_out"] = held_out.held_out
    predict_proba = getattr(estimator, "predict_proba", None)
    if problem.memberships is not None and predict_proba is not None:
        for (side, _, k), X in zip(sides, (problem.X, problem.X_unseen), strict=True):
            out[f"mse_{side}"] = metrics.membership_mse(problem.memberships[k], predict_proba(X))
    for name, held in (problem.held or {}).items():
        if len(held.similar) == 0:
            continue
        p = pair_probabilities(estimator, problem, held)
        nll = -np.where(held.similar, np.log(p), np.log1p(-p))
        known = 0 < held.similar.sum() < len(held.similar)
        out[f"log_loss, {name}"] = float(nll.mean())
        out[f"auc, {name}"] = float(roc_auc_score(held.similar, p)) if known else math.nan
    bad = [name for name, value in out.items() if not np.isfinite(value) and not name.startswith("auc")]
    if bad:
        raise ArithmeticError(f"{', '.join(bad)} not finite")
    return {name: float(value) for name, value in out.items()}


def pair_probabilities(estimator: Clusterer, problem: tasks.Problem, held: tasks.Held) -> np.ndarray[Any, Any]:
    """P(called similar), (H,): the method's own where it has one, else by two rates fitted to the training answers."""
    predict_pairs = getattr(estimator, "predict_pairs", None)
    if predict_pairs is not None:
        p = predict_pairs(problem.X, held.pairs, held.annotators)
    else:
        K = problem.n_clusters
        F = getattr(estimator, "memberships_", None)
        F = np.eye(K)[estimator.labels_] if F is None else F
        a, b = two_rates(F, PairData.from_arrays(problem.X, problem.pairs, problem.similar))
        p = b + (a - b) * (F[held.pairs[:, 0]] * F[held.pairs[:, 1]]).sum(axis=1)
    return np.asarray(np.clip(p, 1e-6, 1 - 1e-6))


def _chosen(estimator: Clusterer) -> str:
    report = getattr(estimator, "report_", None)
    if report is None:
        return str(getattr(estimator, "message_", ""))
    chosen = json.dumps(asdict(report.chosen))
    return f"{report.begun}; {chosen}; {report.reason}; {getattr(estimator, 'message_', '')}"


def _reset_peak() -> bool:
    """Forget this process's highest memory use, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False


def _peak(fresh: bool) -> float:
    """Highest resident memory in MB: since ``_reset_peak`` where that worked, else of the process so far."""
    if fresh:
        with contextlib.suppress(OSError, StopIteration, ValueError):
            lines = Path("/proc/self/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def run_bench(
    cells: list[Cell], output: Path, *, n_jobs: int = 1, dask: str | None = None, progress: bool = False
) -> list[dict[str, Any]]:
    """Run what is not on record in ``output`` yet; returns the records of all ``cells``. Failed cells are tried again."""
    path = output / CELLS
    done: dict[Hashable, dict[str, Any]] = {_key(r): r for r in read_lines(path)}
    todo = [cell for cell in cells if done.get(cell.key, {}).get("status") != "done"]
    if len(todo) < len(cells):
        logger.info("%d of %d cells were on record", len(cells) - len(todo), len(cells))
    for task in {tasks.data_of(cell.task): cell.task for cell in todo}.values():
        tasks.load(task, 0)  # say what is missing before anything is run
    cache = output / "pretrained"
    made_by = {"versions": package_versions(), "source": source_hash()}
    older = sum(done[c.key].get("source") != made_by["source"] for c in cells if c not in todo)
    if older:
        logger.warning(
            "%d cells on record were made by another state of the source; they are kept. For new ones, name a new directory.",
            older,
        )

    def stamp(record: dict[str, Any]) -> dict[str, Any]:
        return record | made_by | {"date": date.today().isoformat()}

    def say(record: dict[str, Any]) -> None:
        where = f"{record['task']}, {record['method']}, trial {record['trial']}"
        logger.info("%s: %s in %.0f s", where, record["status"], record["seconds"])

    run = functools.partial(run_cell, cache=cache.absolute())
    done |= run_grid(
        todo, run, _key, path, n_jobs=n_jobs, dask=dask, progress=progress, label="bench", failed=_lost, stamp=stamp, on_record=say
    )  # fmt: skip
    return [done[cell.key] for cell in cells]


def _lost(cell: Cell, error: Exception) -> dict[str, Any]:
    """The record of a cell whose data could not be read where it ran, or whose workers died."""
    return asdict(cell) | {"seconds": 0.0, "status": "failed", "message": f"{type(error).__name__}: {error}"}


def on_record(cells: list[Cell], output: Path) -> list[dict[str, Any]]:
    """The records of those of ``cells`` that were run."""
    done = {_key(r): r for r in read_lines(output / CELLS)}
    if not done:
        raise FileNotFoundError(
            f"{output / CELLS}: expected the records of a run, found none. Run the benchmark first."
        )
    return [done[cell.key] for cell in cells if cell.key in done]


def _key(record: dict[str, Any]) -> tuple[str, str, int, int]:
    return record["task"], record["method"], record["trial"], record["seed"]
