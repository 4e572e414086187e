"""What results show as the last expression of a notebook's cell: their own words and small tables, texts of users escaped."""

from html import escape

import pandas as pd

from pdcc.errors import printable


def as_paragraphs(text: str) -> str:
    """Each line as a paragraph of HTML."""
    return "".join(f"<p>{escape(printable(line))}</p>" for line in text.split("\n") if line)


def as_table(frame: pd.DataFrame) -> str:
    """A table without its index as one of HTML."""
    plain = frame.map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
    return str(plain.to_html(index=False, escape=True))
