"""Records of a benchmark as a table of cells (CSV), a summary (Markdown, JSON) and a figure."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pdcc.bench.methods import IN_PAPER, METHODS
from pdcc.bench.published import published
from pdcc.inference.checkpoint import write_atomic
from pdcc.records import write_figure, write_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Records = Sequence[dict[str, Any]]
KNOWN = ("task", "method", "trial", "seed", "status", "message", "versions", "n_items", "n_pairs", "flip_rate")
COSTS = ("seconds", "peak_mb")
# Of these the least is best.
SMALL_IS_GOOD = ("log_loss", "mse", *COSTS)


def summarise(records: Records) -> pd.DataFrame:
    """One row a task, method and measure: mean, standard deviation, standard error, trials done and failed."""
    rows = []
    pairs = dict.fromkeys((r["task"], r["method"]) for r in records)
    names = dict.fromkeys([*(k for r in records for k in r if k not in (*KNOWN, *COSTS)), *COSTS])
    for task, method in pairs:
        mine = [r for r in records if (r["task"], r["method"]) == (task, method)]
        failed = sum(r["status"] == "failed" for r in mine)
        for name in names:
            values = np.array([r[name] for r in mine if r["status"] == "done" and r.get(name) is not None])
            values = values[np.isfinite(values)]
            if len(values) == 0 and not (failed and name in ("acc_seen", "seconds")):
                continue
            std = float(values.std(ddof=1)) if len(values) > 1 else np.nan
            rows.append(
                {
                    "task": task, "method": method, "measure": name, "mean": float(values.mean()) if len(values) else np.nan,
                    "std": std, "se": std / np.sqrt(len(values)) if len(values) > 1 else np.nan, "done": len(values), "failed": failed,
                }
            )  # fmt: skip
    columns = ["task", "method", "measure", "mean", "std", "se", "done", "failed"]
    return pd.DataFrame(rows, columns=columns)


def paired(records: Records, measure: str, method: str, rival: str) -> pd.DataFrame:
    """Mean difference method - rival over trials both finished, with its standard error, a row a task."""
    rows = []
    for task in dict.fromkeys(r["task"] for r in records):
        value = {
            (r["method"], r["trial"], r["seed"]): r[measure]
            for r in records
            if r["task"] == task and r["status"] == "done" and r.get(measure) is not None
        }
        gaps = np.array([v - value[rival, *key[1:]] for key, v in value.items() if key[0] == method and (rival, *key[1:]) in value])  # fmt: skip
        if len(gaps):
            se = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else np.nan
            rows.append({"task": task, "difference": float(gaps.mean()), "se": se, "trials": len(gaps)})
    return pd.DataFrame(rows, columns=["task", "difference", "se", "trials"])


def oracle_loss(records: Records, chosen: str, options: Sequence[str], measure: str = "acc_seen") -> pd.DataFrame:
    """What a label-free choice costs: the best option of each trial, by labels, minus ``chosen``; mean over trials, a row a task."""
    rows = []
    for task in dict.fromkeys(r["task"] for r in records):
        value = {(r["method"], r["trial"]): r[measure] for r in records if r["task"] == task and r.get(measure) is not None}  # fmt: skip
        trials = [t for m, t in value if m == chosen and all((o, t) in value for o in options)]
        best = np.array([max(value[o, t] for o in options) for t in trials])
        mine = np.array([value[chosen, t] for t in trials])
        if len(trials):
            rows.append({"task": task, "oracle": best.mean(), "chosen": mine.mean(), "loss": (best - mine).mean(), "trials": len(trials)})  # fmt: skip
    return pd.DataFrame(rows, columns=["task", "oracle", "chosen", "loss", "trials"])


def markdown(records: Records) -> str:
    """One table a measure, tasks across: mean ± standard error; the best in bold, the second best in italics."""
    table = summarise(records)
    if table.empty:
        return "Nothing was run.\n"
    blocks = []
    for base in dict.fromkeys(_base(m) for m in table["measure"]):
        part = table[table["measure"].map(_base) == base]
        tasks = list(dict.fromkeys(part["task"]))
        lines = [f"| {_title(base)} | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
        cells = {task: _column(part[part["task"] == task], base) for task in tasks}
        for method in dict.fromkeys(part["method"]):
            row = [cells[task].get(method, "not run") for task in tasks]
            lines.append(f"| {METHODS[method].title if method in METHODS else method} | " + " | ".join(row) + " |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _base(measure: str) -> str:
    return measure.removesuffix("_seen").removesuffix("_unseen")


def _title(base: str) -> str:
    names = {"acc": "ACC, seen / unseen", "nmi": "NMI, seen / unseen", "ari": "ARI, seen / unseen", "mse": "membership MSE, seen / unseen", "peak_mb": "peak memory, MB", "log_loss": "log-loss", "auc": "AUC"}  # fmt: skip
    head, _, tail = base.partition(", ")
    return names.get(head, head) + (f", {tail}" if tail else "")


def _column(part: pd.DataFrame, base: str) -> dict[str, str]:
    """The cells of one task: ``mean ± se / unseen mean (trials)``, best and second best marked by the seen mean."""
    first = {r["method"]: r for r in part[~part["measure"].str.endswith("_unseen")].to_dict("records")}
    unseen = {r["method"]: r["mean"] for r in part[part["measure"].str.endswith("_unseen")].to_dict("records")}
    honest = [r["mean"] for m, r in first.items() if "oracle" not in m and not np.isnan(r["mean"])]
    best = sorted(honest, reverse=not base.startswith(SMALL_IS_GOOD))[:2]
    digits = 0 if base in COSTS else 3
    out = {}
    for method, row in first.items():
        if np.isnan(row["mean"]):
            out[method] = f"failed ({row['failed']})"
            continue
        text = f"{row['mean']:.{digits}f}" + ("" if np.isnan(row["se"]) else f" ± {row['se']:.{digits}f}")
        if base not in COSTS and len(honest) > 1 and "oracle" not in method and row["mean"] in best:
            text = f"**{text}**" if row["mean"] == best[0] else f"*{text}*"
        text += f" / {unseen[method]:.{digits}f}" if method in unseen else ""
        failed = f", {row['failed']} failed" if row["failed"] else ""
        out[method] = f"{text} ({row['done']}{failed})"
    return out


def beside_published(records: Records) -> pd.DataFrame:
    """Our means beside the paper's, for the tasks of the paper: task, method, metric, split, and mean and std of either."""
    theirs = published(setting="main")
    theirs = theirs.assign(method=theirs["method"].map(IN_PAPER))
    ours = summarise(records)
    parts = ours["measure"].str.extract(r"^(acc|nmi|ari)_(seen|unseen)$")
    ours = ours.assign(metric=parts[0].str.upper(), split=parts[1])
    on = ["task", "method", "metric", "split"]
    both = theirs[[*on, "mean", "std", "note"]].merge(ours[[*on, "mean", "std"]], on=on, suffixes=("_paper", "_here"))
    return both.rename(columns={"note": "paper_note"})


