"""pdcc diagnose."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdcc.cli.app import Seed, app, say

if TYPE_CHECKING:
    import pandas as pd


@app.command()
def diagnose(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    features: Annotated[
        Path | None, typer.Option(help="Where the features are now, if they moved since the fit.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON to write, besides the text.")] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            metavar="SETTLED.CSV",
            help="CSV to write (not, as elsewhere, to read): every item's label, probability, whether it is settled, and label set.",
        ),
    ] = None,
    trusted: Annotated[
        Path | None,
        typer.Option(
            help="Table of items whose label is known (columns item, or the run's id column, and label or class), drawn at random; or of pairs (i, j, similar) that pdcc suggest --trusted drew."
        ),
    ] = None,
    target: Annotated[float, typer.Option(help="The accuracy that would do.")] = 0.8,
    level: Annotated[float, typer.Option(help="How sure a set of labels must be.")] = 0.95,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer fits and draws, wider intervals.")] = False,
    draws: Annotated[int | None, typer.Option(help="Posterior draws (60; quick: 12).")] = None,
    restarts: Annotated[
        int | None, typer.Option(help="Fits of the same answers from new starts (4; quick: 1, which supports nothing).")
    ] = None,
    eps: Annotated[float, typer.Option(help="Tolerance of the scatter condition.")] = 0.05,
    seed: Seed = 0,
    strict: Annotated[
        str | None,
        typer.Option(
            "--strict", help="Exit with 1 unless this is supported: labels, items, clusters, memberships, model."
        ),
    ] = None,
) -> None:
    """Say how right the labels of RUN are, what is settled, and what more answers would do.

    Example: pdcc diagnose run -o diagnosis.json --items settled.csv
    """
    import json

    from pdcc.estimator import VolMaxDCC
    from pdcc.identifiability.diagnose import diagnose as run_diagnosis
    from pdcc.identifiability.verdict import Question
    from pdcc.storage import run as runs
    from pdcc.storage.files import check_output, write_atomic
    from pdcc.storage.model import read_description

    if strict is not None and strict not in list(Question):
        raise ValueError(
            f"--strict: expected one of {', '.join(Question)}, found {strict!r}. Choose the question to judge."
        )
    estimator = VolMaxDCC.load(run)
    place, id_column, _ = runs.features_of(run, read_description(run))
    read = [place if features is None else features]
    read += [] if trusted is None else [trusted]
    target_file = None if output is None else check_output(output, read)
    items_file = None if items is None else check_output(items, read if output is None else [*read, output])
    if items_file is not None:
        _check_own(items_file)
    data = runs.read_data(run, features)
    found = run_diagnosis(
        estimator.fitted_, data, trusted=None if trusted is None else _known(trusted, id_column), target=target, level=level,
        quick=quick, draws=draws, n_restarts=restarts, eps=eps, random_state=seed, progress=sys.stderr.isatty(),
    )  # fmt: skip
    # Files first: whoever reads the text may stop listening.
    if target_file is not None:
        write_atomic(target_file, json.dumps(found.to_dict(), indent=1).encode())
    if items_file is not None:
        write_atomic(items_file, found.items.to_csv(index=False).encode())
    say(str(found))
    if target_file is not None:
        say(f"\nAll of it, with every number, is in {output}.")
    if items_file is not None:
        say(f"\nEvery item's label, its probability and label set are in {items}.")
    if strict is not None and found.verdicts[Question(strict)] != "supported":
        raise typer.Exit(1)


def _check_own(path: Path) -> None:
    """Refuse to replace a file that this option did not write: elsewhere, --items names a table of texts and images."""
    from pdcc.accuracy.estimate import ITEM_COLUMNS
    from pdcc.errors import PairDataError

    if not path.exists():
        return
    header = ",".join(ITEM_COLUMNS)
    with path.open("rb") as file:
        first = file.readline(len(header) + 2)
    if first and first.decode("latin-1").rstrip("\r\n") != header:
        raise PairDataError(
            "--items",
            f"a new file, or one that it wrote before ({header})",
            f"{path.name}, which is another",
            "In pdcc diagnose it is written, not read: choose another name, such as settled.csv.",
        )


def _known(path: Path, id_column: str | None) -> "pd.DataFrame":
    """The table of trusted labels or pairs; items may be in a column called as in the features."""
    from pdcc.data.io import read_table
    from pdcc.identifiability.given import with_items

    table: pd.DataFrame = with_items(read_table(path), id_column)
    return table
