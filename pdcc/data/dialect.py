"""How a table is written: what its columns are called, what sets them apart, and whether it is one of answers."""

import csv
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pandas as pd

from pdcc.data.words import Scale, meanings, number_of, text_of
from pdcc.errors import PairDataError

DELIMITERS = (",", ";", "\t", "|")
# The header of a table is within so many bytes.
BEGINNING = 1 << 20

# Names of columns, best first. What is called i, j, similar, annotator, weight and chosen_by is not a guess.
ENDS = (
    ("i", "j"), ("left", "right"), ("item1", "item2"), ("item_1", "item_2"), ("id_l", "id_r"), ("id1", "id2"), ("id_1", "id_2"),
    ("left_id", "right_id"), ("id_left", "id_right"), ("item_a", "item_b"), ("id_a", "id_b"), ("a", "b"),
    ("first", "second"), ("first_id", "second_id"), ("item1_id", "item2_id"), ("item_left", "item_right"), ("source", "target"),
    ("identifier1", "identifier2"), ("unique_id_l", "unique_id_r"),
)  # fmt: skip
ANSWERS = (
    "similar",
    "answer",
    "label",
    "judgment",
    "judgement",
    "same",
    "choice",
    "response",
    "match",
    "decision",
    "verdict",
    "clerical_match_score",
    "is_same",
    "is_match",
)
ANNOTATORS = (
    "annotator",
    "worker",
    "rater",
    "user",
    "author",
    "who",
    "person",
    "participant",
    "annotator_id",
    "worker_id",
    "rater_id",
    "user_id",
    "reviewer",
    "labeler",
    "labeller",
    "rated_by",
    "answered_by",
    "annotated_by",
    "employee",
)


def delimiter_of(text: str, known: Collection[str] = (), preferred: Sequence[str] = DELIMITERS) -> str:
    """What sets the columns of a header apart: that by which it has the most of the ``known`` names, in lower case, or else the most fields."""
    first = next((line for line in text.splitlines() if line.strip()), "")

    def score(delimiter: str) -> tuple[int, int]:
        try:
            names = next(csv.reader([first], delimiter=delimiter, strict=True), [])
        except csv.Error:
            return -1, 0
        return sum(name.strip().lower() in known for name in names), len(names)

    return max(preferred, key=score)


def delimiter_in(path: Path) -> str:
    """What sets the columns of a .csv file apart."""
    with path.open("rb") as file:
        return delimiter_of(file.read(BEGINNING).decode("latin-1"))


def with_decimal_commas(table: pd.DataFrame, keep: str | None = None) -> pd.DataFrame:
    """The table of a file where commas set nothing apart: columns of numbers such as 1,5 as numbers, but the column ``keep`` as it is."""
    out = table.copy(deep=False)
    for name in table.columns:
        cells = table[name]
        if name == keep or pd.api.types.is_numeric_dtype(cells.dtype):
            continue
        there = cells.notna()
        numbers = [number_of(str(cell).strip(), comma=True) for cell in cells[there]]
        if numbers and None not in numbers:
            out[name] = pd.Series(numbers, index=cells.index[there], dtype=float).reindex(cells.index)
    return out


def check_no_answers(path: Path, table: pd.DataFrame) -> None:
    """Raise ``PairDataError`` where a table of features can only be one of answers."""
    names = columns_of_answers(table.columns)
    if not names or table.columns.tolist().count(names[2]) > 1:
        return
    cells = table[names[2]]
    words = meanings({text_of(cell) for cell in cells}, Scale.PLAIN, comma=False).values()
    in_words = not pd.api.types.is_numeric_dtype(cells.dtype) and all(said.trouble is None for said in words)
    # Left, right and label may well be features where they are numbers.
    if in_words or names == ("i", "j", "similar"):
        raise answers_instead(path, names)


def columns_of_answers(columns: Iterable[str]) -> tuple[str, ...]:
    """The two columns that seem to name items and the one that seems to hold answers; none where one of them is missing."""
    lower = {str(name).lower(): str(name) for name in columns}
    ends = next((pair for pair in ENDS if set(pair) <= set(lower)), None)
    answer = next((name for name in ANSWERS if name in lower), None)
    return () if ends is None or answer is None else tuple(lower[name] for name in (*ends, answer))


def answers_instead(path: Path, names: Sequence[str]) -> PairDataError:
    """The error that a table of answers was given for one of features."""
    found = f"the columns {', '.join(names)}, as of a table of answers"
    fix = "FEATURES come first, then PAIRS: pdcc fit features.csv answers.csv."
    return PairDataError(str(path), "features, one row per item", found, fix)
