"""What items look like: texts from a table, thumbnails from a folder, drawn anew so that nothing of a file but its picture is kept."""

import base64
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pdcc.data.item_tables import read_item_table
from pdcc.errors import PairDataError
from pdcc.report.content import Looks

ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")
# Of a thumbnail, in pixels.
SIDE = 72
# All thumbnails together, in characters of the page; the page is to stay below 2 MB.
BUDGET = 900_000
# A larger file is not opened: a thumbnail is not worth the memory.
LARGEST = 50_000_000


def read_looks(names: Sequence[Any], items: Path | None, images: Path | None, *, id_column: str | None = None) -> Looks:
    """Texts and image files of items called ``names`` (N,).

    items: a .csv or .parquet table with the column item or ``id_column`` (ids, or row numbers where items have none) and text, image, or both; images: a folder that
    holds what the column image names or, without that column, files called as the items are.
    """
    texts: dict[int, str] = {}
    files: dict[int, Path] = {}
    rows, table = ([], None) if items is None else _read(items, names, id_column)
    if table is not None and "text" in table:
        texts = {row: text for row, text in zip(rows, table["text"], strict=True) if text.strip()}
    if images is not None:
        folder = _folder(images)
        if table is not None and "image" in table:
            files = _named(rows, table, folder, str(items))
        else:
            there = {p.stem: p for p in sorted(folder.iterdir()) if p.suffix.lower() in ENDINGS}
            files = {row: there[str(name)] for row, name in enumerate(names) if str(name) in there}
        inside = folder.resolve()  # a link must not lead out of the folder
        files = {row: p for row, p in files.items() if p.is_file() and p.resolve().is_relative_to(inside)}
        if not files:
            raise PairDataError(
                str(images),
                "images called as the items are, such as " + f"{names[0]}.png",
                "none of any item",
                "Rename them, or name them in a column image of --items.",
            )
    return Looks(texts, files)


def thumbnails(
    images: Mapping[int, Path | NDArray[np.uint8]], rows: Sequence[int], budget: int = BUDGET
) -> dict[int, str]:
    """Thumbnails as data: addresses by row number, of the first of ``rows`` that the budget (characters) has room for."""
    found: dict[int, str] = {}
    for row in dict.fromkeys(rows):
        drawn = _draw(images[row]) if row in images else None
        if drawn is None:
            continue
        budget -= len(drawn)
        if budget < 0:
            break
        found[row] = drawn
    return found


def _draw(source: Path | NDArray[np.uint8]) -> str | None:
    """A small JPEG of an image as a data: address; None for what cannot be read as an image."""
    from PIL import Image

    try:
        if isinstance(source, Path) and source.stat().st_size > LARGEST:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source) if isinstance(source, Path) else Image.fromarray(source) as image:
                image.draft("RGB", (2 * SIDE, 2 * SIDE))
                image.thumbnail((SIDE, SIDE))
                # Transparent parts become white.
                clear = image.convert("RGBA")
                flat = Image.new("RGB", clear.size, "white")
                flat.paste(clear, mask=clear.getchannel("A"))
    except Exception:  # a damaged or hostile file can make a decoder raise almost anything: it has no picture
        return None
    file = io.BytesIO()
    flat.save(file, format="JPEG", quality=75, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _read(path: Path, names: Sequence[Any], id_column: str | None) -> tuple[list[int], pd.DataFrame]:
    """The row numbers of the items that a table names, and their texts, images, or both."""
    rows, table = read_item_table(path, names, id_column)
    if not {"text", "image"} & set(table.columns):
        found = ", ".join(map(str, table.columns[:8])) or "none"
        raise PairDataError(str(path), "a column text or image", f"the columns {found}", "Name the columns so.")
    if not len(table):
        raise PairDataError(
            str(path), f"items of the run, such as {names[0]}", "none of them", "Use the items' ids or row numbers."
        )
    return rows.tolist(), table


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise PairDataError(str(path), "a folder of images", "none there", "Check the path.")
    return path.resolve()


def _named(rows: list[int], table: pd.DataFrame, folder: Path, source: str) -> dict[int, Path]:
    """Image files by row number; a name that leads out of the folder is refused, not followed."""
    files = {}
    for number, row, name in zip(table.index, rows, table["image"], strict=True):
        if not name.strip():
            continue
        try:
            path = (folder / name).resolve()
        except (ValueError, OSError):
            continue  # no file can be called that
        if not path.is_relative_to(folder):
            raise PairDataError(
                source, f"images inside {folder.name}", repr(name), "Copy the image there.", int(number)
            )
        files[row] = path
    return files
