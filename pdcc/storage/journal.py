"""Results of long studies: one JSON line each, so that a killed run goes on where it was; tables and figures, written whole or not at all."""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pdcc.storage.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file, less lines that a kill cut off."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            out.append(json.loads(line))
    return out


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Add one record, on a line of its own even after half a line, and wait until it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write_table(path: Path, table: pd.DataFrame) -> None:
    """A CSV without the index."""
    write_atomic(path, table.to_csv(index=False).encode())


def write_figure(path: Path, figure: "Figure | SubFigure") -> None:
    """A PNG of a matplotlib figure."""
    picture = io.BytesIO()
    figure.figure.savefig(picture, dpi=110, format="png")
    write_atomic(path, picture.getvalue())
