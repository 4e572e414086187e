"""What the bank comes to: in how many cells the default is ahead or behind, and by how much, over data, answers and pairs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.experiments.bank import DATA, HALVES, half_of, parts
from pdcc.experiments.compare import Records, standard_error
from pdcc.experiments.methods import METHODS, ORACLES
from pdcc.experiments.tables import failures, stamp, write_cells
from pdcc.experiments.wording import as_table, name_of, plus_minus
from pdcc.plots.experiments import plot_differences
from pdcc.storage.files import write_atomic
from pdcc.storage.journal import write_figure, write_table

DEFAULT = "volmax"
# By how much the default is ahead, in ACC: of the best of these in each cell.
AHEAD_OF = {
    "over_oracle": tuple(ORACLES),
    "over_standard": ("kmeans-standard", "pck-means-standard"),
    "over_vanilla": ("vanilla",),
}
# A cell is behind, or far behind, where the default's ACC is so much below.
BEHIND, FAR_BEHIND = -0.02, -0.05
# How the reason of a fit says that what was trained first was not returned: another specification was, or a partition.
FELL_BACK = re.compile(
    r"\b(fell|falls|fall) back\b|\bkept (its|the) start\b|\bstart (is|was) kept\b|\btrained with\b", re.IGNORECASE
)
READ_AS = (
    "A cell is one trial of one task. Differences are in ACC, paired over cells, mean ± standard error of the cells. "
    "Oracle: the best of K-means and PCKMeans over three scalings in each cell by the true labels, which nobody has; standardised: the better of the two on standardised columns. "
    f"Behind: the share of cells where the default is more than {-BEHIND:g} below. Seconds are of the default's fit."
)


def compare_cells(records: Records) -> pd.DataFrame:
    """One row per cell that the default finished: data, half, kind, ratio, trial, seed, acc, seconds, fell_back, and AHEAD_OF.

    A difference is NaN where one of the methods it is about has no result.
    """
    at = ["task", "trial", "seed"]
    done = [r for r in records if r["status"] == "done"]
    own = [
        {name: r[name] for name in (*at, "seconds")} | {"fell_back": bool(FELL_BACK.search(r["message"]))}
        for r in done
        if r["method"] == DEFAULT
    ]
    columns = [*at, "data", "half", "kind", "ratio", "acc", "seconds", "fell_back", *AHEAD_OF]
    if not own:
        return pd.DataFrame(columns=columns)
    reached = accuracies(records)
    table = pd.DataFrame(own).set_index(at)
    mine = reached[DEFAULT].reindex(table.index)
    table["acc"] = mine
    for name, others in AHEAD_OF.items():
        best = reached.reindex(columns=list(others)).max(axis=1, skipna=False)
        table[name] = mine - best.reindex(table.index)
    table = table.reset_index()
    table[["data", "kind", "ratio"]] = [parts(task) for task in table["task"]]
    table["half"] = [half_of(data) for data in table["data"]]
    return table[columns]


def accuracies(records: Records) -> pd.DataFrame:
    """ACC of every method, and of the oracles whose methods all finished, by task, trial and seed."""
    rows = [(r["task"], r["trial"], r["seed"], r["method"], r["acc_seen"]) for r in records if r["status"] == "done"]
    at = ["task", "trial", "seed"]
    table = pd.DataFrame(rows, columns=[*at, "method", "acc"]).pivot(index=at, columns="method", values="acc")
    for oracle, methods in ORACLES.items():
        table[oracle] = table.reindex(columns=list(methods)).max(axis=1, skipna=False)
    return table


def summarise_cells(cells: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of the column ``by`` ("data": also per half), and "all": means, standard errors and shares."""
    groups = [(str(value), cells[cells[by] == value]) for value in dict.fromkeys(cells[by])]
    if by == "data":
        halves = [(f"half {half}", cells[cells["half"] == half]) for half in HALVES]
        groups += [(name, part) for name, part in halves if len(part)]
    return pd.DataFrame([{by: name} | _row(part) for name, part in [*groups, ("all", cells)]])


