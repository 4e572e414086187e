"""pdcc fit and pdcc predict."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pdcc.cli.app import Features, IdColumn, Run, Seed, app, say
from pdcc.cli.processes import begun, rank

# Lines of a table that are made at once.
LINES_AT_ONCE = 100_000


@app.command()
def fit(
    features: Annotated[
        Path | None,
        typer.Argument(
            help="Features, one row per item: .npy, .npz (one array, one called X, or a scipy sparse matrix), .csv or .parquet. With --from: those of that run where none are named; new items come after the others.",
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Argument(
            help="Answers: .csv, .tsv, .parquet or .json, with columns i, j, similar (yes/no, same/different, 0/1, -1/1 ...) and optionally annotator, weight and chosen_by; or what another tool wrote (docs/answers.md). With --from: none, new ones are named by --add."
        ),
    ] = None,
    *,
    clusters: Annotated[
        str | None, typer.Option("--clusters", "-k", help="Number of clusters, or auto. With --from: as there.")
    ] = None,
    output: Run,
    earlier: Annotated[
        Path | None, typer.Option("--from", help="Go on from this finished run, with its answers and those of --add.")
    ] = None,
    add: Annotated[
        list[Path] | None, typer.Option(help="With --from: a file of new answers; may be given several times.")
    ] = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="With --from: estimate how many labels are right, before and now.")
    ] = False,
    seed: Seed = 0,
    epochs: Annotated[str, typer.Option(help="At most this many passes over the pairs: auto or a number.")] = "auto",
    confusion: Annotated[
        str,
        typer.Option(
            help="Annotators' confusion: auto (the simplest of none, stochastic and pooled that predicts answers as "
            "well as any), rates, pooled, none, sigmoid, sigmoid-paper, stochastic or per-annotator. A named one asks "
            "for a trained net."
        ),
    ] = "auto",
    volume: Annotated[str, typer.Option(help="Weight of the volume term: auto or a number.")] = "auto",
    scale: Annotated[str, typer.Option(help="Feature scaling: auto, none, unit or standard.")] = "auto",
    init: Annotated[
        str, typer.Option(help="Partition to begin at: pairs (chosen by answers and features), kmeans or random.")
    ] = "pairs",
    n_init: Annotated[int, typer.Option(help="Restarts; the one that predicts held-out answers best is kept.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    mixed_precision: Annotated[
        bool, typer.Option("--mixed-precision", help="Train the net in bfloat16, where the device gains by it.")
    ] = False,
    id_column: IdColumn = None,
    form: Annotated[
        str,
        typer.Option("--format", help="Who wrote PAIRS: auto, csv, dedupe, splink, durel, crowdkit or labelstudio."),
    ] = "auto",
    columns: Annotated[
        str | None,
        typer.Option(help="Which columns of PAIRS are which: i=left,j=right,similar=answer,annotator=by,weight=w."),
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

    What is left open is chosen by answers that the candidates were not made from, and by how well features support it.

    Example: pdcc fit features.npy pairs.csv -k 10 -o run, then pdcc fit --from run --add more.csv -o run2
    """
    from pdcc.cli.again import go_on
    from pdcc.data.pairs import PairData, read_both
    from pdcc.data.places import PLACES, places_of
    from pdcc.errors import expect
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage import run as runs

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
    if earlier is not None:
        fixed = {"--confusion": confusion != "auto", "--volume": volume != "auto", "--scale": scale != "auto"}
        fixed |= {"--init": init != "pairs", "--n-init": n_init != 1, "--id-column": id_column is not None}
        fixed |= {"--mixed-precision": mixed_precision}
        options = {"random_state": seed, "epochs": _number_or_auto("epochs", epochs, int), "device": device}
        go_on(
            earlier, add or [], output, features=features, pairs=pairs, clusters=clusters, options=options, fixed=fixed,
            reading=reading, accuracy=accuracy, resume=resume, overwrite=overwrite,
        )  # fmt: skip
        return
    expect(not add, "--add", "--from beside it", "none", "Name the earlier run, or put all answers into PAIRS.")
    expect(not accuracy, "--accuracy", "--from beside it", "none", "Use pdcc diagnose RUN --quick.")
    if features is None or pairs is None or clusters is None:
        missing = [n for n, v in (("FEATURES", features), ("PAIRS", pairs), ("--clusters (-k)", clusters)) if v is None]
        raise ValueError(
            f"{missing[0]}: expected one, found none. Pass FEATURES PAIRS -k K, or --from RUN --add MORE to go on from a run."
        )
    params: dict[str, Any] = {
        "n_clusters": _number_or_auto("clusters", clusters, int), "random_state": seed, "epochs": _number_or_auto("epochs", epochs, int), "confusion": confusion, "volume": _number_or_auto("volume", volume),
        "scale": None if scale == "none" else scale, "init": init, "n_init": n_init, "device": device,
    }  # fmt: skip
    if mixed_precision:  # runs that were begun before there was such an option did without it
        params["mixed_precision"] = True
    estimator = VolMaxDCC(**params)
    how = {"id_field": id_column, **reading}
    X, ids, read = read_both(features, pairs, id_column=id_column, beside=output, random_state=seed, **how)
    data = PairData.from_arrays(X, read, item_ids=ids)
    estimator.check(data.n_items)
    runs.check_apart(output, [features, pairs])
    source = runs.Source.of(features, pairs, id_column, reading)
    with begun(output, source, params, resume=resume, overwrite=overwrite) as work:
        if not work:
            say(f"{output}: this run had already finished.")
            return
        estimator.fit_data(data, checkpoints=output / runs.CHECKPOINTS)
        if rank() == 0:
            tensors, description = estimator.described()
            if places := places_of(pairs, read):
                description[PLACES] = places
            runs.finish(output, tensors, description, data, source, params, read=read)
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
    say(f"Run kept in {output}. Memberships of any items: pdcc predict {output} {features} -o memberships.csv")


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    features: Features,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV to write: item, label, and one membership per cluster.")
    ],
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id-column", help="Column of a feature table that names the items (that of the fit, where it is there)."
        ),
    ] = None,
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
    X, ids = (
        _read_named(run, features) if id_column is None else read_features(features, id_column=id_column, beside=run)
    )
    if (column_names(X) is None) == hasattr(estimator, "feature_names_in_"):
        logging.getLogger(__name__).warning(
            "%s: columns have names here or in the fit, not in both; their order is taken as it is", features
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")  # which that line says
        F = estimator.predict_proba(X)
    items: Any = np.arange(len(F)) if ids is None else ids

    def lines(begin: int) -> bytes:
        some = slice(begin, begin + LINES_AT_ONCE)
        named = [safe_cell(i) for i in items[some]] if safe_csv else items[some]
        columns: dict[str, Any] = {"item": named, "label": F[some].argmax(axis=1)}
        table = pd.DataFrame(columns | {f"m{k}": F[some, k] for k in range(F.shape[1])})
        return table.to_csv(index=False, header=begin == 0).encode()

    write_atomic(target, (lines(begin) for begin in range(0, len(F), LINES_AT_ONCE)))
    say(f"Memberships of {len(F)} items in {output}.")


def _read_named(run: Path, features: Path) -> tuple[Any, Any]:
    """Features, and ids by the id column of the fit where the file has one of that name; else None."""
    from pdcc.data.io import read_features
    from pdcc.errors import PairDataError
    from pdcc.storage.model import read_description

    source = read_description(run).get("source")
    own = source.get("id_column") if isinstance(source, dict) else None
    if own is not None:
        try:
            return read_features(features, id_column=own, beside=run)
        except PairDataError as error:
            if error.argument != "id column":
                raise
    return read_features(features, beside=run)


def _number_or_auto(name: str, value: str, kind: Callable[[str], float] = float) -> float | str:
    if value == "auto":
        return value
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(
            f"{name}: expected auto or a {'whole ' if kind is int else ''}number, found {value!r}. Pass one of these."
        ) from error
