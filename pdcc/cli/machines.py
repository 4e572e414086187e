"""pdcc ask: a machine answers pairs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pdcc.cli.app import IdColumn, app, say
from pdcc.cli.asking import Moved, SafeCsv


@app.command()
def ask(
    data: Annotated[
        Path, typer.Argument(metavar="RUN|FEATURES", help="A finished run, or features: the items that pairs are of.")
    ],
    pairs: Annotated[Path, typer.Option(help="Table of the pairs to ask about: columns i and j (pdcc suggest -o).")],
    oracle: Annotated[
        str,
        typer.Option(
            help="module:object, imported from your Python path or this directory: what answers. This runs its code."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV to write, which pdcc fit reads.")],
    cache: Annotated[Path, typer.Option(help="SQLite file of all answers: no pair in it is paid for twice.")],
    budget: Annotated[
        float | None, typer.Option(help="The most that the answers to these pairs may cost, earlier ones included.")
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            help="What is shown to it: a .csv or .parquet table with a column item (the id, or the row number from 0). Default: the features."
        ),
    ] = None,
    annotator: Annotated[str | None, typer.Option(help="Who answers (default: the oracle's name).")] = None,
    family: Annotated[str | None, typer.Option(help="Its family; the annotator is then family:name.")] = None,
    batch: Annotated[int, typer.Option(help="Pairs that it gets at once.")] = 20,
    retries: Annotated[int, typer.Option(help="How often it is asked again after a temporary error.")] = 5,
    features: Moved = None,
    id_column: IdColumn = None,
    safe_csv: SafeCsv = False,
) -> None:
    """Let a machine answer pairs: a language model, a rule, any object with name, version and answer(pairs, items).

    The same command goes on after a kill, and with more pairs or a larger budget asks only what is missing.

    Example: pdcc ask run --pairs next.csv --oracle my_oracle:model -o machine.csv --cache asked.sqlite --budget 5
    """
    from pdcc.data.questions import read_pairs
    from pdcc.errors import PairDataError, safe_cell
    from pdcc.oracles.ask import ask as run_ask
    from pdcc.storage.files import check_output, write_atomic

    shown, ids, read = _items(data, features, id_column, items)
    target = check_output(output, [*read, pairs, cache])
    rows = read_pairs(pairs, len(shown), ids)
    lost = [row for row, pair in enumerate(rows.tolist()) if any(shown[item] is None for item in pair)]
    if lost:
        what = "a row for each item that is asked about"
        raise PairDataError(f"{items}, for {pairs}", what, "a pair without one", "Add it, or drop the pair.", lost[0])
    names: Any = rows if ids is None else ids[rows]
    with _imported(oracle) as machine:
        found = run_ask(
            machine, names, shown, cache=cache, item_ids=ids, budget=budget, batch=batch, retries=retries,
            annotator=annotator, family=family, progress=sys.stderr.isatty(),
        )  # fmt: skip
    table = found.table.map(safe_cell) if safe_csv else found.table
    write_atomic(target, table.to_csv(index=False).encode())
    for note in found.notes:
        say(note)
    more = " They are probabilities: fit them with --soft." if found.soft else ""
    say(f"{len(table):,} answers, for {found.cost:g} in all, in {output}.{more}")


def _items(data: Path, features: Path | None, id_column: str | None, items: Path | None) -> tuple[Any, Any, list[Path]]:
    """What is shown of each item (N, ...), the items' ids (N,) or None, and the files that were read."""
    import pandas as pd
    from scipy.sparse import issparse

    from pdcc.data.io import read_features
    from pdcc.data.item_tables import read_item_table
    from pdcc.errors import PairDataError
    from pdcc.storage import run as runs
    from pdcc.storage.model import read_description
    from pdcc.validation import check_features

    path = data
    if data.is_dir():
        if id_column is not None:
            raise PairDataError("--id-column", "none beside a run", repr(id_column), "The run knows its own.")
        path, id_column, digest = runs.features_of(data, read_description(data))
        path = path if features is None else features
        runs.check_features_file(path, digest)
    elif features is not None:
        raise PairDataError("--features", "a run beside it", f"{data}", "It says where the features of a run are now.")
    X, ids = read_features(path, id_column=id_column)
    shown: Any
    if items is None:
        shown = X.toarray() if issparse(X) else X
        return shown.to_dict("records") if isinstance(shown, pd.DataFrame) else shown, ids, [path]
    names: Any = range(len(check_features(X))) if ids is None else ids
    rows, table = read_item_table(items, names, id_column)
    shown = [None] * len(names)
    for row, cells in zip(rows.tolist(), table.to_dict("records"), strict=True):
        shown[row] = {str(name): str(cell) for name, cell in cells.items()}
    return shown, ids, [path, items]


@contextmanager
def _imported(name: str) -> Iterator[Any]:
    """The object that ``module:object`` names; this directory is looked in last. A class is made an object without arguments."""
    import importlib

    module, _, path = name.partition(":")
    if not module or not path:
        raise ValueError(
            f"--oracle: expected module:object, such as my_oracle:model, found {name!r}. Name both, with a colon between them."
        )
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        try:
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
            made = found() if isinstance(found, type) else found
        except Exception as error:  # of any kind: it is the user's code that runs here
            what = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"--oracle: expected an object that can be imported, or a class to be called without arguments, found {name!r}, which is none ({what}). Put {module}.py into this directory or on PYTHONPATH, and check the name."
            ) from error
        yield made
    finally:
        sys.path.remove(here)
