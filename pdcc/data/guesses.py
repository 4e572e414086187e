"""What columns of answers seem to be where their names are not known: two names that differ in a mark, words for answers, names that come again."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from pdcc.data.dialect import ANNOTATORS, ANSWERS
from pdcc.data.words import Scale, meanings, number_of, text_of

# What tells the names of two columns of items apart, and by what a third column belongs to them.
MARKS = (
    ("1", "2", r"[0-9]+"), ("a", "b", r"[a-z]"), ("l", "r", r"[a-z]"),
    ("left", "right", r"left|right|middle|cent(er|re)"), ("first", "second", r"first|second|third"),
)  # fmt: skip
APART = "[ _-]?"
# Two columns of these are no items; of people they may be.
NO_ITEMS = frozenset(ANSWERS) | (frozenset(ANNOTATORS) - {"user", "author", "who", "person", "participant", "employee"})
# A column of annotators has at least and at most so many names, each in so many rows.
FEWEST_NAMES, MOST_NAMES, ROWS_PER_NAME = 2, 200, 5


def marked_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """The two columns whose names differ in nothing but a mark such as 1 and 2, where there are just two such and no third one is of their kind."""
    lower = [name.lower() for name in names]
    found = set()
    for place, name in enumerate(lower):
        for one, other, kind in MARKS:
            for before, stem, after in _unmarked(name, one):
                twin = f"{before}{other}{after}"
                family = re.compile(f"{re.escape(before)}({kind}){re.escape(after)}")
                if (
                    stem not in NO_ITEMS
                    and lower.count(twin) == 1
                    and sum(bool(family.fullmatch(n)) for n in lower) == 2
                ):
                    found.add((place, lower.index(twin)))
    if len(found) != 1:
        return None
    first, second = found.pop()
    return names[first], names[second]


def _unmarked(name: str, mark: str) -> list[tuple[str, str, str]]:
    """The name without the mark, as its last or its first part: what is before it, what is left, and what is after it."""
    out = []
    if (last := re.fullmatch(f"(.*?)({APART}){mark}", name)) is not None:
        out.append((last[1] + last[2], last[1], ""))
    if (first := re.fullmatch(f"{mark}({APART})(.+?)", name)) is not None:
        out.append(("", first[2], first[1] + first[2]))
    return out


def column_in_words(names: Sequence[str], columns: Sequence[list[Any]], comma: bool) -> str | None:
    """The one column that holds nothing but words for answers and empty cells; None where there are several, or none."""
    found = [name for name, cells in zip(names, columns, strict=True) if _in_words(_texts(cells), comma)]
    return found[0] if len(found) == 1 else None


def may_be_annotators(cells: list[Any], comma: bool) -> bool:
    """Whether the cells of a column are a few names that come again and again."""
    every = [text for cell in cells if (text := text_of(cell))]
    names = set(every)
    few = FEWEST_NAMES <= len(names) <= MOST_NAMES and len(every) >= ROWS_PER_NAME * len(names)
    return few and not _in_words(names, comma) and any(number_of(text, comma=comma) is None for text in names)


def _texts(cells: list[Any]) -> set[str]:
    return {text for cell in cells if (text := text_of(cell))}


def _in_words(texts: Collection[str], comma: bool) -> bool:
    if any(number_of(text, comma=comma) is not None for text in texts):
        return False
    said = meanings(texts, Scale.PLAIN, comma=comma).values()
    return any(one.degree is not None for one in said) and all(one.trouble is None for one in said)
