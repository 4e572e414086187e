"""One runner for grids of cells: each once, in processes, on record as soon as it is done; a killed run goes on."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from joblib import Parallel, delayed
from tqdm.auto import tqdm

from pdcc.inference.isolation import one_thread
from pdcc.storage.journal import append_line, read_lines

Cell = TypeVar("Cell")
Record = dict[str, Any]


def run_grid(
    todo: Sequence[Cell],
    run: Callable[[Cell], Record],
    key: Callable[[Record], Hashable],
    path: Path,
    *,
    n_jobs: int = 1,
    progress: bool = False,
    label: str = "grid",
    stamp: Callable[[Record], Record] | None = None,
    on_record: Callable[[Record], None] | None = None,
) -> dict[Hashable, Record]:
    """The records of the cells ``todo``, by key, each appended to the journal ``path`` when its process hands it over.

    ``stamp`` adds to a record before it is written; ``on_record`` is called with it afterwards.
    """
    found: dict[Hashable, Record] = {}
    results = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(delayed(_pinned)(run, cell) for cell in todo)
    for record in tqdm(results, total=len(todo), desc=label, disable=not progress):
        record = record if stamp is None else stamp(record)
        append_line(path, record)
        found[key(record)] = record
        if on_record is not None:
            on_record(record)
    return found


def _pinned(run: Callable[[Cell], Record], cell: Cell) -> Record:
    with one_thread():
        return run(cell)


class Named(Protocol):
    """A dataclass whose ``name`` is unique in its study."""

    @property
    def name(self) -> str: ...


def run_study(
    settings: Sequence[Named],
    run: Callable[[Any], Record],
    path: Path,
    *,
    n_jobs: int = 1,
    progress: bool = False,
    label: str = "study",
) -> list[Record]:
    """The records of all settings, those that the journal ``path`` holds without running them again.

    A setting that raises is recorded with its "error" and does not end the study; the next run tries it again.
    """
    done: dict[Hashable, Record] = {row["name"]: row for row in read_lines(path) if "error" not in row}
    todo = [s for s in settings if s.name not in done]
    safely = partial(_safely, run)
    done |= run_grid(todo, safely, lambda row: row["name"], path, n_jobs=n_jobs, progress=progress, label=label)
    return [done[s.name] for s in settings]


def _safely(run: Callable[[Any], Record], setting: Any) -> Record:
    try:
        return run(setting)
    except Exception as error:  # data that is not there, or a broken setting, is counted as failed
        return asdict(setting) | {"name": setting.name, "error": f"{type(error).__name__}: {error}"}
