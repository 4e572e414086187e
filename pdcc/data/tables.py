"""Tables of answers as files hold them, every cell as it is written: which letters, which delimiter, which rows are whole."""

import csv
import io
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pdcc.data.dialect import DELIMITERS, delimiter_of
from pdcc.data.io import must_exist, read_table
from pdcc.errors import PairDataError

ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".json")
# A longer field is a forgotten quotation mark.
LONGEST_FIELD = 10_000_000


@dataclass(frozen=True)
class Unreadable:
    """A row, counted from 0, that says nothing that could be used: what was found there."""

    row: int
    found: str


@dataclass(frozen=True)
class Table:
    """Columns by name, and the numbers of the rows they have. comma: numbers may have a decimal comma. unreadable: rows of another length."""

    names: tuple[str, ...]
    columns: tuple[list[Any], ...]
    rows: list[int]
    comma: bool = False
    unreadable: list[Unreadable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def place(self, name: str) -> int:
        """Which column has this name."""
        if self.names.count(name) > 1:
            raise PairDataError(
                "pairs table",
                "columns with names of their own",
                f"{name!r} more than once",
                "Rename all but one of them.",
            )
        return self.names.index(name)

    def column(self, name: str) -> list[Any]:
        """The cells of one column."""
        return self.columns[self.place(name)]


def load(path: Path, known: Collection[str]) -> Table | Any:
    """A file as a table, or as what a .json file holds where that is none. ``known``: names, in lower case, by which a header is recognised."""
    must_exist(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise PairDataError(
            str(path), f"a file that ends in {', '.join(ENDINGS)}", f"the ending {path.suffix!r}", "Convert the table."
        )
    if ending == ".parquet":
        return of_frame(read_table(path))
    text, notes = decoded(path)
    if ending != ".json":
        return of_text(text, path, known, notes)
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PairDataError(
            str(path), "a readable .json file", f"one that is not ({error})", "Write it again."
        ) from error
    flat = isinstance(body, list) and body and all(isinstance(row, dict) for row in body)
    if not flat or any(isinstance(row.get(name), dict | list) for row in body for name in ("data", "annotations")):
        return body
    names = tuple(dict.fromkeys(str(name) for row in body for name in row))
    return Table(names, tuple([row.get(name) for row in body] for name in names), list(range(len(body))), notes=notes)


def of_frame(frame: pd.DataFrame) -> Table:
    """A table of pandas."""
    columns = tuple(frame.iloc[:, k].tolist() for k in range(frame.shape[1]))
    return Table(tuple(str(name) for name in frame.columns), columns, list(range(len(frame))))


def decoded(path: Path) -> tuple[str, list[str]]:
    """The text of a file in UTF-8 or UTF-16, with or without a mark of it, or else in Latin-1; and what was guessed."""
    content = path.read_bytes()
    zeros = [content[k::2][:2000].count(0) for k in (0, 1)]
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return content.decode("utf-16"), []
        if max(zeros) > len(content[:4000]) / 4 > min(zeros):  # every second byte of most text in UTF-16
            return content.decode("utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"), ["Read as UTF-16."]
    except UnicodeDecodeError as error:
        raise PairDataError(
            str(path), f"a readable {path.suffix} file", f"one that is not ({error})", "Write it again, in UTF-8."
        ) from error
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return content.decode("latin-1"), ["Not UTF-8: read as Latin-1. Check names with accents."]


def of_text(text: str, path: Path, known: Collection[str], notes: list[str]) -> Table:
    """A table in text; the delimiter is the one by which the header has the most known names, or else the most fields."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    preferred = ("\t", *DELIMITERS) if path.suffix.lower() in (".tsv", ".tab") else DELIMITERS
    delimiter = delimiter_of(first, known, preferred)
    # DURel writes quotation marks of its sentences as they are.
    quoted = not (delimiter == "\t" and {"identifier1", "judgment"} <= {n.strip().lower() for n in first.split("\t")})
    try:
        header, lines = _parsed(text, delimiter, quoted=quoted)
    except csv.Error as error:
        what = f"one that is not ({error})"
        fix = "Close every quotation mark, and double those within a field."
        raise PairDataError(str(path), f"a readable {path.suffix} file", what, fix) from error
    names = tuple(name.strip() for name in header)
    whole = [len(line) == len(names) for line in lines]
    rows = [row for row, good in enumerate(whole) if good]
    words = "{} fields instead of " + str(len(names))
    ragged = [Unreadable(row, words.format(len(lines[row]))) for row, good in enumerate(whole) if not good]
    columns = tuple([lines[row][k] for row in rows] for k in range(len(names)))
    said = {"\t": "tabs", ";": "semicolons", "|": "bars"}.get(delimiter)
    told = [] if said is None or delimiter == preferred[0] else [f"Columns are set apart by {said}."]
    return Table(names, columns, rows, delimiter != ",", ragged, notes + told)


def _parsed(text: str, delimiter: str, *, quoted: bool) -> tuple[list[str], list[list[str]]]:
    """The header and the lines that are not blank. Strict: a forgotten quotation mark must not swallow the rows after it."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        how: dict[str, Any] = {} if quoted else {"quoting": csv.QUOTE_NONE}
        found = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, **how)
        lines = [line for line in found if line and (len(line) > 1 or line[0].strip())]
    finally:
        csv.field_size_limit(before)
    return (lines[0], lines[1:]) if lines else ([], [])
