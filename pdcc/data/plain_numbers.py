"""Large tables of answers that hold nothing but whole numbers, read as columns of them: a cell as a Python object takes ten times its size."""

from pathlib import Path

import numpy as np
import pandas as pd

NAMES = ("i", "j", "similar", "annotator")
# Smaller files are read cell by cell, with all that this can make of them.
LARGE_FILE = 16 * 2**20


def read_plain_numbers(path: Path) -> pd.DataFrame | None:
    """Columns i, j, similar (0 or 1) and, if there, annotator of a large .csv or .parquet file, as numbers; None where it is small or holds anything else."""
    if path.suffix not in (".csv", ".parquet") or not path.is_file() or path.stat().st_size < LARGE_FILE:
        return None
    try:
        if path.suffix == ".csv":
            with path.open("rb") as file:
                names = file.readline().decode("utf-8-sig").strip().split(",")
            if not _known(names):
                return None
            kinds = {name: np.int8 if name == "similar" else np.int64 for name in names}
            frame = pd.read_csv(path, dtype=kinds, skip_blank_lines=False, encoding="utf-8-sig")
        else:
            from pyarrow import parquet

            names = [str(name) for name in parquet.read_schema(path).names]
            if not _known(names):
                return None
            frame = pd.read_parquet(path)
    except Exception:  # whatever it is, who reads cell by cell says what is wrong and where
        return None
    whole = all(kind.kind in "iu" for name, kind in frame.dtypes.items() if name != "similar")
    if not whole or frame["similar"].dtype.kind not in "iub" or not frame["similar"].isin((0, 1)).all():
        return None
    return frame.assign(similar=frame["similar"].to_numpy() == 1)


def _known(names: list[str]) -> bool:
    return len(set(names)) == len(names) and set(NAMES[:3]) <= set(names) <= set(NAMES)
