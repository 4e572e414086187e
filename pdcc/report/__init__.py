"""One page about a run that anyone can open: ``write_report(run, output)``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdcc.report.content import ReportContent
    from pdcc.report.gather import gather, gather_fit
    from pdcc.report.render import render, write_report

__all__ = ["ReportContent", "gather", "gather_fit", "render", "write_report"]

_HOMES = {"ReportContent": "content", "gather": "gather", "gather_fit": "gather", "render": "render", "write_report": "render"}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Loaded when used: the command line imports this room to know its options, and must not load torch for that.
    if name not in _HOMES:
        raise AttributeError(f"module 'pdcc.report' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pdcc.report.{_HOMES[name]}"), name)
