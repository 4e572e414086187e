"""The command line: pdcc demo, fit, predict, diagnose, report, simulate, bench."""

import contextlib
import errno
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pdcc.errors import printable
from pdcc.report.command import report as write_report

# The machine is out of space, not the input wrong.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# How text begins that a spreadsheet takes for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

app = typer.Typer(
    name="pdcc",
    help="Probabilistic deep constrained clustering: memberships from features and noisy same/different answers.",
    epilog="Start with: pdcc demo. Exit codes: 0 done, 1 a check failed (with --strict), 2 bad input, 3 no space left, 130 interrupted (everything so far is kept).",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# typer brings its own copy of click from 0.29 on; its UsageError is reached by inheritance in every version.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

Features = Annotated[
    Path,
    typer.Argument(
        help="Features, one row per item: .npy, .npz (one array, one called X, or a scipy sparse matrix), .csv or .parquet."
    ),
]
Run = Annotated[Path, typer.Option("--output", "-o", help="Directory of the run; made if it is not there.")]
Seed = Annotated[int, typer.Option("--seed", help="Fixes every random choice.")]


def say(text: str, err: bool = False) -> None:
    """Print text, some of it from users, as a terminal may show it."""
    typer.echo(printable(text), err=err)


class _Printable(logging.Formatter):
    """Log lines as a terminal may show them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(version("pdcc"))
        raise typer.Exit


IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id-column",
        help="Column of a feature table that names the items (in fit, the pairs' i and j are then such names instead of row numbers).",
    ),
]


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
    log.handlers[:] = [handler := logging.StreamHandler(sys.stderr)]
    handler.setFormatter(_Printable("%(message)s"))
    log.setLevel(logging.ERROR if quiet else logging.INFO)


@app.command()
def fit(
    features: Features,
    pairs: Annotated[
        Path,
        typer.Argument(
            help="Answers: .csv or .parquet with columns i, j, similar (0/1, -1/1 or true/false) and optionally annotator."
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run (or begin one).")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
) -> None:
    """Fit VolMaxDCC to FEATURES and PAIRS and keep the run in a directory.

    Example: pdcc fit features.npy pairs.csv -k 10 -o run
    """
    from pdcc.data.pairs import PairData
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage import run as runs
    from pdcc.storage.files import RUN_FILE
    from pdcc.storage.lock import claimed

    params: dict[str, Any] = {
        "n_clusters": _number_or_auto("clusters", clusters, int), "random_state": seed, "epochs": _number_or_auto("epochs", epochs, int), "confusion": confusion, "volume": _number_or_auto("volume", volume),
        "scale": None if scale == "none" else scale, "init": init, "n_init": n_init, "device": device,
    }  # fmt: skip
    estimator = VolMaxDCC(**params)
    data = PairData.read(features, pairs, id_column=id_column)
    estimator.check(data.n_items)
    for given in (features, pairs):
        if given.resolve().parent == output.resolve() and RUN_FILE.fullmatch(given.resolve().name):
            raise ValueError(
                f"{given}: expected data that stay, found a file of the run that is to be replaced. Copy it elsewhere first."
            )
    source = runs.Source.of(features, pairs, id_column)
    with claimed(output):
        if not runs.begin(output, source, params, resume=resume, overwrite=overwrite):
            say(f"{output}: this run had already finished.")
            return
        estimator.fit_data(data, checkpoints=output / runs.CHECKPOINTS)
        runs.finish(output, *estimator.described(), data, source, params)
    named = "" if id_column is None else f" --id-column {id_column}"
    if estimator.selection_ is not None:
        say(estimator.selection_.reason)
    say(str(estimator.report_))
    say(f"{len(data)} answers about {data.n_items} items ({data.self_pairs} self-pairs dropped). {estimator.message_}")
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
        items = [f"'{i}" if isinstance(i, str) and i.startswith(FORMULA) else i for i in items]
    columns: dict[str, Any] = {"item": items, "label": F.argmax(axis=1)}
    table = pd.DataFrame(columns | {f"m{k}": F[:, k] for k in range(F.shape[1])})
    write_atomic(target, table.to_csv(index=False).encode())
    say(f"Memberships of {len(F)} items in {output}.")


@app.command()
def diagnose(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    features: Annotated[
        Path | None, typer.Option(help="Where the features are now, if they moved since the fit.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON to write, besides the text.")] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV to write: every item's label, probability, whether it is settled, and label set."),
    ] = None,
    trusted: Annotated[
        Path | None, typer.Option(help="Table of items whose label is known (columns item, label), drawn at random.")
    ] = None,
    target: Annotated[float, typer.Option(help="The accuracy that would do.")] = 0.8,
    level: Annotated[float, typer.Option(help="How sure a set of labels must be.")] = 0.95,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer fits and draws, wider intervals.")] = False,
    draws: Annotated[int | None, typer.Option(help="Posterior draws (60; quick: 20).")] = None,
    restarts: Annotated[
        int | None, typer.Option(help="Fits of the same answers from new starts (4; quick: 2, which support nothing).")
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

    Example: pdcc diagnose run -o diagnosis.json --items items.csv
    """
    import json

    from pdcc.data.io import read_table
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
    read = [runs.features_of(run, read_description(run))[0] if features is None else features]
    read += [] if trusted is None else [trusted]
    target_file = None if output is None else check_output(output, read)
    items_file = None if items is None else check_output(items, read if output is None else [*read, output])
    data = runs.read_data(run, features)
    found = run_diagnosis(
        estimator.fitted_, data, trusted=None if trusted is None else read_table(trusted), target=target, level=level,
        quick=quick, draws=draws, n_restarts=restarts, eps=eps, random_state=seed, progress=sys.stderr.isatty(),
    )  # fmt: skip
    say(str(found))
    if target_file is not None:
        write_atomic(target_file, json.dumps(found.to_dict(), indent=1).encode())
        say(f"\nAll of it, with every number, is in {output}.")
    if items_file is not None:
        write_atomic(items_file, found.items.to_csv(index=False).encode())
        say(f"\nEvery item's label, its probability and label set are in {items}.")
    if strict is not None and found.verdicts[Question(strict)] != "supported":
        raise typer.Exit(1)


@app.command()
def simulate(
    study: Annotated[
        str,
        typer.Argument(
            help="synthetic (the paper's study), bank (does the diagnosis know how right labels are?) or memberships (and whether soft ones are determined?)."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for tables and figures; a killed run goes on.")
    ],
    size: Annotated[
        int | None, typer.Option(help="Seeds of the study (10), or settings (bank: 324, memberships: 204).")
    ] = None,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
) -> None:
    """Run a simulation study with known truth: CSV, a summary and a figure in a directory.

    Example: pdcc simulate bank -o results --jobs 2
    """
    from pdcc.experiments.identifiability_bank import simulate_bank
    from pdcc.experiments.labels_bank import simulate_labels
    from pdcc.experiments.synthetic import simulate_synthetic
    from pdcc.storage.lock import claimed

    known = {"synthetic": simulate_synthetic, "bank": simulate_labels, "memberships": simulate_bank}
    if study not in known:
        raise ValueError(f"study: expected one of {', '.join(known)}, found {study!r}. Choose one of them.")
    with claimed(output):
        say(known[study](output, size=size, seed=seed, n_jobs=jobs, progress=sys.stderr.isatty()))


@app.command()
def bench(
    preset: Annotated[
        str,
        typer.Argument(
            help="quick (digits), synthetic; bank, bank-a, bank-b (parts of these need PDCC_DATA); human-noise, ablation, volumes, volumes-raw or paper (these need PDCC_DATA)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for tables; a killed run goes on.")],
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task of the preset (docs/benchmark.md); repeat for several.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only tasks with this part in their name, such as wine, mind or 2; repeat for alternatives, or to combine data with kinds."
        ),
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method; repeat for several.")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials; the preset has its own number.")] = None,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; report what is on record.")] = False,
) -> None:
    """Compare methods over data, noise and trials: CSV, Markdown, JSON and a figure in a directory.

    Example: pdcc bench quick -o results/quick --jobs 2
    """
    from pdcc.experiments.presets import bench as run
    from pdcc.storage.lock import claimed

    with claimed(output):
        found = run(
            preset, output, tasks=tuple(task or ()), only=tuple(only or ()), methods=tuple(method or ()), trials=trials, seed=seed,
            n_jobs=jobs, progress=sys.stderr.isatty(), report_only=report,
        )  # fmt: skip
    say(found)
    say(f"Tables, records and a figure are in {output}.")


