"""ArviZ, imported when it is needed, and without what versions before 1.0 say about their own future each time."""

import warnings
from typing import Any


def import_arviz() -> Any:
    """The module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz
