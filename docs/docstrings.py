"""Docstrings are plain text: bars and trailing underscores in them are what they look like, not markup."""

import re
from typing import Any

from sphinx.application import Sphinx

LITERAL = re.compile(r"(``.+?``|`[^`]+`)", flags=re.DOTALL)


def escaped(text: str) -> str:
    """A paragraph whose ``labels_`` and |x| outside of literals stay as they are written."""
    parts = LITERAL.split(text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<=\w)_(?!\w)|[|*](?=\S)|(?<=\S)[|*]", lambda found: "\\" + found[0], parts[at])
    return "".join(parts)


def plain(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escapes every paragraph that is not an example; bullets and sections keep their form."""
    paragraphs = re.split(r"(\n\s*\n)", "\n".join(lines))
    found = "".join(p if p.lstrip().startswith((">>>", "Examples:\n")) else escaped(p) for p in paragraphs)
    lines[:] = found.split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Before napoleon, which reads sections, and before the text is taken for markup."""
    app.connect("autodoc-process-docstring", plain, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
