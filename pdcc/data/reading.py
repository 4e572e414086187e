"""Answers from files, in our form or another tool's: what was guessed is said, what has no opinion is set aside, what cannot be read is named."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pdcc.arrays import Ints
from pdcc.data.chosen import is_known, word_of
from pdcc.data.columns import listed
from pdcc.data.formats import (
    KNOWN,
    PARTS,
    Rows,
    format_of,
    from_crowd_kit,
    from_durel,
    from_splink,
    from_table,
)
from pdcc.data.plain_numbers import read_plain_numbers
from pdcc.data.records import from_dedupe, from_label_studio
from pdcc.data.tables import Table, Unreadable, load
from pdcc.data.words import (
    DIFFERENT,
    GRADED,
    NO_WORD,
    SAME,
    Said,
    Scale,
    counted,
    meanings,
    number_of,
    off_scale,
    scale_of,
    text_of,
)
from pdcc.errors import PairDataError
from pdcc.notebook import as_paragraphs, as_table
from pdcc.validation import check_count, check_one_of

FORMATS = ("csv", "dedupe", "splink", "durel", "crowdkit", "labelstudio")
UNSURE = ("drop", "half")
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
# So many rows are shown of a long list.
SHOWN = 5
MAX_PAIRS = 50_000


@dataclass(frozen=True, eq=False)
class ReadAnswers:
    """Answers out of a file; ``fit`` takes it in the place of pairs and answers.

    frame: columns i, j, similar and, if known, annotator, weight, chosen_by and probability; similar is bool, or a probability where ``soft``. unsure: answers without
    an opinion, with the row they had; with unsure="half" they are in the frame too. unreadable: rows that could not be read,
    and why. notes: sentences that say what was guessed or left out. n_rows: how many rows there were. rows: the row of each answer of the
    frame, counted as those are; of crowdkit, whose labels make an answer by twos, the number of the answer. ignored: columns that were not read, but for gain beside chosen_by.

    Examples:
        >>> import pathlib, tempfile
        >>> from pdcc import read_answers
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "answers.csv"
        >>> _ = path.write_text("left;right;answer;who said it\\n0;1;Yes;ann\\n1;2;no;bob\\n0;2;unsure;ann\\n")
        >>> read = read_answers(path, columns={"annotator": "who said it"})
        >>> read.frame.similar.tolist(), read.frame.annotator.tolist()
        ([True, False], ['ann', 'bob'])
        >>> print(*read.notes, sep="\\n")
        Columns are set apart by semicolons.
        Columns: i is 'left', j is 'right', similar is 'answer'.
        1 answer is 'unsure': kept out of the likelihood.
    """

    frame: pd.DataFrame
    unsure: pd.DataFrame
    unreadable: pd.DataFrame
    notes: tuple[str, ...]
    format: str
    soft: bool
    n_rows: int
    rows: Ints
    ignored: tuple[str, ...]

    def __str__(self) -> str:
        counts = (
            f"{len(self.frame)} answers, {len(self.unsure)} unsure, {len(self.unreadable)} unreadable ({self.format})"
        )
        return "\n".join([counts, *self.notes])

    def _repr_html_(self) -> str:
        """The same words and the first answers, for notebooks."""
        return as_paragraphs(str(self)) + as_table(self.frame.head(SHOWN))


def read_answers(
    path: str | Path,
    format: str = "auto",
    columns: Mapping[str, str] | str | None = None,
    *,
    soft: bool = False,
    unsure: str = "drop",
    id_field: str | None = None,
    item_ids: Collection[Any] | None = None,
    skip_unreadable: bool = False,
    max_pairs: int = MAX_PAIRS,
    random_state: int = 0,
) -> ReadAnswers:
    """Read answers from .csv, .tsv, .txt, .parquet or .json.

    Args:
        format: "csv" (any table with a row for each answer), "dedupe" (training JSON), "splink" (labels), "durel" (judgments), "crowdkit"
            (task, worker, label), "labelstudio" (JSON or CSV export); "auto" recognises it.
        columns: which columns are i, j, similar, annotator, weight and chosen_by: a mapping, or "i=left,j=right,similar=answer".
        soft: take numbers as degrees, from 0 to 1 or grades from 1 to 4. unsure: "drop" leaves answers without an opinion out of the
            likelihood, "half" makes each a soft answer of 0.5.
        id_field: dedupe's: the field of the records that names the item (the id column's name will do). item_ids: (N,) what the items are called, to match names by how they
            are written.
        skip_unreadable: leave out rows that cannot be read, and list them; else they are an error.
        max_pairs, random_state: crowdkit's: at most so many pairs, drawn with that seed.

    Examples:
        >>> import pathlib, tempfile
        >>> from pdcc import read_answers
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "answers.csv"
        >>> _ = path.write_text("i,j,similar\\n0,1,same\\n1,2,different\\n0,2,?\\n")
        >>> read = read_answers(path, unsure="half")
        >>> read.frame.similar.tolist(), read.soft
        ([1.0, 0.0, 0.5], True)
    """
    check_one_of("format", format, ("auto", *FORMATS))
    check_one_of("unsure", unsure, UNSURE)
    check_count("max_pairs", max_pairs)
    check_count("random_state", random_state, 0)
    told = named_columns(columns)
    file = Path(path)
    if format in ("auto", "csv") and not told and not soft and item_ids is None:
        plain = read_plain_numbers(file)
        if plain is not None:
            none, rows = pd.DataFrame({"row": [], "found": []}), np.arange(len(plain))
            return ReadAnswers(plain, plain[:0], none, (), "csv", False, len(plain), rows, ())
    body = load(file, KNOWN | {name.lower() for name in told.values()})
    kind, notes = format, []
    if format == "auto":
        kind, by = format_of(body)
        notes = [] if kind == "csv" else [f"Format: {kind}, by {by}."]
    texts = None if item_ids is None else {text_of(name) for name in item_ids}
    found = _rows(body, kind, told, id_field, texts, max_pairs, random_state)
    notes = [*notes, *found.notes]
    answers = [text_of(value) for value in found.parts["similar"]]
    scale, taken_as = found.scale or Scale.PLAIN, None
    if soft and found.scale is None:
        scale, taken_as = scale_of(answers, comma=found.comma)
    notes += [] if taken_as is None else [taken_as]
    _check_scale(file, answers, found, scale)
    said = meanings(answers, scale, comma=found.comma, zero_is_unsure=found.zero_is_unsure)
    parts = {
        name: [text_of(v) for v in column] if name != "similar" else answers for name, column in found.parts.items()
    }
    troubles = _troubles(parts, said, found)
    bad = sorted([*found.unreadable, *troubles], key=lambda one: one.row)
    n_rows = len(found.rows) + len(found.unreadable)
    if bad and not skip_unreadable:
        raise _error(file, bad, n_rows, [(a, said[a]) for a in answers])
    lost = {one.row for one in troubles}
    good = [k for k, row in enumerate(found.rows) if row not in lost]
    notes += begun([answers[k] for k in good], said)
    frame = _frame(found, parts, said, good, item_ids)
    frame.insert(0, "row", [found.rows[k] for k in good])
    without = np.array([said[answers[k]].unsure for k in good], dtype=bool)
    # Some tools write a question that nobody was shown as a row without an answer and an annotator.
    asked = ~without | frame["annotator"].notna().to_numpy() if "annotator" in frame else np.ones(len(good), dtype=bool)
    aside = frame[without].assign(similar=[answers[k] for k, none in zip(good, without, strict=True) if none])
    notes += _told(aside[asked[without]]["similar"].tolist(), int((~asked).sum()), unsure)
    if bad:
        notes.append(f"{len(bad)} of {n_rows} rows cannot be read and were left out: {_listed(bad)}.")
    taken = asked if unsure == "half" else ~without
    kept = frame.drop(columns="row")[taken]
    by_degrees = scale is not Scale.PLAIN or bool(without[taken].any())
    kept = kept.assign(similar=kept["similar"].fillna(0.5) if by_degrees else kept["similar"] == 1)
    listing = pd.DataFrame({"row": [one.row for one in bad], "found": [one.found for one in bad]})
    rows = frame["row"].to_numpy(dtype=np.int64)[taken]
    return ReadAnswers(
        kept.reset_index(drop=True), aside.reset_index(drop=True), listing, tuple(notes), kind, by_degrees, n_rows, rows, found.ignored
    )  # fmt: skip


def named_columns(columns: Mapping[str, str] | str | None) -> dict[str, str]:
    """Which column is which: a mapping, or text such as "i=left,j=right,similar=answer"."""
    how = f"name=column, several of them apart by commas, names among {', '.join(PARTS)}"
    if columns is None:
        return {}
    if not isinstance(columns, Mapping | str):
        raise TypeError(
            f"columns: expected a mapping or text such as 'i=left,j=right', found {columns!r}. Pass one of these."
        )
    pairs = (
        list(columns.items()) if isinstance(columns, Mapping) else [p.partition("=")[::2] for p in columns.split(",")]
    )
    out: dict[str, str] = {}
    for part, name in pairs:
        if part not in PARTS or not name or part in out or name in out.values():
            raise PairDataError("columns", how, f"{part}={name}", "Name every part and every column once.")
        out[part] = name
    return out


def _rows(
    body: Table | Any,
    kind: str,
    columns: dict[str, str],
    id_field: str | None,
    ids: set[str] | None,
    most: int,
    seed: int,
) -> Rows:
    fits = kind != "dedupe" if isinstance(body, Table) else kind in ("dedupe", "labelstudio")
    if not fits:
        raise PairDataError(
            "format",
            f"what {kind} writes",
            "a table" if isinstance(body, Table) else "a .json file that is no table",
            'Name another format, or leave it "auto".',
        )
    if kind == "dedupe":
        return from_dedupe(body, id_field)
    if not isinstance(body, Table):
        return from_label_studio(body, columns)
    if kind == "crowdkit":
        return from_crowd_kit(body, columns, most, seed)
    if kind == "splink":
        return from_splink(body, columns, ids)
    return from_durel(body, columns) if kind == "durel" else from_table(body, columns)


def _check_scale(file: Path, answers: list[str], found: Rows, scale: Scale) -> None:
    """Raise ``PairDataError`` for numbers above 1 where 1 would be taken as "the same", whatever may be left out."""
    off = off_scale(answers, scale, comma=found.comma)
    if off is None:
        return
    above, fix = off
    raise PairDataError(
        f"{file}, similar",
        "words, 0 and 1, or -1 and 1; or, with --soft, probabilities from 0 to 1 or grades from 1 to 4",
        f"the numbers {listed(map(repr, dict.fromkeys(above)))}, beside which 1 may not mean the same",
        fix,
        found.rows[next(k for k, text in enumerate(answers) if text in above)],
    )


def _troubles(parts: dict[str, list[str]], said: dict[str, Said], found: Rows) -> list[Unreadable]:
    """Rows with a cell that cannot be used, and which."""
    out = []
    for k, row in enumerate(found.rows):
        answer = said[parts["similar"][k]]
        needed = ("i", "j") if answer.unsure else ("i", "j", "annotator")
        wrong = [f"{name}: an empty cell" for name in needed if name in parts and not parts[name][k]]
        if answer.trouble is not None:
            wrong.append(f"similar: {parts['similar'][k]!r:.60}, {answer.trouble}")
        if "weight" in parts and (parts["weight"][k] or not answer.unsure):
            number = number_of(parts["weight"][k], comma=found.comma)
            if number is None or number < 0:
                wrong.append(f"weight: {parts['weight'][k]!r:.60}, not a number of at least 0")
        if "chosen_by" in parts and not is_known(parts["chosen_by"][k]):
            wrong.append(f"chosen_by: {parts['chosen_by'][k]!r:.60}, neither random nor suggested")
        if wrong:
            out.append(Unreadable(row, "; ".join(wrong)))
    return out


def begun(answers: list[str], said: dict[str, Said]) -> list[str]:
    """What is said of answers that were read by their beginning."""
    texts = Counter(text for text in answers if said[text].by_beginning)
    words = [f"{text!r:.60} as {'same' if said[text].degree else 'different'}" for text, _ in texts.most_common()]
    return [f"Read by their beginning: {listed(words, SHOWN)}."] if words else []


def _told(without: list[str], unasked: int, unsure: str) -> list[str]:
    """What is said of answers without an opinion, and of questions that nobody answered."""
    notes = []
    if without:
        fate = "kept out of the likelihood" if unsure == "drop" else "each taken as 0.5"
        notes.append(
            f"{'1 answer is' if len(without) == 1 else f'{len(without)} answers are'} {counted(without)}: {fate}."
        )
    if unasked:
        notes.append(f"{unasked} row(s) with neither an answer nor an annotator: kept out of the likelihood.")
    return notes


def _listed(bad: list[Unreadable]) -> str:
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return "; ".join(f"row {one.row}, {one.found}" for one in bad[:SHOWN]) + more


def _error(path: Path, bad: list[Unreadable], n_rows: int, answers: list[tuple[str, Said]]) -> PairDataError:
    """What is wrong with the rows; ``answers``: each as it was written, and what it comes to."""
    strange = [text for text, said in answers if said.trouble == NO_WORD]
    fixes = []
    if strange:
        fixes.append(
            f"Not words for an answer: {counted(strange, most=SHOWN)}. Words that are: {', '.join(SAME[:5])}, ...; {', '.join(DIFFERENT[:5])}, ...; unsure, skip, ... . Write these, or name the column of the answers: --columns similar=NAME (columns=... in Python)."
        )
    if any(said.trouble == GRADED for _, said in answers):
        fixes.append("Take graded answers, from 0 to 1 or from 1 to 4, by degrees with --soft (soft=True in Python).")
    if len(bad) < n_rows and any(said.degree is not None for _, said in answers):
        either = "Or mend" if fixes else "Mend"
        fixes.append(f"{either} these rows, or leave them out with --skip-unreadable (skip_unreadable=True in Python).")
    what = f"{len(bad)} that cannot: {_listed(bad)}"
    return PairDataError(
        str(path), f"{n_rows} rows that can be read", what, " ".join(fixes or ["Mend these rows."]), bad[0].row
    )


def _frame(
    found: Rows, parts: dict[str, list[str]], said: dict[str, Said], good: list[int], item_ids: Collection[Any] | None
) -> pd.DataFrame:
    """The rows ``good`` as a table: i, j, similar (a degree, nan for none) and, if known, annotator, weight, chosen_by and probability."""
    raw = {name: [found.parts[name][k] for k in good] for name in found.parts}
    ends = as_named(raw["i"] + raw["j"], item_ids)
    degrees = np.array([said[parts["similar"][k]].degree for k in good], dtype=np.float64)
    table: dict[str, Any] = {"i": ends[: len(good)], "j": ends[len(good) :], "similar": degrees}
    if "annotator" in raw:
        table["annotator"] = _annotators([parts["annotator"][k] for k in good])
    if "weight" in raw:
        # Only who has no opinion may leave the weight out: it is then the usual one.
        weights = [number_of(parts["weight"][k] or "1", comma=found.comma) for k in good]
        table["weight"] = np.array(weights, dtype=np.float64)
    if "chosen_by" in raw:
        table["chosen_by"] = [word_of(parts["chosen_by"][k]) for k in good]
    if "probability" in raw:
        chances = [number_of(parts["probability"][k], comma=found.comma) for k in good]
        table["probability"] = np.array(chances, dtype=np.float64)  # nan where it is not known
    return pd.DataFrame(table)


def as_named(values: list[Any], item_ids: Collection[Any] | None) -> NDArray[Any]:
    """Both ends of all pairs: ids as ``item_ids`` has them where they are written alike, else whole numbers where all are, else text."""
    texts = [text_of(value) for value in values]
    if item_ids is None:
        return _column(texts)
    by_text = {text_of(name): name for name in item_ids}
    numbers = {name for name in item_ids if isinstance(name, int | np.integer)}
    out = []
    for text in texts:
        number = int(text) if WHOLE.fullmatch(text) else None
        out.append(by_text.get(text, number if number in numbers else text))
    return _objects(out)


def _column(texts: list[str]) -> NDArray[Any]:
    """Whole numbers where all of them are, numbers where all are, else text."""
    if all(WHOLE.fullmatch(text) for text in texts):
        return np.array([int(text) for text in texts], dtype=np.int64)
    if all(number_of(text, comma=False) is not None for text in texts):
        return np.array([float(text) for text in texts])
    return _objects(texts)


def _annotators(texts: list[str]) -> NDArray[Any]:
    """Names as they are written; whole numbers where all of them are and are written as usual. None for an empty one."""
    numbers = all(WHOLE.fullmatch(text) and str(int(text)) == text for text in texts if text)
    return _objects([None if not text else int(text) if numbers else text for text in texts])


def _objects(values: list[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
