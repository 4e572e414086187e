"""Pyro modules that own their parameters."""

from typing import Any

import pyro
from pyro.nn import PyroModule


class LocalModule(PyroModule):  # type: ignore[misc]
    """A PyroModule whose parameters live in the module, never in Pyro's global parameter store.

    Two fitted models with parameters of one name would otherwise share them, whoever traces them and when.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        with pyro.settings.context(module_local_params=True):
            super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` with local parameters."""
        if pyro.settings.get("module_local_params"):
            return super().__call__(*args, **kwargs)
        with pyro.settings.context(module_local_params=True):
            return super().__call__(*args, **kwargs)
