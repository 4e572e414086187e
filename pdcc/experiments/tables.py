"""Records of a benchmark as a table of cells (CSV), a summary (Markdown, JSON) and a figure."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.experiments.compare import (
    COSTS,
    SMALL_IS_GOOD,
    Records,
    against_best,
    headlines,
    oracle_loss,
    paired,
    summarise,
)
from pdcc.experiments.methods import IN_PAPER, METHODS
from pdcc.experiments.paper.published import THREE_HIDDEN_LAYERS, published
from pdcc.experiments.robustness import degradation, volume_choices
from pdcc.experiments.wording import as_table, name_of, plus_minus
from pdcc.plots.experiments import plot_bench
from pdcc.storage.files import write_atomic
from pdcc.storage.journal import write_figure, write_table

TITLES = {
    "acc": "ACC, seen / unseen", "nmi": "NMI, seen / unseen", "ari": "ARI, seen / unseen", "mse": "membership MSE, seen / unseen",
    "followed": "ACC against the annotator's own labels", "log_loss": "log-loss of held-out answers", "auc": "AUC of held-out answers", "peak_mb": "peak memory, MB",
}  # fmt: skip
# Following the annotator is good where it is right.
NEITHER_GOOD_NOR_BAD = (*COSTS, "followed")
READ_AS = "Mean ± standard deviation over (trials); the best mean in bold, the second best in italics (on seen items, where there are unseen ones)."
READ_GAPS = "Differences are means over the trials both finished, ± their standard errors."


def stamp(records: Records) -> str:
    """Between which days, with which versions, and by which states of the source the records were made."""
    days = sorted({r["date"] for r in records})
    versions = sorted({", ".join(f"{k} {v}" for k, v in r["versions"].items()) for r in records})
    sources = sorted({r.get("source", "unknown") for r in records})
    return f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} with {' and with '.join(versions)} (source {', '.join(sources)})."


def markdown(records: Records, measures: tuple[str, ...] = ()) -> str:
    """One table per measure (those named, or all), tasks across: mean ± standard deviation (trials); best bold, second in italics."""
    table = summarise(records)
    if table.empty:
        return "Nothing was run.\n"
    # "log_loss, new people" of a task is the log-loss in a column of its own.
    table[["base", "column"]] = [_place(m, t) for m, t in zip(table["measure"], table["task"], strict=True)]
    blocks = []
    for base in measures or tuple(dict.fromkeys(table["base"])):
        part = table[table["base"] == base]
        if part.empty:
            continue
        methods = sorted(dict.fromkeys(part["method"]), key=lambda m: list(METHODS).index(m) if m in METHODS else -1)
        cells = {column: _column(part[part["column"] == column], base) for column in dict.fromkeys(part["column"])}
        rows = [[cell.get(method, "not run") for cell in cells.values()] for method in methods]
        names = [name_of(method) for method in methods]
        blocks.append(
            as_table([TITLES.get(base, base), *cells], [[n, *row] for n, row in zip(names, rows, strict=True)])
        )
    return "\n\n".join(blocks) + "\n"


def _place(measure: str, task: str) -> tuple[str, str]:
    """The table and the column in it that a measure of a task belongs to."""
    base, _, what = measure.removesuffix("_seen").removesuffix("_unseen").partition(", ")
    return base, f"{task}, {what}" if what else task


def comparisons(records: Records) -> str:
    """What the tables are read for: the default beside the best, one confusion each beside one for all, volumes chosen without labels."""
    blocks = []
    swept = {
        kind: sorted({r["method"] for r in records if r["method"].startswith(f"{kind}-v")})
        for kind in ("volmax", "raw", "volmax-paper")
    }
    beside = against_best(records, "volmax")
    if not beside.empty and not any(
        len(fixed) > 1 for fixed in swept.values()
    ):  # the best of all volumes is the oracle's, below
        rows = [
            [r["task"], r["measure"], name_of(r["best_other"]), f"{r['other']:.3f}", f"{r['mean']:.3f}", _gap(r), {True: "yes", False: "**no**"}.get(r["within"], "one trial")]
            for r in beside.to_dict("records")
        ]  # fmt: skip
        head = ["task", "measure", "best of the others", "its mean", "default", "default better by", "within one SE"]
        blocks.append("The default beside the best of the others, paired over trials:\n\n" + as_table(head, rows))
    each = [
        [r["task"], measure, _gap(r), str(r["trials"])]
        for measure in headlines(records)
        for r in paired(records, measure, "volmax-per-annotator", "volmax-shared").to_dict("records")
    ]
    if each:
        blocks.append("A confusion for each annotator minus one for all, paired over trials:\n\n" + as_table(["task", "measure", "difference", "trials"], each))  # fmt: skip
    for kind, fixed in swept.items():
        for chosen in dict.fromkeys(("volmax", f"{kind}-selected")) if len(fixed) > 1 else ():
            loss = oracle_loss(records, chosen, fixed)
            if loss.empty:
                continue
            rows = [[r["task"], f"{r['oracle']:.3f}", f"{r['chosen']:.3f}", f"{r['loss']:.3f}{plus_minus(r['se'])}", str(r["trials"])] for r in loss.to_dict("records")]  # fmt: skip
            rows.append(["mean", f"{loss['oracle'].mean():.3f}", f"{loss['chosen'].mean():.3f}", f"{loss['loss'].mean():.3f}", ""])  # fmt: skip
            blocks.append(f"What {name_of(chosen).strip('*')} loses to the volume best in each trial, which only labels tell (oracle), ACC on seen items:\n\n" + as_table(["task", "oracle", "chosen", "loss", "trials"], rows))  # fmt: skip
    return "\n\n".join([*blocks, READ_GAPS]) + "\n" if blocks else ""


def _gap(row: dict[Any, Any]) -> str:
    return f"{row['difference']:+.3f}{plus_minus(row['se'])}"


def _column(part: pd.DataFrame, base: str) -> dict[str, str]:
    """The cells of one task: ``mean ± std / unseen mean ± std (trials)``, best and second best marked by the seen mean."""
    first = {r["method"]: r for r in part[~part["measure"].str.endswith("_unseen")].to_dict("records")}
    unseen = {r["method"]: r for r in part[part["measure"].str.endswith("_unseen")].to_dict("records")}
    honest = [r["mean"] for m, r in first.items() if "oracle" not in m and not np.isnan(r["mean"])]
    best = sorted(honest, reverse=not base.startswith(SMALL_IS_GOOD))[:2]
    digits = 0 if base in COSTS else 3
    out = {}
    for method, row in first.items():
        if np.isnan(row["mean"]):
            out[method] = f"failed ({row['failed']})"
            continue
        text = _spread(row, digits)
        if base not in NEITHER_GOOD_NOR_BAD and len(honest) > 1 and "oracle" not in method and row["mean"] in best:
            text = f"**{text}**" if row["mean"] == best[0] else f"*{text}*"
        text += f" / {_spread(unseen[method], digits)}" if method in unseen else ""
        failed = f", {row['failed']} failed" if row["failed"] else ""
        out[method] = f"{text} ({row['done']}{failed})"
    return out


def _spread(row: dict[Any, Any], digits: int) -> str:
    return f"{row['mean']:.{digits}f}{plus_minus(row['std'], digits)}"


def beside_published(records: Records) -> pd.DataFrame:
    """Our means beside the paper's, for the tasks of the paper: task, method, metric, split, and mean and std of either."""
    names = pd.DataFrame(
        [(*theirs, method) for method, theirs in IN_PAPER.items()], columns=["name", "three", "method"]
    )
    theirs = published().rename(columns={"method": "name"})
    theirs = theirs.assign(three=theirs["setting"] == THREE_HIDDEN_LAYERS).merge(names, on=["name", "three"])
    ours = summarise(records)
    parts = ours["measure"].str.extract(r"^(acc|nmi|ari)_(seen|unseen)$")
    ours = ours.assign(metric=parts[0].str.upper(), split=parts[1])
    on = ["task", "method", "metric", "split"]
    both = theirs[[*on, "mean", "std", "note"]].merge(ours[[*on, "mean", "std"]], on=on, suffixes=("_paper", "_here"))
    return both.rename(columns={"note": "paper_note"})


