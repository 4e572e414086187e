"""``pdcc label``: serve the page on which pairs are answered, or write the answers to a table."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pdcc.errors import expect, printable

PORT = 8765


def label(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FEATURES",
            help="A finished run, whose fit suggests pairs; or features, of which random pairs are asked.",
        ),
    ],
    items: Annotated[
        Path | None,
        typer.Option(
            help="What is shown: a .csv or .parquet table with a column item (the id, or the row number from 0) and text or other columns."
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="What is shown: a folder of images, each named by the item's id or row number.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Where the features of RUN are now, if they moved since the fit.")
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id-column", help="Column of the feature table that names the items (a run knows its own)."),
    ] = None,
    annotator: Annotated[str | None, typer.Option(help="Your name, so that the page does not ask.")] = None,
    goal: Annotated[
        int | None, typer.Option(min=1, help="How many answers are wanted in all; the page shows how far it is.")
    ] = None,
    overlap: Annotated[int, typer.Option(min=1, help="How many different annotators answer each pair.")] = 1,
    store: Annotated[
        Path | None,
        typer.Option(
            help="SQLite file of the answers. Default: beside RUN or FEATURES, with the ending .answers.sqlite."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the answers so far to this CSV, which pdcc fit reads, and end.")
    ] = None,
    safe_csv: Annotated[
        bool,
        typer.Option(
            "--safe-csv",
            help="With --export: put ' before ids and names that a spreadsheet would take for a formula (= + - @).",
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any that is free.")] = PORT,
    host: Annotated[
        str | None,
        typer.Option(
            help="Serve at this address of the machine (0.0.0.0: all of them) instead of for this machine alone; a token is then demanded."
        ),
    ] = None,
) -> None:
    """Answer pairs on a page in the browser: S same, D different, U unsure, Z undo. Ctrl-C ends it.

    Each answer is on disk before the page says so. Several people may answer at once; no pair goes to two of them unless --overlap
    asks for it.

    Example: pdcc label features.npy --items items.csv, then pdcc label features.npy --export answers.csv
    """
    home = data.resolve()
    place = store or home.with_name(f"{home.name if home.is_dir() else home.stem}.answers.sqlite")
    again = f"pdcc label {data}" + ("" if store is None else f" --store {store}")
    if export is not None:
        from pdcc.label.export import answers_csv
        from pdcc.label.store import Store
        from pdcc.storage.files import check_output, write_atomic

        target = check_output(export, [data, place])
        with Store(place, create=False) as answers:
            write_atomic(target, answers_csv(answers, safe=safe_csv))
            _say(f"{answers.count()} answers in {export}.")
        return
    expect(not safe_csv, "--safe-csv", "--export beside it", "none", "The page's own link gives ids as they are.")
    expect(
        all(find_spec(package) for package in ("starlette", "uvicorn")), "pdcc label", "the packages starlette and uvicorn",
        "one of them missing", "Install them: pip install 'pdcc[label]'.",
    )  # fmt: skip
    from pdcc.label.desk import LONGEST_NAME, clean_name
    from pdcc.label.serve import serve
    from pdcc.label.session import opened, read_items, read_subject

    name = None if annotator is None else clean_name(annotator)
    expect(
        annotator is None or name is not None, "--annotator", f"a name of 1 to {LONGEST_NAME} characters",
        repr(annotator), "Choose one.",
    )  # fmt: skip
    subject = read_subject(data, features=features, id_column=id_column)
    shown = read_items(subject, items=items, images=images)

    def announce(address: str) -> None:
        _say(f"Answer at {address}")
        _say(f"Answers are kept in {place}. Ctrl-C ends it.")

    with opened(subject, shown, place, goal=goal, overlap=overlap) as desk:
        serve(desk, announce, port=port, host=host, annotator=name)
        _say(f"\n{desk.store.count()} answers are kept in {place}. As a table: {again} --export answers.csv")


def _say(text: str) -> None:
    typer.echo(printable(text))
