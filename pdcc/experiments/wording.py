"""How figures and methods stand in Markdown tables."""

import numpy as np

from pdcc.experiments.methods import METHODS


def as_table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def name_of(method: str) -> str:
    """What a method is called in tables."""
    return METHODS[method].title if method in METHODS else method


def plus_minus(error: float, digits: int = 3) -> str:
    """An error as it stands behind a number; nothing where it is not known."""
    return "" if np.isnan(error) else f" ± {error:.{digits}f}"