def _row(cells: pd.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": len(cells), "acc": cells["acc"].mean()}
    for name in AHEAD_OF:
        gaps = cells[name].dropna().to_numpy(dtype=np.float64)
        row[name] = gaps.mean() if len(gaps) else np.nan
        row[f"{name}_se"] = standard_error(gaps)
        row[f"{name}_behind"] = (gaps < BEHIND).mean() if len(gaps) else np.nan
        row[f"{name}_pairs"] = len(gaps)
    return row | {"fell_back": cells["fell_back"].mean(), "seconds": cells["seconds"].mean()}


def far_behind(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells where the default is more than .05 below the classical oracle or VanillaDCC, the worst first."""
    worst = cells[["over_oracle", "over_vanilla"]].min(axis=1)
    return cells.loc[worst[worst < FAR_BEHIND].sort_values(kind="stable").index]


def bank_tables(records: Records) -> str:
    """The summary as Markdown: by data set and half, by kind of answers, by M / N, every method's ACC, and the worst cells."""
    cells = compare_cells(records)
    if cells.empty:
        return "The default was not run.\n"
    heads = {"data": "data", "kind": "answers", "ratio": "M / N"}
    blocks = [READ_AS, *(_summary(summarise_cells(cells, by), by, head) for by, head in heads.items())]
    blocks.append("Mean ACC of every method over the cells that it finished:\n\n" + _methods(accuracies(records)))
    worst = far_behind(cells)
    rows = [
        [r["task"], str(r["trial"]), f"{r['acc']:.3f}", _signed(r["over_oracle"]), _signed(r["over_vanilla"]), "yes" if r["fell_back"] else "no"]
        for r in worst.to_dict("records")
    ]  # fmt: skip
    found = f"{len(worst)} of {len(cells)} cells where the default is more than {-FAR_BEHIND:g} below the oracle or VanillaDCC"
    head = ["task", "trial", "default", "minus oracle", "minus VanillaDCC", "fell back"]
    blocks.append(f"{found}:\n\n{as_table(head, rows)}" if rows else f"{found}.")
    failed = sum(r["method"] == DEFAULT and r["status"] == "failed" for r in records)
    if failed:
        blocks.append(f"The default failed in {failed} further cells, which are in no mean above.")
    return "\n\n".join(blocks) + "\n"


def _summary(table: pd.DataFrame, by: str, head: str) -> str:
    names = ["cells", "default", "minus oracle", "behind", "minus standardised", "behind", "minus VanillaDCC", "behind", "fell back to its start", "seconds"]  # fmt: skip
    rows = [
        [
            r[by], str(r["cells"]), f"{r['acc']:.3f}",
            *(text for name in AHEAD_OF for text in (_signed(r[name]) + plus_minus(r[f"{name}_se"]), _share(r[f"{name}_behind"]))),
            _share(r["fell_back"]), f"{r['seconds']:.1f}",
        ]
        for r in table.to_dict("records")
    ]  # fmt: skip
    return as_table([head, *names], rows)


def _signed(difference: float) -> str:
    return "not run" if np.isnan(difference) else f"{difference:+.3f}"


def _share(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.0%}"


def _methods(reached: pd.DataFrame) -> str:
    """Mean ACC, one row per method and oracle, data sets across."""
    data = np.array([parts(str(task))[0] for task in reached.index.get_level_values("task")])
    names = [m for m in (*METHODS, *ORACLES) if m in reached and reached[m].notna().any()]
    sets = [name for name in DATA if name in data]
    rows = [
        [name_of(m), *("not run" if np.isnan(mean) else f"{mean:.3f}" for mean in (reached[m][data == s].mean() for s in sets))]
        for m in names
    ]  # fmt: skip
    return as_table(["ACC", *sets], rows)


def write_bank_report(records: Records, output: Path, title: str) -> str:
    """What every benchmark writes to ``output``, and differences.csv and bank.csv: the paired cells, and their summary by data set."""
    write_cells(records, output, title)
    cells = compare_cells(records)
    write_table(output / "differences.csv", cells)
    if not cells.empty:
        write_table(output / "bank.csv", summarise_cells(cells, "data"))
    text = f"# {title}\n\n{stamp(records) if records else ''}\n\n{bank_tables(records)}{failures(records)}"
    write_atomic(output / "table.md", text.encode())
    drawn = cells.rename(columns={"over_oracle": "difference"})
    write_figure(output / "figure.png", plot_differences(drawn).figure)
    return text
