"""Answers as other tools write them, brought to one form: rows of two items, an answer as it was written and, if known, who gave it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

import numpy as np

from pdcc.arrays import Ints
from pdcc.data.columns import listed
from pdcc.data.dialect import ANNOTATORS, ANSWERS, ENDS
from pdcc.data.guesses import column_in_words, marked_pair, may_be_annotators
from pdcc.data.tables import Table, Unreadable
from pdcc.data.words import Scale, text_of
from pdcc.errors import PairDataError

PARTS = ("i", "j", "similar", "annotator", "weight", "chosen_by", "probability")
KNOWN = frozenset(
    {"task", "comment", "weight", "chosen_by", *ANSWERS, *ANNOTATORS, *(name for pair in ENDS for name in pair)}
)
# What ``pdcc suggest`` writes beside chosen_by that is not for a reader of answers.
SUGGESTED_TOO = ("gain",)
# How splink joins the name of a data set and an id.
JOINED = "-__-"


@dataclass(frozen=True)
class Rows:
    """What was asked and said. parts: columns called i, j, similar and, if known, annotator, weight, chosen_by and probability, cells as they were written.

    rows: their numbers in the file. scale: what numbers among the answers mean; None: as the reader was told. ignored: columns that were not read, but for gain beside chosen_by.
    """

    parts: dict[str, list[Any]]
    rows: list[int]
    unreadable: list[Unreadable]
    notes: list[str] = field(default_factory=list)
    scale: Scale | None = None
    zero_is_unsure: bool = False
    comma: bool = False
    ignored: tuple[str, ...] = ()


def format_of(body: Table | Any) -> tuple[str, str]:
    """Which format this is, and by what it was recognised."""
    if not isinstance(body, Table):
        if isinstance(body, dict) and {"match", "distinct"} & set(body):
            return "dedupe", "the keys match and distinct"
        if isinstance(body, list) and body and isinstance(body[0], dict) and "data" in body[0]:
            return "labelstudio", "tasks with data and annotations"
        raise PairDataError(
            "pairs",
            "a list of rows, training of dedupe, or tasks of Label Studio",
            f"a {type(body).__name__}" + (f" with {listed(map(str, body))}" if isinstance(body, dict) else ""),
            "Export it in one of these forms, or as a table.",
        )
    names = {name.lower() for name in body.names}
    marks = {
        "durel": ("identifier1", "identifier2", "judgment"),
        "splink": ("unique_id_l", "unique_id_r", "clerical_match_score"),
        "crowdkit": ("task", "worker", "label"),
        "labelstudio": ("annotation_id", "lead_time"),
    }
    if not {"i", "j", "similar"} <= names:
        for name, marked in marks.items():
            if set(marked) <= names:
                return name, f"the columns {', '.join(marked)}"
    return "csv", "its columns"


def from_table(table: Table, columns: Mapping[str, str], besides: tuple[str, ...] = ()) -> Rows:
    """A table with a row for each answer; ``columns`` says which column is i, j, similar, annotator, weight or chosen_by, where that is no guess.

    besides: columns of the format that are read elsewhere, and not ignored.
    """
    chosen = _with_guesses(table, chosen_columns(table, columns))
    missing = [part for part in ("i", "j", "similar") if part not in chosen]
    if missing:
        raise PairDataError(
            "pairs table",
            "the columns i, j, similar and optionally annotator, weight and chosen_by",
            f"the columns {listed(table.names) or 'none'}",
            f"Add {', '.join(missing)}, or say which columns they are: --columns i=left,j=right,similar=answer (columns=... in Python).",
        )
    guessed = [f"{part} is {name!r}" for part, name in chosen.items() if part not in columns and name != part]
    notes = [*table.notes, *([f"Columns: {', '.join(guessed)}."] if guessed else [])]
    besides = (*chosen.values(), *besides, *(SUGGESTED_TOO if "chosen_by" in chosen else ()))
    if ignored := tuple(name for name in table.names if name not in besides):
        notes.append(f"Columns that are ignored: {listed(ignored)}.{_who(table, ignored, chosen)}")
    parts = {part: table.column(name) for part, name in chosen.items()}
    return Rows(parts, table.rows, table.unreadable, notes, comma=table.comma, ignored=ignored)


def chosen_columns(table: Table, columns: Mapping[str, str]) -> dict[str, str]:
    """Which column is i, j, similar, annotator, weight, chosen_by and, beside it, probability: as told, or the first of the names they usually have."""
    for part, name in columns.items():
        if name not in table.names:
            raise PairDataError(
                "columns",
                f"columns of the table for {part}",
                f"{name!r}, which is not among {listed(table.names)}",
                "Name one that is.",
            )
    by_lower = {name.lower(): name for name in reversed(table.names)}
    free = {lower: name for lower, name in by_lower.items() if name not in columns.values()}
    chosen = dict(columns)
    ends = next((pair for pair in ENDS if set(pair) <= set(free)), ())
    if not {"i", "j"} & set(columns):
        chosen |= {part: free[name] for part, name in zip(("i", "j"), ends, strict=False)}
    taken = set(chosen.values())
    for part, names in (("similar", ANSWERS), ("annotator", ANNOTATORS), *((name, (name,)) for name in PARTS[4:])):
        found = next((free[name] for name in names if name in free and free[name] not in taken), None)
        if part not in chosen and found is not None:
            chosen[part] = found
            taken.add(found)
    if "chosen_by" not in chosen:  # a probability of its own may be of anything
        chosen.pop("probability", None)
    return {part: chosen[part] for part in PARTS if part in chosen}


def _with_guesses(table: Table, chosen: dict[str, str]) -> dict[str, str]:
    """The columns as chosen, and the items' and the answers' by what they look like where no name of theirs is known."""
    out = dict(chosen)
    if not {"i", "j"} & set(out):
        pair = marked_pair([name for name in table.names if name not in out.values()])
        out |= {} if pair is None else dict(zip(("i", "j"), pair, strict=True))
    if "similar" not in out and {"i", "j"} <= set(out):
        rest = [
            (name, cells) for name, cells in zip(table.names, table.columns, strict=True) if name not in out.values()
        ]
        found = column_in_words([name for name, _ in rest], [cells for _, cells in rest], table.comma)
        out |= {} if found is None else {"similar": found}
    return {part: out[part] for part in PARTS if part in out}


def _who(table: Table, ignored: tuple[str, ...], chosen: dict[str, str]) -> str:
    """Where nobody is known to have answered: which of the ignored columns may say so."""
    if "annotator" in chosen:
        return ""
    cells = dict(zip(table.names, table.columns, strict=True))
    names = [name for name in ignored if may_be_annotators(cells[name], table.comma)]
    if not names:
        return ""
    which = repr(names[0]) if len(names) == 1 else f"one of {listed(map(repr, names))}"
    told = quote(f"annotator={names[0] if len(names) == 1 else 'NAME'}")
    return f" If {which} names who answered: --columns {told}."


def from_durel(table: Table, columns: Mapping[str, str]) -> Rows:
    """Judgments of DURel and WUG: grades from 1 to 4, and 0 for "cannot decide"."""
    found = from_table(table, columns)
    notes = [*found.notes, "Judgments are grades from 1, unrelated, to 4, identical: taken as (grade - 1) / 3."]
    return Rows(found.parts, found.rows, found.unreadable, notes, Scale.GRADES, True, found.comma, found.ignored)


def from_splink(table: Table, columns: Mapping[str, str], ids: set[str] | None) -> Rows:
    """Labels of splink: scores from 0 to 1, and items that data sets and ids name together where there are several data sets."""
    lower = {name.lower(): name for name in table.names}
    sets = tuple(lower[name] for name in ("source_dataset_l", "source_dataset_r") if name in lower)
    both = len(sets) == 2
    found = from_table(table, columns, sets if both else ())
    parts, notes = dict(found.parts), list(found.notes)
    if both:
        homes = [[text_of(v) for v in table.column(name)] for name in sets]
        joined = [
            [f"{home}{JOINED}{text_of(end)}" for home, end in zip(side, parts[part], strict=True)]
            for side, part in zip(homes, ("i", "j"), strict=True)
        ]
        named = {name for side in joined for name in side}
        several = len({home for side in homes for home in side}) > 1
        if several if ids is None else bool(named & ids):
            parts["i"], parts["j"] = joined
            notes.append(f"Items are named by data set and id, as {joined[0][0]!r}.")
        else:
            notes.append(f"Items are named by id alone, without {sets[0]} and {sets[1]}.")
    return Rows(parts, found.rows, found.unreadable, notes, Scale.UNIT, False, found.comma, found.ignored)


def from_crowd_kit(table: Table, columns: Mapping[str, str], max_pairs: int, seed: int) -> Rows:
    """Labels of single items by workers: two items that one worker labelled are an answer of that worker, "same" where the labels are.

    At most ``max_pairs`` of them, drawn at random. Rows are those of the answers, not of the file.
    """
    lower = {name.lower(): name for name in reversed(table.names)}
    wanted = {"i": "task", "annotator": "worker", "similar": "label"}
    names = {part: columns.get(part, lower.get(name, name)) for part, name in wanted.items()}
    if missing := [name for name in names.values() if name not in table.names]:
        raise PairDataError(
            "pairs table",
            "the columns task, worker and label",
            f"the columns {listed(table.names)}",
            f"Add {', '.join(missing)}.",
        )
    task, worker, label = (table.column(names[part]) for part in ("i", "annotator", "similar"))
    bad = list(table.unreadable)
    for row, cells in zip(table.rows, zip(task, worker, label, strict=True), strict=True):
        if empty := [name for name, cell in zip(wanted.values(), cells, strict=True) if not text_of(cell)]:
            bad.append(Unreadable(row, f"no {', no '.join(empty)}"))
    lost = {one.row for one in bad}
    whole = [k for k, row in enumerate(table.rows) if row not in lost]
    numbers: dict[str, list[int]] = {}
    for k in whole:
        numbers.setdefault(text_of(worker[k]), []).append(k)
    groups = [np.array(rows) for rows in numbers.values()]
    first, second, total = _within(groups, max_pairs, seed)
    notes = [*table.notes, f"{len(whole)} labels by {len(groups)} workers: two items of one worker are an answer."]
    if total > len(first):
        notes.append(f"Drew {len(first)} of {total} such pairs (seed {seed}; max_pairs).")
    if ignored := [name for name in table.names if name not in names.values()]:
        notes.append(f"Columns that are ignored: {listed(ignored)}.")
    same = [text_of(label[a]) == text_of(label[b]) for a, b in zip(first, second, strict=True)]
    parts: dict[str, list[Any]] = {
        "i": [task[k] for k in first],
        "j": [task[k] for k in second],
        "similar": ["same" if s else "different" for s in same],
        "annotator": [worker[k] for k in first],
    }
    return Rows(parts, list(range(len(first))), bad, notes)


def _within(groups: list[Ints], most: int, seed: int) -> tuple[Ints, Ints, int]:
    """Pairs of members of one group, all of them or ``most`` drawn at random, and how many there are."""
    sizes = np.array([len(g) * (len(g) - 1) // 2 for g in groups], dtype=np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    drawn = (
        np.arange(total) if total <= most else np.sort(np.random.default_rng(seed).choice(total, most, replace=False))
    )
    group = np.searchsorted(ends, drawn, side="right")
    within = drawn - (ends - sizes)[group]
    # The number of a pair a < b is b (b - 1) / 2 + a; the root may be off by rounding.
    b = ((1 + np.sqrt(1 + 8 * within.astype(np.float64))) / 2).astype(np.int64)
    b -= b * (b - 1) // 2 > within
    b += (b + 1) * b // 2 <= within
    a = within - b * (b - 1) // 2
    starts = np.concatenate([[0], np.cumsum([len(g) for g in groups])]).astype(np.int64)
    members = np.concatenate(groups) if groups else np.zeros(0, dtype=np.int64)
    return members[starts[group] + a], members[starts[group] + b], total
