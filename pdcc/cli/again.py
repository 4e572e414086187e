"""pdcc fit --from RUN --add more.csv: go on from an earlier run with more answers."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdcc.cli.app import say
from pdcc.cli.processes import begun, rank

if TYPE_CHECKING:
    from pdcc.data.pairs import PairData
    from pdcc.data.reading import ReadAnswers
    from pdcc.fitted import Fitted
    from pdcc.select.refit import Changes

logger = logging.getLogger(__name__)


def go_on(
    earlier: Path,
    added: list[Path],
    output: Path,
    *,
    features: Path | None,
    pairs: Path | None,
    clusters: str | None,
    options: dict[str, Any],
    fixed: dict[str, bool],
    reading: dict[str, Any],
    accuracy: bool,
    resume: bool,
    overwrite: bool,
) -> None:
    """Fit the answers of the run ``earlier`` and those of the files ``added``, from where that run ended.

    options: random_state, epochs and device. fixed: options that the earlier run has decided, and whether they were given.
    reading: options of ``read_answers``.
    """
    from pdcc.data.answers import as_answers
    from pdcc.data.joining import joined
    from pdcc.data.places import PLACES, places_of, rows_and_files
    from pdcc.data.reading import read_answers
    from pdcc.errors import PairDataError, expect
    from pdcc.estimator import VolMaxDCC
    from pdcc.storage import run as runs
    from pdcc.storage.files import file_hash
    from pdcc.storage.model import read_description

    expect(bool(added), "--add", "a file of new answers beside --from", "none", "Name it: --add more.csv.")
    expect(
        output.resolve() != earlier.resolve(), "--output", "another directory than that of --from", f"{output}",
        "The earlier run stays as it is: choose another.",
    )  # fmt: skip
    for name, given in fixed.items():
        expect(
            not given, name, "none beside --from", "one", "The earlier run has decided it: leave it out, or fit anew."
        )
    body = read_description(earlier)
    estimator = VolMaxDCC.load(earlier)
    K = estimator.n_clusters_
    if clusters not in (None, "auto", str(K)):
        raise PairDataError("--clusters", f"the {K} of {earlier}, or none", repr(clusters), "Fit anew for another K.")
    source, own_columns = body.get("source"), "columns" in reading
    if pairs is not None and (not isinstance(source, dict) or file_hash(pairs) != source.get("pairs_sha256")):
        raise PairDataError(
            "PAIRS", f"the file that {earlier} was fitted to, or none", f"{pairs}", "Name new answers with --add."
        )
    old = runs.read_data(earlier, features, same=features is None)
    place, id_column, _ = runs.features_of(earlier, body)
    place = place if features is None else features
    data, reads, places = old, [], list(body.get(PLACES, []))
    reading = _columns_told(source) | reading
    how = {"id_field": id_column, "item_ids": old.item_ids, "random_state": options["random_state"], **reading}
    for file in added:
        read = read_answers(file, **how) if own_columns else _read_as_told(file, how)
        for note in read.notes:
            logger.info(note)
        if data.annotator is not None and "annotator" not in read.frame:
            _warn_unnamed(file, read.ignored)
        found = joined(data, as_answers(old.given(), old.n_items, read, item_ids=old.item_ids))
        if found.n_known:
            logger.info("%s: holds the %d answers so far too; they count once.", file, found.n_known)
        if found.n_repeated:
            what = "answers are as the same annotator gave them before about the same pair"
            logger.warning("%s: %d %s: they count twice.", file, found.n_repeated, what)
        data = found.data
        reads.append(read)
        places += places_of(file, read, found.kept)
    plan = runs.Source.of(place, added[0], id_column, reading).going_on(body, added[1:])
    runs.check_apart(output, [place, *added])
    before = estimator.fitted_
    estimator.set_params(**{k: v for k, v in options.items() if (k, v) != ("epochs", "auto")}, n_clusters=K)
    data = estimator.check_refit(data)
    with begun(output, plan, options, resume=resume, overwrite=overwrite) as work:
        if not work:
            say(f"{output}: this run had already finished.")
            return
        estimator.refit_data(data, checkpoints=output / runs.CHECKPOINTS)
        if rank() == 0:
            whole = _all_read(runs.reading_of(earlier), reads)
            tensors, description = estimator.described()
            if rows_and_files(places, len(data)) is not None:
                description[PLACES] = places
            runs.finish(output, tensors, description, data, plan, options, read=whole)
    say(str(estimator.report_))
    say(str(estimator.changes_))
    if accuracy and estimator.changes_ is not None:
        say(_accuracy((before, old), (estimator.fitted_, data), estimator.changes_))
    say(f"{estimator.message_}\nRun kept in {output}; {earlier} is as it was.")


def _columns_told(source: Any) -> dict[str, Any]:
    """The option ``columns`` by which the answers of an earlier run were read, where it was given."""
    reading = source.get("reading") if isinstance(source, dict) else None
    columns = reading.get("columns") if isinstance(reading, dict) else None
    return {} if columns is None else {"columns": columns}


def _read_as_told(file: Path, how: dict[str, Any]) -> "ReadAnswers":
    """Answers read by the columns that the earlier run was told, as far as the file has these; else by what its own are called."""
    from pdcc.data.columns import listed
    from pdcc.data.formats import KNOWN
    from pdcc.data.reading import named_columns, read_answers
    from pdcc.data.tables import Table, load
    from pdcc.errors import PairDataError

    told = how.get("columns")
    try:
        read = read_answers(file, **how)
    except PairDataError as error:
        if told is None or error.argument != "columns":
            raise
    else:
        if told is not None:
            logger.info("%s: read by the columns that the earlier run was told: --columns %s.", file, told)
        return read
    columns = named_columns(told)
    body = load(file, KNOWN | {name.lower() for name in columns.values()})
    there = body.names if isinstance(body, Table) else ()
    kept = {part: name for part, name in columns.items() if name in there}
    if len({"i", "j"} & set(kept)) == 1:  # the other end of a pair would not be looked for
        kept = {part: name for part, name in kept.items() if part not in ("i", "j")}
    try:
        read = read_answers(file, **{**how, "columns": kept})
    except PairDataError as error:
        if error.argument not in ("pairs table", "columns"):
            raise
        found = f"the columns {listed(there) or 'none'}" if isinstance(body, Table) else "others"
        raise PairDataError(
            str(file), f"the columns that the earlier run was told, --columns {told}, or such as i, j, similar", found,
            "Say which are which: --columns i=left,j=right,similar=answer.",
        ) from error  # fmt: skip
    taken = ",".join(f"{part}={name}" for part, name in kept.items())
    logger.warning(
        "%s: has other columns than the earlier run was told (--columns %s).%s",
        file, told, f" Read by those of them that it has: --columns {taken}." if kept else "",
    )  # fmt: skip
    return read


def _warn_unnamed(file: Path, ignored: tuple[str, ...]) -> None:
    """Say that answers are taken as one unknown annotator's, where those of the earlier run are not."""
    from pdcc.data.columns import listed
    from pdcc.data.joining import UNNAMED

    columns = f" Columns that are ignored: {listed(ignored)}." if ignored else ""
    logger.warning(
        "%s: it does not say who gave the answers, as those so far do: all of them are taken as by one annotator, %r.%s If a column names the annotators, say so: --columns annotator=%s.",
        file, UNNAMED, columns, ignored[0] if len(ignored) == 1 else "NAME",
    )  # fmt: skip


