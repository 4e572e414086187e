"""A large Parquet table of features, converted once, some rows at a time, to an array in a file that is mapped."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pdcc.arrays import Ints
from pdcc.data.columns import listed
from pdcc.data.dialect import check_no_answers
from pdcc.errors import PairDataError
from pdcc.frames import check_frame
from pdcc.rows import is_large, precision
from pdcc.storage.files import HOST, file_hash, remove_leftovers

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class MappedTable:
    """A table of numbers (N, d) in a mapped file, with the names of its columns; ``table[rows]`` is an array, ``table[names]`` a table.

    order: (d,) which columns of the file these are, or None for all as they are.
    """

    array: NDArray[Any]
    columns: tuple[str, ...]
    order: Ints | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        return len(self.array), len(self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers in the file."""
        return self.array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, list) and all(isinstance(name, str) for name in which):
            places = np.array([self.columns.index(name) for name in which], dtype=np.int64)
            return replace(self, columns=tuple(which), order=places if self.order is None else self.order[places])
        part = self.array[which]
        return part if self.order is None else part[..., self.order]


def read_large_parquet(
    path: Path, id_column: str | None, beside: Path | None
) -> tuple[MappedTable, NDArray[Any] | None] | None:
    """The features of a Parquet file, mapped, and the items' ids (N,); None for a table that is small enough to be read as a whole.

    The array is kept beside the directory ``beside`` (a run), or beside the table, under a name that carries the table's hash: it is made once.
    """
    try:
        from pyarrow import parquet

        opened = parquet.ParquetFile(path)
    except (
        Exception
    ):  # no reader, or a damaged file, which can raise anything: who reads it as a whole says what is wrong
        return None
    with opened as file:
        names = [str(name) for name in file.schema_arrow.names]
        wanted = [name for name in names if name != id_column]
        if not is_large((file.metadata.num_rows, max(1, len(wanted)))):
            return None
        if id_column is not None and id_column not in names:
            raise PairDataError(
                "id column", f"a column of {path.name}", f"{id_column!r}, which is not among {listed(names)}", "Name one that is.",
            )  # fmt: skip
        ids = None if id_column is None else file.read(columns=[id_column]).column(0).to_pandas().to_numpy(dtype=object)
        home = path if beside is None else beside
        target = home.with_name(f"{home.name}-features-{file_hash(path)[:12]}.npy")
        if not target.exists():
            _convert(file, path, wanted, target)
    return MappedTable(np.load(target, mmap_mode="r", allow_pickle=False), tuple(wanted)), ids


def _convert(file: Any, path: Path, columns: Sequence[str], target: Path) -> None:
    """Write the columns of an open Parquet file to ``target``, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    partial = target.with_name(f".pdcc-{HOST}-{os.getpid()}-{target.stem}.partial")
    shape = (file.metadata.num_rows, len(columns))
    begin, out = 0, None
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
            frame: pd.DataFrame = batch.to_pandas()
            if out is None:
                check_no_answers(path, frame)
                kinds = [precision(kind) for kind in frame.dtypes if isinstance(kind, np.dtype)]
                kind = np.result_type(*kinds) if kinds else np.dtype(np.float64)
                out = np.lib.format.open_memmap(partial, mode="w+", dtype=kind, shape=shape)
            try:
                check_frame(frame)
            except PairDataError as error:
                raise error if error.row is None else error.at(error.row + begin) from error
            out[begin : begin + len(frame)] = frame.to_numpy(dtype=out.dtype)
            begin += len(frame)
        if out is not None:
            out.flush()
        del out
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
