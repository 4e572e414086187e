"""Values as a reader sees them: shares, intervals, names from users. Escaping for HTML is the templates' work."""

import math
from collections.abc import Iterable
from typing import Any

from pdcc.accuracy.estimate import Estimate
from pdcc.errors import printable

CUT = "…"
NONE = "–"  # noqa: RUF001, what a table shows where there is nothing


def share(value: Any, digits: int = 0) -> str:
    """0.9312 as "93 %"."""
    return NONE if missing(value) else f"{100 * float(value):.{digits}f} %"


def interval(low: Any, high: Any, between: str = " to ") -> str:
    """(0.91, 0.95) as "91 to 95 %"."""
    return NONE if missing(low) or missing(high) else f"{100 * float(low):.0f}{between}{100 * float(high):.0f} %"


def estimate(found: Estimate) -> str:
    """An estimate and its interval."""
    return (
        f"{share(found.estimate)} (90 % interval: {interval(found.low, found.high)})" if found else "no claim is made"
    )


def number(value: Any, digits: int = 3) -> str:
    """A number, or a dash."""
    return NONE if missing(value) else f"{float(value):.{digits}f}"


def shown(value: Any, longest: int = 80) -> str:
    """Text of users on one line, no longer than a table bears, and nothing in it that turns the direction of reading or hides."""
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= longest else text[: longest - 1] + CUT


def sentence(text: str) -> str:
    """With a capital first."""
    return text[:1].upper() + text[1:]


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    *first, last = [*words]
    return f"{', '.join(first)} and {last}" if first else last


def missing(value: Any) -> bool:
    """None, and what is no number."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or value != value