@app.command()
def demo(
    output: Run = Path("demo-run"),
    seed: Seed = 0,
) -> None:
    """Handwritten digits and noisy annotators: K-means, VanillaDCC and VolMaxDCC side by side. No downloads."""
    from pdcc.experiments.demo import run_demo
    from pdcc.storage.lock import claimed

    with claimed(output):
        for line in run_demo(output, seed):
            say(line)


app.command("report")(write_report)


def _number_or_auto(name: str, value: str, kind: Callable[[str], float] = float) -> float | str:
    if value == "auto":
        return value
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(
            f"{name}: expected auto or a {'whole ' if kind is int else ''}number, found {value!r}. Pass one of these."
        ) from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: one sentence on stderr for an error, no traceback unless --debug."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERROR as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (ValueError, TypeError, OSError) as error:
        if "--debug" in arguments:
            raise
        full = isinstance(error, OSError) and error.errno in NO_ROOM
        cure = ". Nothing that was there is lost: make room, then go on with the same command." if full else ""
        say(f"pdcc: {error}{cure}", err=True)
        code = 3 if full else 2
    finally:
        log = logging.getLogger("pdcc")
        log.handlers.clear()
        log.setLevel(logging.NOTSET)  # as it was: others in this process may listen
    if code == 130:
        go_on = (
            "Go on with the same command and --resume."
            if next((a for a in arguments if not a.startswith("-")), "") == "fit"
            else "The same command goes on where it was, or begins anew."
        )
        say(f"Interrupted. {go_on}", err=True)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.exit(code if isinstance(code, int) else 0)
