"""One page about a run that anyone can open: ``write_report(run, output)``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdcc.report.collect import gather, gather_fit
    from pdcc.report.content import ReportContent
    from pdcc.report.page import render, write_report

__all__ = ["ReportContent", "gather", "gather_fit", "render", "write_report"]

_HOMES = {"ReportContent": "content", "gather": "collect", "gather_fit": "collect", "render": "page", "write_report": "page"}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Loaded when used: the command line imports this room to know its options, and must not load torch for that.
    if name not in _HOMES:
        raise AttributeError(f"module 'pdcc.report' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pdcc.report.{_HOMES[name]}"), name)
