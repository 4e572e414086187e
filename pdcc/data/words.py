"""How people write an answer: words and numbers for "same", "different" and "no opinion", and what each of them comes to."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

SAME = (
    "same", "yes", "similar", "match", "true", "y", "t", "must-link", "must link", "must_link", "mustlink",
    "ja", "oui", "si", "s\N{LATIN SMALL LETTER I WITH ACUTE}",
)  # fmt: skip
DIFFERENT = (
    "different", "no", "dissimilar", "distinct", "false", "n", "f", "cannot-link", "cannot link", "cannot_link", "cannotlink",
    "nein", "non",
)  # fmt: skip
# An empty cell is how most tools write a question that was skipped.
UNSURE = (
    "", "unsure", "not sure", "uncertain", "undecided", "unknown", "skip", "skipped", "?", "-", "don't know", "dont know",
    "do not know", "idk", "cannot decide", "can't decide", "cant decide", "can not decide", "na", "n/a", "nan", "null", "none",
)  # fmt: skip
# What two items may be said to be. No spelling, name or place: one firm may have several.
KINDS = (
    "topics?", "subjects?", "themes?", "persons?", "people", "individuals?", "entity", "entities", "identity", "identities", "items?", "objects?",
    "things?", "records?", "documents?", "texts?", "images?", "pictures?", "products?", "company", "companies", "firms?", "organi[sz]ations?",
    "events?", "species", "class", "classes", "clusters?", "groups?", "category", "categories", "segments?", "types?", "kinds?", "meanings?", "senses?",
)  # fmt: skip
# What may follow a word for an answer. Anything else may turn the sense round, as in "match failed", "same (unlikely)" and "similar in nothing".
HARMLESS = rf"(:? both)?( ({'|'.join(KINDS)}))?( enough| found)?[.!]?"
# Texts that begin with an answer, such as "Same topic" and "not the same".
SAYS_SAME = re.compile(rf"(same|similar|match|matching){HARMLESS}")
SAYS_DIFFERENT = re.compile(
    rf"(different|dissimilar|distinct|(not|no)( the| a)? (same|similar|match|matching)( at all)?){HARMLESS}"
)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
# The grades of DURel: 1 unrelated, 2 distantly related, 3 closely related, 4 identical.
LOWEST, HIGHEST = 1, 4


class Scale(StrEnum):
    """What numbers mean."""

    PLAIN = "0 and 1, or -1 and 1"
    UNIT = "from 0 to 1"
    GRADES = "from 1 to 4"


@dataclass(frozen=True)
class Said:
    """What an answer comes to: ``degree`` in [0, 1]; or else ``unsure``, or what is wrong with it, ``trouble``. by_beginning: it is no word for an answer, but begins with one."""

    degree: float | None = None
    trouble: str | None = None
    by_beginning: bool = False

    @property
    def unsure(self) -> bool:
        """No opinion."""
        return self.degree is None and self.trouble is None


GRADED, NO_WORD = "a graded answer", "not a word for an answer"


def text_of(value: Any) -> str:
    """A cell of any table as the text that a file would hold; a missing one is empty."""
    if isinstance(value, str):
        return value.strip()
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def number_of(text: str, *, comma: bool) -> float | None:
    """The number that a text spells, with a decimal comma where ``comma``; None for any other text."""
    plain = text.replace(",", ".") if comma and text.count(",") == 1 and "." not in text else text
    if not NUMBER.fullmatch(plain):
        return None
    found = float(plain)
    return found if math.isfinite(found) else None


def scale_of(texts: Iterable[str], *, comma: bool) -> tuple[Scale, str | None]:
    """What numbers mean that were asked to be taken as degrees, by all of them, and a sentence that says so (None where there are none).

    Grades from 1 to 4 where one is above 1 and none below; signs where one is -1 and all others are 1; else from 0 to 1.
    """
    numbers = {n for n in (number_of(t, comma=comma) for t in texts) if n is not None}
    if not numbers:
        return Scale.PLAIN, None
    if -1 in numbers and numbers <= {-1.0, 1.0}:
        return Scale.PLAIN, "Numbers are signs: -1 is different, 1 is the same."
    if max(numbers) > 1 and min(numbers) >= LOWEST and max(numbers) <= HIGHEST:
        return Scale.GRADES, "Answers are grades from 1, different, to 4, the same: taken as (grade - 1) / 3."
    if numbers == {1.0}:
        words = "All numbers are 1: taken as the probability 1, the same, since no other grade is there. Grades want --format durel."
        return Scale.UNIT, words
    return Scale.UNIT, "Numbers are probabilities, from 0, different, to 1, the same."


def off_scale(texts: Iterable[str], scale: Scale, *, comma: bool) -> tuple[list[str], str] | None:
    """The numbers above 1 where ``scale`` takes 1 as "the same", and how to convert all of them; None where there are none.

    Beside 5, say, 1 may well be the grade of "different": taken as "the same" it would turn all answers round.
    """
    numbers = {t: n for t in texts if (n := number_of(t, comma=comma)) is not None}
    above = sorted((t for t, n in numbers.items() if n > 1), key=lambda t: numbers[t])
    if scale is Scale.GRADES or not above:
        return None
    low, high = min(LOWEST, *numbers.values()), max(numbers.values())
    if scale is Scale.PLAIN and low == LOWEST and high <= HIGHEST:
        return above, "Grades from 1, different, to 4, the same, are read with --soft (soft=True in Python)."
    shifted = "grade" if not low else f"(grade {'-' if low > 0 else '+'} {abs(low):g})"
    fix = f"If {low:g} is different and {high:g} is the same, write {shifted} / {high - low:g} instead of each grade, and read it with --soft (soft=True in Python)."
    durel = " If 0 is no opinion beside grades from 1 to 4, use --format durel." if not low and high <= HIGHEST else ""
    return above, fix + durel


def meanings(texts: Iterable[str], scale: Scale, *, comma: bool, zero_is_unsure: bool = False) -> dict[str, Said]:
    """What each distinct text means. ``zero_is_unsure``: as DURel has it, 0 is "cannot decide"."""
    distinct = set(texts)
    signed = scale is Scale.PLAIN and any(number_of(t, comma=comma) == -1 for t in distinct)
    return {t: _meaning(t, scale, comma=comma, signed=signed, zero_is_unsure=zero_is_unsure) for t in distinct}


def _meaning(text: str, scale: Scale, *, comma: bool, signed: bool, zero_is_unsure: bool) -> Said:
    word = " ".join(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").casefold().split())
    if word in UNSURE:
        return Said()
    if word in SAME:
        return Said(1.0)
    if word in DIFFERENT:
        return Said(0.0)
    number = number_of(text, comma=comma)
    if number is None:
        degree = _beginning(word)
        return Said(trouble=NO_WORD) if degree is None else Said(degree, by_beginning=True)
    if number == 0 and zero_is_unsure:
        return Said()
    if scale is Scale.GRADES:
        fits = LOWEST <= number <= HIGHEST
        return Said((number - LOWEST) / (HIGHEST - LOWEST)) if fits else Said(trouble=f"not {scale}")
    if scale is Scale.UNIT:
        return Said(number) if 0 <= number <= 1 else Said(trouble=f"not {scale}")
    if number == 0 and signed:
        return Said(trouble="0 beside -1, which may mean different or unsure")
    if number in (-1, 0, 1):
        return Said(float(number == 1))
    return Said(trouble=GRADED if 0 < number < 1 else f"not {scale}")


def _beginning(word: str) -> float | None:
    """What a text says that begins with a word for an answer; None where it does not, or the rest may take it back."""
    if SAYS_DIFFERENT.fullmatch(word):
        return 0.0
    return 1.0 if SAYS_SAME.fullmatch(word) else None


def counted(texts: Iterable[str], *, most: int | None = None) -> str:
    """Texts and how often each occurs, at ``most`` so many, for people: 'unsure', or 'unsure' (10) or empty (2)."""
    found = Counter(texts).most_common()
    names = [f"{text!r:.60}" if text else "empty" for text, _ in found]
    if len(found) == 1:
        return names[0]
    shown = [f"{name} ({n})" for name, (_, n) in zip(names, found, strict=True)]
    if most is not None and len(shown) > most:
        shown = [*shown[:most], f"{len(shown) - most} more"]
    return ", ".join(shown[:-1]) + f" or {shown[-1]}"
