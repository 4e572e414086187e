"""pdcc fit and pdcc predict."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pdcc.cli.app import Features, IdColumn, Run, Seed, app, say


@app.command()
def fit(
    features: Features,
    pairs: Annotated[
        Path,
        typer.Argument(
            help="Answers: .csv, .tsv, .parquet or .json, with columns i, j, similar (yes/no, same/different, 0/1, -1/1 ...) and optionally annotator, weight and chosen_by; or what another tool wrote (docs/answers.md)."
        ),
    ],
    clusters: Annotated[str, typer.Option("--clusters", "-k", help="Number of clusters, or auto.")],
    output: Run,
    seed: Seed = 0,
    epochs: Annotated[str, typer.Option(help="At most this many passes over the pairs: auto or a number.")] = "auto",
    confusion: Annotated[
        str,
        typer.Option(help="Annotators' confusion: auto, none, sigmoid, sigmoid-paper, stochastic or per-annotator."),
    ] = "auto",
    volume: Annotated[str, typer.Option(help="Weight of the volume term: auto or a number.")] = "auto",
    scale: Annotated[str, typer.Option(help="Feature scaling: auto, none, unit or standard.")] = "auto",
    init: Annotated[str, typer.Option(help="Start: pairs, kmeans or random.")] = "pairs",
    n_init: Annotated[int, typer.Option(help="Restarts; the one that predicts held-out answers best is kept.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    id_column: IdColumn = None,
    form: Annotated[
        str,
        typer.Option("--format", help="Who wrote PAIRS: auto, csv, dedupe, splink, durel, crowdkit or labelstudio."),
    ] = "auto",
    columns: Annotated[
        str | None,
        typer.Option(help="Which columns of PAIRS are which: i=left,j=right,similar=answer,annotator=who,weight=w."),
    ] = None,
    soft: Annotated[
        bool, typer.Option("--soft", help="Take numbers as degrees: probabilities from 0 to 1, or grades from 1 to 4.")
    ] = False,
    unsure: Annotated[
        str, typer.Option(help="Answers without an opinion: drop (out of the likelihood) or half (as 0.5 each).")
    ] = "drop",
    id_field: Annotated[
        str | None, typer.Option(help="The field of dedupe's records that names the item (default: --id-column).")
    ] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out rows that cannot be read, and list them.")
    ] = False,
    max_pairs: Annotated[
        int | None, typer.Option(help="Of crowdkit's labels, draw at most so many pairs (50000).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run (or begin one).")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
) -> None:
    """Fit VolMaxDCC to FEATURES and PAIRS and keep the run in a directory.

    Example: pdcc fit features.npy pairs.csv -k 10 -o run
    """
    from pdcc.data.io import read_features
    from pdcc.data.pairs import PairData
    from pdcc.data.reading import read_answers
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage import run as runs
    from pdcc.storage.files import RUN_FILE
    from pdcc.storage.lock import claimed

    params: dict[str, Any] = {
        "n_clusters": _number_or_auto("clusters", clusters, int), "random_state": seed, "epochs": _number_or_auto("epochs", epochs, int), "confusion": confusion, "volume": _number_or_auto("volume", volume),
        "scale": None if scale == "none" else scale, "init": init, "n_init": n_init, "device": device,
    }  # fmt: skip
    estimator = VolMaxDCC(**params)
    X, ids = read_features(features, id_column=id_column)
    usual = {
        "format": "auto",
        "columns": None,
        "soft": False,
        "unsure": "drop",
        "id_field": None,
        "skip_unreadable": False,
    }
    given: dict[str, Any] = {"format": form, "columns": columns, "soft": soft, "unsure": unsure, "id_field": id_field}
    given |= {"skip_unreadable": skip_unreadable, "max_pairs": max_pairs}
    reading: dict[str, Any] = {k: v for k, v in given.items() if v != usual.get(k)}
    options = {"id_field": id_column, **reading}
    read = read_answers(pairs, item_ids=ids, random_state=seed, **options)
    for note in read.notes:
        logging.getLogger(__name__).info(note)
    data = PairData.from_arrays(X, read, item_ids=ids)
    estimator.check(data.n_items)
    for file in (features, pairs):
        if file.resolve().parent == output.resolve() and RUN_FILE.fullmatch(file.resolve().name):
            raise ValueError(
                f"{file}: expected data that stay, found a file of the run that is to be replaced. Copy it elsewhere first."
            )
    source = runs.Source.of(features, pairs, id_column, reading)
    with claimed(output):
        if not runs.begin(output, source, params, resume=resume, overwrite=overwrite):
            say(f"{output}: this run had already finished.")
            return
        estimator.fit_data(data, checkpoints=output / runs.CHECKPOINTS)
        runs.finish(output, *estimator.described(), data, source, params, read=read)
    named = "" if id_column is None else f" --id-column {id_column}"
    if estimator.selection_ is not None:
        say(estimator.selection_.reason)
    say(str(estimator.report_))
    left = [
        (data.self_pairs, "self-pairs dropped"),
        (data.weightless, "of weight 0"),
        (len(read.unreadable), "unreadable"),
    ]
    left += [(len(read.unsure), "unsure" if unsure == "drop" else "unsure, each as 0.5")]
    more = ", ".join(f"{n} {what}" for n, what in left if n or what == "self-pairs dropped")
    say(f"{len(data)} answers about {data.n_items} items ({more}). {estimator.message_}")
    say(f"Run kept in {output}. Memberships of any items: pdcc predict {output} {features} -o memberships.csv{named}")


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    features: Features,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV to write: item, label, and one membership per cluster.")
    ],
    id_column: IdColumn = None,
    safe_csv: Annotated[
        bool,
        typer.Option("--safe-csv", help="Put ' before ids that a spreadsheet would take for a formula (= + - @)."),
    ] = False,
) -> None:
    """Write memberships and labels of the items in FEATURES, seen or unseen.

    Columns of a table are found by the names they had in the fit, whatever their order. Ids are written as they are; before opening
    the file in a spreadsheet, where they come from people you do not know, use --safe-csv.

    Example: pdcc predict run features.npy -o memberships.csv
    """
    import warnings

    import numpy as np
    import pandas as pd

    from pdcc.data.columns import column_names
    from pdcc.data.io import read_features
    from pdcc.errors import safe_cell
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage.files import check_output, write_atomic

    target = check_output(output, [features])
    estimator = VolMaxDCC.load(run)
    X, ids = read_features(features, id_column=id_column)
    if (column_names(X) is None) == hasattr(estimator, "feature_names_in_"):
        logging.getLogger(__name__).warning(
            "%s: columns have names here or in the fit, not in both; their order is taken as it is", features
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")  # which that line says
        F = estimator.predict_proba(X)
    items: Any = np.arange(len(F)) if ids is None else ids
    if safe_csv:
        items = [safe_cell(i) for i in items]
    columns: dict[str, Any] = {"item": items, "label": F.argmax(axis=1)}
    table = pd.DataFrame(columns | {f"m{k}": F[:, k] for k in range(F.shape[1])})
    write_atomic(target, table.to_csv(index=False).encode())
    say(f"Memberships of {len(F)} items in {output}.")


def _number_or_auto(name: str, value: str, kind: Callable[[str], float] = float) -> float | str:
    if value == "auto":
        return value
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(
            f"{name}: expected auto or a {'whole ' if kind is int else ''}number, found {value!r}. Pass one of these."
        ) from error
