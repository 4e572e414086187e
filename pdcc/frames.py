"""Tables of features: columns that are not numbers, and empty cells, are named before an array hides them."""

import numbers
from typing import Any

import numpy as np
import pandas as pd

from pdcc.arrays import first_row
from pdcc.errors import PairDataError

# So many columns are named one by one.
SHOWN = 20


def check_frame(frame: pd.DataFrame) -> None:
    """Raise ``PairDataError`` unless every column of a table (N, d) holds numbers, and no cell is empty."""
    columns = [(str(name), frame.iloc[:, k]) for k, name in enumerate(frame.columns)]
    odd = {name: found for name, cells in columns if (found := _first_odd(cells)) is not None}
    if odd:
        shown = ", ".join(f"{name!r} ({value!r:.40})" for name, (_, value) in list(odd.items())[:SHOWN])
        more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
        what = "column that is not" if len(odd) == 1 else "columns that are not"
        raise PairDataError(
            "X",
            "columns of numbers",
            f"{len(odd)} {what}: {shown}{more}",
            "Drop them, or encode them as numbers (pd.get_dummies does); if one names the items, make it the index of X (Python) or say so with --id-column (shell).",
            min(row for row, _ in odd.values()),
        )
    empty = {name: first_row(gaps) for name, cells in columns if (gaps := cells.isna().to_numpy()).any()}
    if empty:
        shown = ", ".join(f"{name!r} (row {row})" for name, row in list(empty.items())[:SHOWN])
        more = f" and {len(empty) - SHOWN} more" if len(empty) > SHOWN else ""
        rows = int(frame.isna().to_numpy().any(axis=1).sum())
        raise PairDataError(
            "X",
            "finite numbers",
            f"NaN, a missing value, in {rows} row(s), in the column(s) {shown}{more}",
            "Impute them, or drop those columns or items (and the pairs that name them).",
            min(empty.values()),
        )


def _first_odd(cells: "pd.Series[Any]") -> tuple[int, Any] | None:
    """The row and value of the first cell that is there and is not a number, or None; text that spells none comes before text that does."""
    if pd.api.types.is_numeric_dtype(cells.dtype):  # bool is; complex is refused elsewhere
        return None
    spelled = None
    for row, value in enumerate(cells.tolist()):
        missing = value is None or value is pd.NA or value is pd.NaT
        if missing or isinstance(value, numbers.Real | np.bool_):
            continue
        if not (isinstance(value, str) and _spells_number(value)):
            return row, value
        spelled = (row, value) if spelled is None else spelled
    return spelled


def _spells_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
