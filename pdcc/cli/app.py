"""The app itself: its options, what its commands share, and how text of users is shown."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from pdcc.cli.processes import speaks
from pdcc.errors import printable

app = typer.Typer(
    name="pdcc",
    help="Probabilistic deep constrained clustering: memberships from features and noisy same/different answers.",
    epilog="Start with: pdcc demo. Exit codes: 0 done, 1 a check failed (with --strict), 2 bad input, 3 no space left, 4 a process of several was lost, 130 interrupted (everything so far is kept).",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Features = Annotated[
    Path,
    typer.Argument(
        help="Features, one row per item: .npy, .npz (one array, one called X, or a scipy sparse matrix), .csv or .parquet."
    ),
]
Run = Annotated[Path, typer.Option("--output", "-o", help="Directory of the run; made if it is not there.")]
Seed = Annotated[int, typer.Option("--seed", help="Fixes every random choice.")]

IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id-column",
        help="Column of a feature table that names the items (in fit, the pairs' i and j are then such names instead of row numbers).",
    ),
]


def say(text: str, err: bool = False) -> None:
    """Print text, some of it from users, as a terminal may show it; of several processes the first does."""
    if speaks():
        typer.echo(printable(text), err=err)


def complain(text: str, error: Exception) -> None:
    """Print a sentence about an error, if it is this process's to say."""
    if speaks(error):
        typer.echo(printable(text), err=True)


class Printable(logging.Formatter):
    """Log lines as a terminal may show them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(version("pdcc"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors and results.")] = False,
) -> None:
    """Cluster items from features and noisy same/different answers."""
    log = logging.getLogger("pdcc")
    log.handlers[:] = [handler := logging.StreamHandler(sys.stderr) if speaks() else logging.NullHandler()]
    handler.setFormatter(Printable("%(message)s"))
    log.setLevel(logging.ERROR if quiet else logging.INFO)
