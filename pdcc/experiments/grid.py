"""Studies: settings with names, each a cell of a grid; those on record are not run again."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from pdcc.grid.runner import Record, run_grid
from pdcc.storage.journal import read_lines


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
    dask: str | None = None,
    progress: bool = False,
    label: str = "study",
) -> list[Record]:
    """The records of all settings, those that the journal ``path`` holds without running them again.

    A setting that raises is recorded with its "error" and does not end the study; the next run tries it again.
    """
    done: dict[Hashable, Record] = {row["name"]: row for row in read_lines(path) if "error" not in row}
    todo = [s for s in settings if s.name not in done]
    done |= run_grid(
        todo, run, lambda row: row["name"], path,
        n_jobs=n_jobs, dask=dask, progress=progress, label=label, failed=_failed,
    )  # fmt: skip
    return [done[s.name] for s in settings]


def _failed(setting: Any, error: Exception) -> Record:
    """Data that is not there, or a broken setting, is counted as failed."""
    return asdict(setting) | {"name": setting.name, "error": f"{type(error).__name__}: {error}"}
