"""Answers that other tools write as JSON: training of dedupe, and projects of Label Studio."""

from collections.abc import Mapping
from typing import Any

from pdcc.data.columns import listed
from pdcc.data.dialect import ENDS
from pdcc.data.formats import Rows
from pdcc.data.tables import Unreadable
from pdcc.data.words import text_of
from pdcc.errors import PairDataError

# Fields of records that may name an item, where nobody says which one does.
ID_FIELDS = ("id", "unique_id", "record_id", "_id")


def from_dedupe(body: Any, id_field: str | None) -> Rows:
    """Training of dedupe: pairs of records that match, and that are distinct; a field of the records names the items."""
    if not isinstance(body, dict):
        raise PairDataError(
            "pairs",
            "an object with match and distinct",
            f"a {type(body).__name__}",
            "Write it with dedupe's write_training.",
        )
    words = {"match": "match", "distinct": "distinct", "uncertain": "unsure", "unsure": "unsure"}
    notes = (
        [f"Keys that are ignored: {listed(others)}."] if (others := [str(k) for k in body if k not in words]) else []
    )
    lists = {key: revived(body[key]) or [] for key in body if key in words}
    for key, found in lists.items():
        if not isinstance(found, list):
            raise PairDataError(
                "pairs",
                f"a list of pairs under {key!r}",
                f"a {type(found).__name__}",
                "Write it with dedupe's write_training.",
            )
    pairs = [(words[key], revived(pair)) for key, found in lists.items() for pair in found]
    good, bad = [], []
    for row, (word, pair) in enumerate(pairs):
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(record, dict) for record in pair):
            good.append((row, word, pair))
        else:
            bad.append(Unreadable(row, f"not two records, but {pair!r:.60}"))
    records = [record for _, _, pair in good for record in pair]
    name = id_field
    if name is None:
        name = next((f for f in ID_FIELDS if records and all(f in record for record in records)), None)
        notes += [] if name is None else [f"Items are named by the field {name!r} of the records."]
    fields = dict.fromkeys(str(f) for record in records for f in record)
    if records and (name is None or name not in fields):
        raise PairDataError(
            "id field",
            "the field of the records that names the item",
            f"{'none' if id_field is None else repr(id_field)}; the records have {listed(fields)}",
            "Name it: --id-field id (id_field='id' in Python).",
        )
    parts: dict[str, list[Any]] = {
        "i": [pair[0].get(name) for _, _, pair in good],
        "j": [pair[1].get(name) for _, _, pair in good],
        "similar": [word for _, word, _ in good],
    }
    return Rows(parts, [row for row, _, _ in good], bad, notes)


def revived(value: Any) -> Any:
    """What dedupe writes for a tuple or a set, {"__class__": "tuple", "__value__": [...]}, as a list; anything else as it is."""
    marked = isinstance(value, dict) and {"__class__", "__value__"} == set(value)
    return value["__value__"] if marked else value


def from_label_studio(body: Any, columns: Mapping[str, str]) -> Rows:
    """Label Studio's JSON: tasks with two items in their data, and annotations that choose one word; one row for each annotation."""
    tasks = body if isinstance(body, list) else []
    bad_task = next(
        (n for n, t in enumerate(tasks) if not (isinstance(t, dict) and isinstance(t.get("data"), dict))), None
    )
    if not tasks or bad_task is not None:
        raise PairDataError(
            "pairs",
            "a list of tasks with data and annotations",
            "another form",
            "Export the project as JSON.",
            bad_task,
        )
    names, notes = _data_fields(tasks, columns)
    parts: dict[str, list[Any]] = {"i": [], "j": [], "similar": [], "annotator": []}
    rows, bad, alone = [], [], 0
    row = 0
    for task in tasks:
        given = task.get("annotations", task.get("completions")) or []
        given = given if isinstance(given, list) else [given]
        alone += not given
        for annotation in given:
            said, trouble = _choice(annotation, columns.get("similar"))
            if trouble is not None:
                bad.append(Unreadable(row, trouble))
            else:
                by = annotation.get("completed_by")
                by = by.get("email") or by.get("id") if isinstance(by, dict) else by
                ends = [task["data"].get(name) for name in names]
                for part, value in zip(parts, (*ends, said, by), strict=True):
                    parts[part].append(value)
                rows.append(row)
            row += 1
    if alone:
        notes.append(f"{alone} task(s) without an annotation.")
    if not any(text_of(by) for by in parts["annotator"]):
        del parts["annotator"]
    return Rows(parts, rows, bad, notes)


def _data_fields(tasks: list[Any], columns: Mapping[str, str]) -> tuple[tuple[str, str], list[str]]:
    """The two fields of the data that name the items, and what was guessed."""
    fields = dict.fromkeys(str(f) for task in tasks for f in task["data"])
    if {"i", "j"} <= set(columns):
        names = columns["i"], columns["j"]
        if all(name in fields for name in names):
            return names, []
    else:
        lower = {name.lower(): name for name in fields}
        guess = next((pair for pair in ENDS if set(pair) <= set(lower)), None)
        if guess is None and len(fields) == 2:
            one, other = lower
            guess = one, other
        if guess is not None:
            found = lower[guess[0]], lower[guess[1]]
            ignored = [name for name in fields if name not in found]
            notes = [f"Data fields: i is {found[0]!r}, j is {found[1]!r}."]
            return found, notes + ([f"Data fields that are ignored: {listed(ignored)}."] if ignored else [])
    raise PairDataError(
        "columns",
        "the two fields of the tasks' data that name the items",
        f"the fields {listed(fields)}",
        "Name them: --columns i=left,j=right (columns={'i': 'left', 'j': 'right'} in Python).",
    )


def _choice(annotation: Any, control: str | None) -> tuple[str, str | None]:
    """The word that an annotation chose, empty where it has none, and what is wrong with it; ``control``: which question counts."""
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result") or [], list):
        return "", f"not an annotation, but {annotation!r:.60}"
    if annotation.get("was_cancelled"):
        return "skipped", None
    results = [r for r in annotation.get("result") or [] if isinstance(r, dict) and isinstance(r.get("value"), dict)]
    asked = [r for r in results if "choices" in r["value"] and control in (None, r.get("from_name"))]
    if len(asked) > 1:
        return (
            "",
            f"{len(asked)} questions, {listed(str(r.get('from_name')) for r in asked)}: name one, similar=..., in columns",
        )
    if not asked:
        return "", None
    choices = asked[0]["value"]["choices"]
    if not isinstance(choices, list) or len(choices) != 1:
        return "", f"not one choice, but {choices!r:.60}"
    return text_of(choices[0]), None
