"""``pdcc report``: one page about a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pdcc.errors import printable


def report(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    items: Annotated[
        Path | None,
        typer.Option(
            help="CSV of what items say: column item (id or row number; or the run's id column), and text, image (a file), or both."
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of images, called as the items are or as the column image says.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Where the features are now, if they moved since the fit.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A quicker diagnosis: fewer fits, wider intervals.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Fixes every random choice.")] = 0,
) -> None:
    """Write one HTML page about RUN: what can be trusted, clusters, annotators, doubtful answers, what to ask next.

    It opens from disk, needs no network, and prints.

    Example: pdcc report run -o report.html --items items.csv
    """
    from pdcc.report.page import write_report

    target = write_report(
        run, output, features=features, items=items, images=images, quick=quick, random_state=seed, progress=sys.stderr.isatty()
    )  # fmt: skip
    typer.echo(printable(f"The report is in {output} ({target.stat().st_size / 1e6:.1f} MB). Open it in a browser."))
