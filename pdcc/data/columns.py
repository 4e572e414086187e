"""Names of features: taken from a table's columns, and new items put into the order of the fitted ones."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pdcc.errors import PairDataError

# So many names are shown of a long list.
SHOWN = 5


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names for people."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def column_names(X: Any) -> tuple[str, ...] | None:
    """The names of a table's columns where they are strings; None for arrays and for columns that are only numbered."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    named = [name for name in columns if isinstance(name, str)]
    if named and len(named) < len(columns):
        odd = next(name for name in columns if not isinstance(name, str))
        raise PairDataError(
            "X",
            "columns that are all named by strings, or all by numbers",
            f"{odd!r} of type {type(odd).__name__} beside {named[0]!r}",
            "Rename them: X.columns = X.columns.astype(str).",
        )
    if len(set(named)) < len(named):
        twice = next(name for name, n in Counter(named).items() if n > 1)
        raise PairDataError(
            "X", "columns with names of their own", f"{twice!r} more than once", "Drop or rename all but one of them."
        )
    return tuple(named) or None


def in_fitted_order(X: Any, names: Sequence[str] | None) -> Any:
    """X with its columns in the order of the fitted ``names``; X as it is where the one or the other has no names."""
    given = column_names(X)
    if names is None or given is None or given == tuple(names):
        return X
    known, here = set(names), set(given)
    missing, extra = [c for c in names if c not in here], [c for c in given if c not in known]
    if missing or extra:
        found = [f"{word} {_some(some)}" for word, some in (("no", missing), ("besides", extra)) if some]
        raise PairDataError(
            "X",
            f"the {len(names)} columns of the fit, in any order",
            ", and ".join(found),
            "Name and choose the columns as in the fit; if one names the items, make it the index (Python) or say so with --id-column (shell).",
        )
    return X[list(names)]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more
