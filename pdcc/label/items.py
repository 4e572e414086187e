"""What people see of each item: text, columns of a table, an image of a folder."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.data.item_tables import read_item_table
from pdcc.errors import PairDataError

# How the files begin that browsers show as pictures and that cannot hold a script; SVG can, and is not among them.
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".avif")
LARGEST_IMAGE = 64 * 2**20
MOST_COLUMNS = 40


@dataclass(frozen=True)
class Items:
    """N items by row number: their ids (N,), the cells of a table (N rows, all of them text), and files in a folder (N,)."""

    ids: tuple[str, ...]
    cells: pd.DataFrame | None = None
    folder: Path | None = None
    files: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each id."""
        return {name: row for row, name in enumerate(self.ids)}

    def shown(self, row: int) -> dict[str, Any]:
        """What a page shows of one item: "text", "fields" as [name, value], and "image", an address."""
        cells = [] if self.cells is None else list(zip(self.cells.columns, self.cells.iloc[row], strict=True))
        text = next((value for name, value in cells if name == "text" or len(cells) == 1), None)
        fields = [] if len(cells) == 1 else [[name, value] for name, value in cells if name != "text"]
        return {"text": text, "fields": fields, "image": None if self.files is None else f"images/{row}"}

    def image(self, row: int) -> tuple[bytes, str] | None:
        """The content and the type of an item's image; None where it is not there, or not one, or leads out of the folder."""
        if self.folder is None or self.files is None or not 0 <= row < len(self):
            return None
        try:
            home = self.folder.resolve(strict=True)
            path = (home / self.files[row]).resolve(strict=True)
            if home not in path.parents or not path.is_file():
                return None
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(handle, "rb") as file:
                content = file.read(LARGEST_IMAGE + 1)
        except (OSError, RuntimeError):  # a chain of links without an end is a RuntimeError
            return None
        kind = image_type(content)
        return None if kind is None or len(content) > LARGEST_IMAGE else (content, kind)


def image_type(content: bytes) -> str | None:
    """The media type that the first bytes of a file tell, whatever its name says."""
    begins = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF87a": "gif", b"GIF89a": "gif", b"BM": "bmp"}
    for start, kind in begins.items():
        if content.startswith(start):
            return f"image/{kind}"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if content[4:12] in (b"ftypavif", b"ftypavis") else None


def item_names(ids: Sequence[Any] | None, n_items: int) -> tuple[str, ...]:
    """The ids (N,) as text, as they are written to a table; row numbers where there are none."""
    names = tuple(map(str, range(n_items) if ids is None else ids))
    missing = np.zeros(len(names), bool) if ids is None else pd.isna(np.asarray(ids, dtype=object))
    if missing.any():
        row = int(missing.argmax())
        raise PairDataError("ids", "an id for each item", "an empty cell", "Name every item.", row)
    if len(names) < 2:
        raise PairDataError("features", "at least two items", f"{len(names)}", "One item makes no pair.")
    again = pd.Series(names).duplicated()
    if again.any():
        row = int(again.to_numpy().argmax())
        raise PairDataError("ids", "ids that differ as text", f"{names[row]!r} again", "Make the ids unique.", row)
    return names


def read_cells(path: Path, names: Sequence[str], id_column: str | None) -> pd.DataFrame:
    """The other columns of a table whose column ``item`` (or the id column) names the items, as text in the order of ``names`` (N,)."""
    rows, table = read_item_table(path, names, id_column)
    lost = np.setdiff1d(np.arange(len(names)), rows)
    if len(lost):
        found = f"{len(lost)} that are not in it, such as {names[lost[0]]!r}"
        raise PairDataError(str(path), "all of the items", found, "Add what is to be shown of them.", int(lost[0]))
    return as_cells(table.iloc[np.argsort(rows)], str(path))


def as_cells(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The columns of a table as text."""
    if not 1 <= len(table.columns) <= MOST_COLUMNS:
        raise PairDataError(
            name,
            f"1 to {MOST_COLUMNS} columns to show",
            f"{len(table.columns)}",
            "Say what people are to see of an item: --items TABLE with fewer columns, or --images FOLDER.",
        )
    return table.astype(object).where(table.notna(), "").map(str).rename(columns=str).reset_index(drop=True)


def find_images(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The name of each item's file in ``folder``: its id, or its id and an ending (N,)."""
    if not folder.is_dir():
        raise PairDataError("--images", "a folder", f"{folder}, which is none", "Check the path.")
    by_name: dict[str, str] = {}
    for entry in sorted(os.listdir(folder)):
        stem, suffix = os.path.splitext(entry)
        if suffix.lower() in SUFFIXES:
            by_name[entry] = entry
            other = by_name.setdefault(stem, entry)
            if other != entry and stem in (wanted := set(names)) and entry not in wanted:
                raise PairDataError("--images", "one file for each id", f"{other} and {entry}", "Move one elsewhere.")
    for row, name in enumerate(names):
        if name not in by_name:
            found = f"none for {name!r}"
            fix = f"Put it there as {name}.png, or with another ending: {', '.join(SUFFIXES)}."
            raise PairDataError(f"--images {folder}", "an image of each item", found, fix, row)
    return tuple(by_name[name] for name in names)
