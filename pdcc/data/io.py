"""Files in: features and tables from .npy, .npz, .csv and .parquet; answers are read by ``pdcc.data.reading``. Nothing read here can run code."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import load_npz

from pdcc.arrays import Features
from pdcc.data.columns import listed
from pdcc.data.dialect import check_no_answers, delimiter_in, with_decimal_commas
from pdcc.data.parquet import read_large_parquet
from pdcc.errors import PairDataError
from pdcc.rows import is_large


def read_table(path: str | Path, *, keep: str | None = None) -> pd.DataFrame:
    """A .csv or .parquet file as a table; numbers may have decimal commas, but in the column ``keep``, where commas set nothing apart."""
    path = Path(path)
    must_exist(path)
    try:
        if path.suffix == ".csv":
            delimiter = delimiter_in(path)
            table = pd.read_csv(path, sep=delimiter)
            return table if delimiter == "," else with_decimal_commas(table, keep)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
    except ImportError as error:
        raise PairDataError(
            str(path), "a parquet reader", "none installed", "Install one: pip install 'pdcc[parquet]'."
        ) from error
    except Exception as error:  # pandas' and pyarrow's parse errors are ValueErrors; a damaged file can raise others
        raise PairDataError(
            str(path), f"a readable {path.suffix} file", f"one that is not ({str(error).strip()})", "Write it again."
        ) from error
    raise PairDataError(str(path), "a .csv or .parquet file", f"the ending {path.suffix!r}", "Convert the table.")


def read_features(
    path: str | Path, *, id_column: str | None = None, beside: Path | None = None
) -> tuple[Features, NDArray[Any] | None]:
    """Features (N, d), sparse where the file is, and as a table where the file names their columns, and, where ``id_column`` names one, the items' ids (N,).

    What is too large to be copied is mapped: a .npy as it is, a .parquet once it is converted, beside the run ``beside`` or else the table.
    """
    path = Path(path)
    must_exist(path)
    if path.suffix == ".parquet" and (mapped := read_large_parquet(path, id_column, beside)) is not None:
        return mapped
    if path.suffix in (".csv", ".parquet"):
        table = read_table(path, keep=id_column)
        if not len(table.columns):
            raise PairDataError(str(path), "at least one column", "none", "Check how the table was written.")
        if str(table.columns[0]) == "Unnamed: 0":
            raise PairDataError(
                str(path),
                "features and at most a named id column",
                "a first column without a name, as pandas writes its index",
                "Write it again with index=False, or name the column and pass it as the id column.",
            )
        check_no_answers(path, table)
        if id_column is None:
            return table, None
        if id_column not in table.columns:
            raise PairDataError(
                "id column",
                f"a column of {path.name}",
                f"{id_column!r}, which is not among {listed(map(str, table.columns))}",
                "Name one that is.",
            )
        return table.drop(columns=id_column), table[id_column].to_numpy(dtype=object)
    if id_column is not None:
        raise PairDataError(
            "id column",
            "features in a .csv or .parquet table",
            f"a {path.suffix} file, which has no columns",
            "Leave the id column out and use row numbers.",
        )
    if path.suffix not in (".npy", ".npz"):
        raise PairDataError(
            str(path), "a .npy, .npz, .csv or .parquet file", f"the ending {path.suffix!r}", "Convert the features."
        )
    try:
        if path.suffix == ".npy" and is_large((8 * path.stat().st_size,)):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if is_large(array.shape):
                return array, None
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded, None
            names = loaded.files
            if {"format", "shape", "data"} <= set(names):  # as scipy.sparse.save_npz writes it
                matrix: Any = load_npz(path)
                return matrix, None
            if len(names) == 1 or "X" in names:
                return loaded["X" if "X" in names else names[0]], None
    except Exception as error:  # a damaged file can make numpy and zipfile raise almost anything, MemoryError included
        raise PairDataError(
            str(path),
            "a plain numeric array",
            f"a file that is not one ({str(error) or type(error).__name__})",
            "Save it with np.save; object arrays are refused, since they can run code.",
        ) from error
    raise PairDataError(
        str(path),
        "one array, or one called X",
        f"{', '.join(names) or 'none'}",
        "Save the features alone, or under the name X.",
    )


def must_exist(path: Path) -> None:
    """Raise ``PairDataError`` where there is no such file."""
    if not path.is_file():
        raise PairDataError(str(path), "a file", "none there", "Check the path.")
