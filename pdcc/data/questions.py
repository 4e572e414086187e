"""Pairs to ask about, from a file: what ``pdcc suggest`` wrote, or any table with two columns that name items."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from pdcc.arrays import Ints
from pdcc.data.columns import listed
from pdcc.data.formats import KNOWN, chosen_columns
from pdcc.data.names import check_ids, look_up
from pdcc.data.reading import as_named
from pdcc.data.tables import Table, load
from pdcc.data.words import text_of
from pdcc.errors import PairDataError
from pdcc.validation import check_pairs


def read_pairs(path: str | Path, n_items: int, item_ids: Collection[Any] | None = None) -> Ints:
    """Row numbers (M, 2) of the pairs in a .csv, .tsv, .txt, .parquet or .json table; other columns than i and j are ignored."""
    file = Path(path)
    table = load(file, KNOWN)
    chosen = chosen_columns(table, {}) if isinstance(table, Table) else {}
    if not isinstance(table, Table) or not {"i", "j"} <= set(chosen):
        found = f"the columns {listed(table.names) or 'none'}" if isinstance(table, Table) else "no table"
        raise PairDataError(str(file), "a table with the columns i and j", found, "Name the columns so.")
    if table.unreadable:
        one = table.unreadable[0]
        raise PairDataError(str(file), "rows of one length", one.found, "Mend these rows.", one.row)
    ends = [[text_of(cell) for cell in table.column(chosen[end])] for end in ("i", "j")]
    for row, pair in enumerate(zip(*ends, strict=True)):
        if not all(pair):
            raise PairDataError(
                str(file), "two items in every row", "an empty cell", "Name both, or drop the row.", row
            )
    if not ends[0]:
        raise PairDataError(str(file), "at least one pair", "none", "Write some: pdcc suggest RUN -o next.csv.")
    named = as_named([*ends[0], *ends[1]], item_ids)
    pairs = np.column_stack([named[: len(ends[0])], named[len(ends[0]) :]])
    if item_ids is None:
        return check_pairs(pairs, n_items)
    return look_up(pairs, check_ids("item_ids", item_ids, n_items), "the features")