def _all_read(earlier: dict[str, Any] | None, reads: "list[ReadAnswers]") -> "ReadAnswers":
    """How all answers were read: notes, and what was set aside, of the earlier run and then of each file."""
    from dataclasses import replace

    import pandas as pd

    told = earlier or {"notes": [], "n_rows": 0, "unsure": [], "unreadable": []}
    parts = {
        name: pd.concat([pd.DataFrame(told[name]), *(getattr(read, name) for read in reads)], ignore_index=True)
        for name in ("unsure", "unreadable")
    }
    notes = [*told["notes"], *(note for read in reads for note in read.notes)]
    rows = int(told["n_rows"]) + sum(read.n_rows for read in reads)
    return replace(reads[-1], notes=tuple(notes), n_rows=rows, **parts)


def _accuracy(earlier: "tuple[Fitted, PairData]", now: "tuple[Fitted, PairData]", changes: "Changes") -> str:
    """The quick estimate of right labels before and after; where the labels are the same, one: two would seem to differ in accuracy."""
    from pdcc.accuracy.estimate import believed, judge_labels

    same = not len(changes.moved) and not changes.n_new_items
    found = [
        judge_labels(fitted, data, quick=True, progress=sys.stderr.isatty() and rank() == 0)
        for fitted, data in ([now] if same else [earlier, now])
    ]
    words = [str(one.accuracy) if one.accuracy else f"no claim ({one.reason})" for one in found]
    if same:
        return f"Labels that are right, by a quick estimate: the same labels, now judged by more answers: {words[0]}."
    told, last = f"Labels that are right, by a quick estimate: {words[0]} before, {words[-1]} now.", found[-1]
    if not last.accuracy:
        return told
    # What is known now is known of the earlier labels too.
    then = earlier[0].memberships(earlier[1].features).argmax(axis=1)
    return f"{told} By all answers, about {believed(last.beliefs[: len(then)], then):.0%} of the earlier labels were right."