def plot_bench(records: Records, measure: str = "acc_seen") -> "Figure":
    """Mean and standard error of every method, a panel a task."""
    from matplotlib.figure import Figure

    table = summarise(records)
    table = table[table["measure"] == measure]
    tasks, methods = list(dict.fromkeys(table["task"])), list(dict.fromkeys(table["method"]))
    figure = Figure(figsize=(2.4 * max(len(tasks), 1) + 2, 0.32 * len(methods) + 1.2), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, max(len(tasks), 1), sharey=True))
    for axis, task in zip(axes, tasks, strict=False):
        part = table[table["task"] == task].set_index("method").reindex(methods)
        axis.errorbar(part["mean"], np.arange(len(methods)), xerr=part["se"], fmt="o", markersize=4, capsize=2)
        axis.set_title(task, fontsize=9)
        axis.set_xlabel(measure.replace("_", ", ").upper() if measure.startswith("acc") else measure, fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    titles = [METHODS[m].title.strip("*") if m in METHODS else m for m in methods]
    axes[0].set_yticks(np.arange(len(methods)), titles, fontsize=8)
    axes[0].invert_yaxis()
    return figure


def write_report(records: Records, output: Path, title: str) -> str:
    """cells.csv, summary.csv, summary.json, table.md and figure.png in ``output``; returns the Markdown."""
    frame = pd.DataFrame([{k: v for k, v in r.items() if k != "versions"} for r in records])
    write_table(output / "cells.csv", frame)
    table = summarise(records)
    write_table(output / "summary.csv", table)
    versions = records[-1]["versions"] if records else {}
    body = {"title": title, "date": date.today().isoformat(), "versions": versions, "rows": json.loads(table.to_json(orient="records"))}  # fmt: skip
    write_atomic(output / "summary.json", json.dumps(body, indent=1).encode())
    packages = ", ".join(f"{k} {v}" for k, v in versions.items())
    failures = [r for r in records if r["status"] == "failed"]
    text = f"# {title}\n\n{body['date']}; {packages}. Mean ± standard error over (trials); best in bold, second best in italics.\n\n{markdown(records)}"
    beside = beside_published(records)
    if not beside.empty:
        write_table(output / "beside_paper.csv", beside)
        text += "\nThe paper's own figures stand beside these in beside_paper.csv.\n"
    if failures:
        text += "\nFailures:\n\n" + "".join(f"- {r['task']}, {r['method']}, trial {r['trial']}: {r['message']}\n" for r in failures)  # fmt: skip
    write_atomic(output / "table.md", text.encode())
    measure = "acc_seen" if "acc_seen" in set(table["measure"]) else next(iter(table["measure"]), "acc_seen")
    write_figure(output / "figure.png", plot_bench(records, measure))
    return text
