"""pdcc suggest, audit and annotators: what to ask next, which answers are wrong, and whom to trust."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdcc.cli.app import Seed, app, say

if TYPE_CHECKING:
    import pandas as pd

    from pdcc.arrays import Ints
    from pdcc.asking.crossfit import CrossFit
    from pdcc.data.pairs import PairData
    from pdcc.fitted import Fitted

RunDirectory = Annotated[Path, typer.Argument(help="Directory of a finished run.")]
Moved = Annotated[Path | None, typer.Option(help="Where the features are now, if they moved since the fit.")]
SafeCsv = Annotated[
    bool,
    typer.Option("--safe-csv", help="Put ' before text that a spreadsheet would take for a formula (= + - @)."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="CSV to write; else the first rows are printed.")]
SHOWN = 10


@app.command()
def suggest(
    run: RunDirectory,
    n: Annotated[int, typer.Option("-n", help="How many pairs.")] = 200,
    output: Output = None,
    aim: Annotated[
        str | None, typer.Option(help="A cluster, or two that are confounded, such as 3 or 3,5: ask about items there.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Only pairs that were never asked about.")] = False,
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted", help="Instead, pairs for someone to trust: half within clusters, for pdcc diagnose --trusted."
        ),
    ] = False,
    features: Moved = None,
    safe_csv: SafeCsv = False,
    seed: Seed = 0,
) -> None:
    """Say which pairs to ask about next, and what their answers are expected to bring.

    At least a fifth of them is drawn uniformly (chosen_by: random): without these nothing could show where beliefs are wrong.

    Example: pdcc suggest run -n 200 -o next.csv
    """
    import numpy as np

    from pdcc.asking.stopping import expect_from
    from pdcc.asking.suggest import suggest_pairs

    target = _target(run, features, output)
    if trusted:
        if aim is not None or new:
            raise ValueError("--trusted: expected neither --aim nor --new beside it, found one. Leave it out.")
        _give(_to_trust(run, features, n, seed), target, output, safe_csv)
        return
    _, data, found = _cross_fitted(run, features, seed)
    known = np.column_stack([data.i, data.j]) if new else None
    table = suggest_pairs(found.beliefs, found.agreement, n=n, exclude=known, aim=_clusters(aim), random_state=seed)
    expected = expect_from(found.beliefs, found.agreement, table, seed=seed)
    _give(_named(table, data), target, output, safe_csv)
    say(str(expected))


@app.command()
def audit(
    run: RunDirectory,
    output: Output = None,
    features: Moved = None,
    safe_csv: SafeCsv = False,
    seed: Seed = 0,
) -> None:
    """Say which answers of RUN are probably wrong, the most doubtful first: each is judged by fits that did not see it.

    Columns: answer (its row in the file of answers, counted from 0 without the header, with all rows of the file; a run that knows no rows, as of
    crowdkit's labels, counts its own answers), file (which file, where there are several), i, j, similar, annotator (where known), expected (the
    probability of being called similar), same (of being of one class), wrong (that the answer is wrong), cluster_i, cluster_j (where the items are
    believed to be), reason.

    Example: pdcc audit run -o doubtful.csv
    """
    target, _, table = _audited(run, features, output, seed)
    rows, files = _places(run, len(table))
    table.insert(0, "answer", rows)
    if len(set(files)) > 1:
        table.insert(1, "file", files)
    _give(table.sort_values("wrong", ascending=False, kind="stable"), target, output, safe_csv)
    say(
        f"About {table['wrong'].sum():,.0f} of {len(table):,} answers are wrong; {int((table['wrong'] > 0.5).sum()):,} more likely so than not."
    )


@app.command()
def annotators(
    run: RunDirectory,
    output: Output = None,
    features: Moved = None,
    safe_csv: SafeCsv = False,
    seed: Seed = 0,
) -> None:
    """Say how often each annotator of RUN is right, what they confuse, and who does not look, is worse than the others, or copies.

    Example: pdcc annotators run -o annotators.csv
    """
    from pdcc.asking.reliability import annotator_reliability

    target, data, table = _audited(run, features, output, seed)
    _give(annotator_reliability(data, table), target, output, safe_csv)
    say(
        "reliability: the share of right answers, from low to high at 90 %, as far as the clusters are right; annotators of few answers are drawn to the others."
    )


def _target(run: Path, features: Path | None, output: Path | None) -> Path | None:
    """Where to write, checked before any work."""
    from pdcc.storage import run as runs
    from pdcc.storage.files import check_output
    from pdcc.storage.model import read_description

    if output is None:
        return None
    return check_output(output, [runs.features_of(run, read_description(run))[0] if features is None else features])


def _cross_fitted(run: Path, features: Path | None, seed: int) -> "tuple[Fitted, PairData, CrossFit]":
    from pdcc.asking.crossfit import cross_fit
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage import run as runs

    fitted = VolMaxDCC.load(run).fitted_
    data = runs.read_data(run, features)
    return fitted, data, cross_fit(fitted, data, seed=seed, progress=sys.stderr.isatty())


def _audited(
    run: Path, features: Path | None, output: Path | None, seed: int
) -> "tuple[Path | None, PairData, pd.DataFrame]":
    """Where to write, the data of the run, and how likely each of its answers is wrong."""
    from pdcc.asking.audit import audit_answers

    target = _target(run, features, output)
    fitted, data, found = _cross_fitted(run, features, seed)
    return target, data, audit_answers(fitted, data, found=found)


def _places(run: Path, n_answers: int) -> "tuple[Ints, list[str]]":
    """The row of each answer of RUN and its file; where the run does not know, numbers of its answers and no file."""
    import numpy as np

    from pdcc.data.places import PLACES, rows_and_files
    from pdcc.storage.model import read_description

    found = rows_and_files(read_description(run).get(PLACES, []), n_answers)
    return (np.arange(n_answers), []) if found is None else found


def _to_trust(run: Path, features: Path | None, n: int, seed: int) -> "pd.DataFrame":
    from pdcc.accuracy.trusted_pairs import draw_trusted
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage import run as runs

    data = runs.read_data(run, features)
    labels = VolMaxDCC.load(run).fitted_.memberships(data.features).argmax(axis=1)
    return _named(draw_trusted(labels, n, random_state=seed), data)


def _named(table: "pd.DataFrame", data: "PairData") -> "pd.DataFrame":
    """The table, its pairs by the items' ids where they have some."""
    if data.item_ids is not None:
        for end in ("i", "j"):
            table[end] = data.item_ids[table[end].to_numpy()]
    return table


def _clusters(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(
            f"--aim: expected a cluster or two, such as 3 or 3,5, found {text!r}. Pass numbers."
        ) from error


def _give(table: "pd.DataFrame", target: Path | None, output: Path | None, safe: bool) -> None:
    """Write the table, or print its first rows."""
    from pdcc.errors import safe_cell
    from pdcc.storage.files import write_atomic

    if target is None:
        more = f"\n({len(table) - SHOWN:,} more: write them with -o)" if len(table) > SHOWN else ""
        say(table.head(SHOWN).to_string(index=False, float_format="{:.3f}".format) + more)
        return
    shown = table.map(safe_cell) if safe else table
    write_atomic(target, shown.to_csv(index=False).encode())
    say(f"{len(table):,} rows in {output}.")