def _beside(table: pd.DataFrame) -> str:
    """The ACC of the paper beside ours; the other two measures are in beside_paper.csv."""
    part = table[table["metric"] == "ACC"]
    rows = [
        [r["task"], name_of(r["method"]), r["split"], *(_spread({"mean": r[f"mean_{w}"], "std": r[f"std_{w}"]}, 3) for w in ("paper", "here"))]
        for r in part.to_dict("records")
    ]  # fmt: skip
    head = ["task", "method", "items", "ACC in the paper", "ACC here"]
    return (
        "The paper's own figures beside ours (NMI and ARI, un-swapped where the paper swaps them, in beside_paper.csv):\n\n"
        + as_table(head, rows)
    )


def write_cells(records: Records, output: Path, title: str) -> pd.DataFrame:
    """cells.csv, summary.csv and summary.json in ``output``; returns the summary."""
    frame = pd.DataFrame([{k: v for k, v in r.items() if k != "versions"} for r in records])
    write_table(output / "cells.csv", frame)
    table = summarise(records)
    write_table(output / "summary.csv", table)
    made = stamp(records) if records else ""
    body = {"title": title, "made": made, "rows": json.loads(table.to_json(orient="records"))}
    write_atomic(output / "summary.json", json.dumps(body, indent=1).encode())
    return table


def failures(records: Records) -> str:
    """A list of the cells that failed, and of what; empty where none did."""
    failed = [r for r in records if r["status"] == "failed"]
    lines = "".join(f"- {r['task']}, {r['method']}, trial {r['trial']}: {r['message']}\n" for r in failed)
    return f"\nFailures:\n\n{lines}" if failed else ""


def write_report(records: Records, output: Path, title: str) -> str:
    """cells.csv, summary.csv, summary.json, table.md and figure.png in ``output``; returns the Markdown."""
    table = write_cells(records, output, title)
    text = f"# {title}\n\n{READ_AS} {stamp(records) if records else ''}\n\n{markdown(records)}"
    for part in (comparisons(records), volume_choices(records), degradation(records)):
        text += f"\n{part}" if part else ""
    beside = beside_published(records)
    if not beside.empty:
        write_table(output / "beside_paper.csv", beside)
        text += f"\n{_beside(beside)}\n"
    text += failures(records)
    write_atomic(output / "table.md", text.encode())
    measure = "acc_seen" if "acc_seen" in set(table["measure"]) else next(iter(table["measure"]), "acc_seen")
    write_figure(output / "figure.png", plot_bench(table, measure, {m: name_of(m).strip("*") for m in METHODS}))
    return text
