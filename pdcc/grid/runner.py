"""One runner for grids of cells, in processes of this machine or on a Dask cluster; a killed run goes on from its journal."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from joblib import Parallel, delayed
from tqdm.auto import tqdm

from pdcc.errors import expect
from pdcc.grid.cluster import on_cluster
from pdcc.inference.isolation import one_thread
from pdcc.storage.journal import append_line

Cell = TypeVar("Cell")
Record = dict[str, Any]


def run_grid(
    todo: Sequence[Cell],
    run: Callable[[Cell], Record],
    key: Callable[[Record], Hashable],
    path: Path | None,
    *,
    n_jobs: int = 1,
    dask: str | None = None,
    progress: bool = False,
    label: str = "grid",
    failed: Callable[[Cell, Exception], Record] | None = None,
    stamp: Callable[[Record], Record] | None = None,
    on_record: Callable[[Record], None] | None = None,
) -> dict[Hashable, Record]:
    """The records of the cells ``todo``, by key, each appended to the journal ``path`` when its process hands it over.

    dask: the address of a scheduler whose workers run the cells, in place of ``n_jobs`` processes here.
    failed: the record of a cell that raised, or whose Dask workers died again and again; without it, such a cell ends the run.
    ``stamp`` adds to a record before it is written; ``on_record`` is called with it afterwards.
    """
    expect(dask is None or n_jobs == 1, "n_jobs", "1 beside a Dask cluster", n_jobs, "The cluster has its own workers.")
    found: dict[Hashable, Record] = {}
    if not todo:
        return found
    task = partial(_attempt, run, failed)
    results: Iterator[Record]
    if dask is None:
        results = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(delayed(task)(cell) for cell in todo)
    else:
        results = on_cluster(dask, task, todo, failed)
    for record in tqdm(results, total=len(todo), desc=label, disable=not progress):
        record = record if stamp is None else stamp(record)
        if path is not None:
            append_line(path, record)
        found[key(record)] = record
        if on_record is not None:
            on_record(record)
    return found


def _attempt(run: Callable[[Cell], Record], failed: Callable[[Cell, Exception], Record] | None, cell: Cell) -> Record:
    try:
        with one_thread():
            return run(cell)
    except Exception as error:
        if failed is None:
            raise
        return failed(cell, error)
