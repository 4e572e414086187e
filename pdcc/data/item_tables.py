"""Tables of what is known of each item, for people and machines to see: cells as they are written, rows found by the items' ids."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.arrays import Ints
from pdcc.data.dialect import delimiter_in
from pdcc.data.io import must_exist, read_table
from pdcc.data.words import number_of, text_of
from pdcc.errors import PairDataError

ITEM = "item"
# Exact, where floating point would take two long ids for one.
WHOLE = re.compile(r"[+-]?[0-9]{1,200}")


def read_item_table(path: Path, names: Sequence[Any], id_column: str | None = None) -> tuple[Ints, pd.DataFrame]:
    """Row numbers (n,) of the items of a .csv or .parquet table whose column ``item`` (or ``id_column``) names items called ``names`` (N,), and its other columns as text.

    The table's index is the row in the file; rows about other items are left out. An id is matched as it is written ("007" is not "7")
    or, where all of ``names`` are numbers that differ, by its number: tables of numbers lose their zeros elsewhere.
    """
    table = _as_written(path)
    column = next((c for c in (ITEM, id_column) if c is not None and c in table.columns), None)
    if column is None:
        wanted = f"a column {ITEM}" if id_column is None else f"a column {ITEM} or {id_column}"
        found = ", ".join(map(str, table.columns[:8]))
        raise PairDataError(str(path), wanted, f"the columns {found}", "Name each item by its id or row number.")
    rows = np.array(matched([text_of(cell) for cell in table[column]], names), dtype=np.int64)
    again = pd.Series(rows).duplicated().to_numpy() & (rows >= 0)
    if again.any():
        row = int(again.argmax())
        found = f"{str(table[column].iloc[row])!r} again"
        raise PairDataError(str(path), "each item once", found, "Drop one of the rows.", row)
    return rows[rows >= 0], table.drop(columns=column)[rows >= 0]


def matched(texts: Sequence[str], names: Sequence[Any]) -> list[int]:
    """The row number in ``names`` (N,) of each of the texts; -1 for those that name no item."""
    written = [text_of(name) for name in names]
    by_text = {name: row for row, name in enumerate(written)}
    by_number = {_number(name): row for row, name in enumerate(written)}
    if None in by_number or len(by_number) < len(written):
        by_number = {}
    return [by_text.get(text, by_number.get(_number(text), -1)) for text in texts]


def _number(text: str) -> int | float | None:
    return int(text) if WHOLE.fullmatch(text) else number_of(text, comma=False)


def _as_written(path: Path) -> pd.DataFrame:
    """A table whose cells are all text, as a person wrote them: "007", "1.50" and "NA" are not 7, 1.5 and nothing."""
    if path.suffix != ".csv":
        table = read_table(path)
        return table.astype(object).where(table.notna(), "").map(text_of).rename(columns=str)
    must_exist(path)
    try:
        return pd.read_csv(path, sep=delimiter_in(path), dtype=str, keep_default_na=False).rename(columns=str)
    except Exception as error:  # pandas' parse errors are ValueErrors; a damaged file can raise others
        raise PairDataError(
            str(path), "a readable .csv file", f"one that is not ({str(error).strip()})", "Write it again."
        ) from error
