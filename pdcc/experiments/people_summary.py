"""The report of the people presets: scores, the default beside K-means and PCKMeans, and what ids change."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.experiments.compare import SMALL_IS_GOOD, Records, headlines
from pdcc.experiments.methods import KMEANS_SCALINGS, METHODS, PCK_MEANS_SCALINGS
from pdcc.experiments.people import leaves_out, parts
from pdcc.experiments.tables import failures, stamp, write_cells
from pdcc.experiments.wording import as_table, name_of, plus_minus
from pdcc.plots.experiments import plot_differences
from pdcc.storage.files import write_atomic
from pdcc.storage.journal import write_figure, write_table

DEFAULT, NO_IDS = "volmax", "volmax-no-ids"
# Each of these stands for its best scaling, which is chosen by true labels: a label-based choice.
BY_LABELS = {
    "K-means, scaling by labels": tuple(KMEANS_SCALINGS),
    "PCKMeans, scaling by labels": tuple(PCK_MEANS_SCALINGS),
}
SCALED = tuple(method for scalings in BY_LABELS.values() for method in scalings)
OVER, OVER_NO_IDS = "default - max(K-means, PCKMeans)", "without ids - max(K-means, PCKMeans)"
IDS = "ids - no ids"
DIFFERENCES = (OVER, OVER_NO_IDS, IDS)
CELL, DRAW = ["study", "task", "measure"], ["trial", "seed"]
LOSS = "log_loss"
READ_AS = (
    "Mean ± standard error over the draws. Scores are ACC on the seen items; of DWUG, which has no true classes, AUC "
    "on held-out answers. K-means and PCKMeans have the scaling with the best mean score of the cell. That is a "
    "label-based choice: true labels (DWUG: the held-out answers) make it, and nobody has those. Every scaling is in "
    "summary.csv. Differences are paired over the draws that both methods finished. In the cells with all answers of "
    "birds5 and dogs3, draw 0 has every answer and each other draw leaves out a tenth of the sessions. These draws "
    "share most of their answers, so their standard error is smaller than that over new annotators."
)


def compare_draws(records: Records) -> pd.DataFrame:
    """One row per cell (study, task, measure) and draw: every method's score, those of BY_LABELS, and the differences.

    "scalings" (a tuple) names what the true labels chose for each of BY_LABELS. A difference above 0 is in favour of
    what stands first, also where a small score is good.
    """
    rows = [
        (parts(r["task"])[0], r["task"], measure, r["trial"], r["seed"], r["method"], r[measure])
        for r in records
        if r["status"] == "done"
        for measure in headlines([r])
    ]
    long = pd.DataFrame(rows, columns=[*CELL, *DRAW, "method", "score"])
    wide = long.pivot(index=[*CELL, *DRAW], columns="method", values="score")
    wide = wide.reindex(pd.MultiIndex.from_frame(long[[*CELL, *DRAW]].drop_duplicates()))  # in the order of the plan
    cells = [_with_differences(cell, str(at[1]), str(at[2])) for at, cell in wide.groupby(level=CELL, sort=False)]
    return pd.concat(cells) if cells else wide


def _with_differences(cell: pd.DataFrame, task: str, measure: str) -> pd.DataFrame:
    """The draws of one cell with the columns that ``compare_draws`` adds.

    Where a scaling was not run there is no difference: a part of the comparison would flatter the default.
    """
    sign = -1.0 if measure.startswith(SMALL_IS_GOOD) else 1.0
    cell, chosen = cell.copy(), []
    for title, methods in BY_LABELS.items():
        means = sign * cell.reindex(columns=list(methods)).mean()
        best = str(means.idxmax()) if means.notna().any() else ""
        cell[title] = cell[best] if best else np.nan
        chosen.append(best)
    means = sign * cell[list(BY_LABELS)].mean()
    known = cell.reindex(columns=[m for m in SCALED if not leaves_out(task, m)]).notna().any().all()
    bar = cell[means.idxmax()] if known else np.nan
    mine = cell.reindex(columns=[DEFAULT, NO_IDS])
    cell[OVER], cell[OVER_NO_IDS] = sign * (mine[DEFAULT] - bar), sign * (mine[NO_IDS] - bar)
    cell[IDS] = sign * (mine[DEFAULT] - mine[NO_IDS])
    cell["scalings"] = [tuple(chosen)] * len(cell)
    return cell


def summarise_people(draws: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: the number of draws, and the mean and error over draws of each column of ``compare_draws``."""
    rows = []
    for at, cell in draws.groupby(level=CELL, sort=False):
        row: dict[str, Any] = dict(zip(CELL, at, strict=True)) | {"draws": len(cell)}
        row |= dict(zip((f"{title} (which)" for title in BY_LABELS), cell["scalings"].iloc[0], strict=True))
        rows.append(row | _means(cell.drop(columns="scalings")))
    return pd.DataFrame(rows)


def summarise_studies(draws: pd.DataFrame) -> pd.DataFrame:
    """One row per study and "all studies": means over its cells (not log-loss), and their errors over draws.

    A study's cells share their answers, so each draw is averaged over the cells first; draws that some cell lacks are
    left out. Studies are independent of each other.
    """
    scores = draws[~draws.index.get_level_values("measure").str.startswith(LOSS)].drop(columns="scalings")
    rows: list[dict[str, Any]] = []
    for study, part in scores.groupby(level="study", sort=False):
        n_cells = len(part.groupby(level=CELL))
        counted = part.groupby(level=DRAW).transform("count")
        each = part.where(counted == n_cells).groupby(level=DRAW).mean()
        rows.append({"study": study, "cells": n_cells, "draws": int(each.notna().any(axis=1).sum())} | _means(each))
    table = pd.DataFrame(rows)
    if len(table) > 1:
        every: dict[str, Any] = {"study": "all studies", "cells": table["cells"].sum()}
        for name in scores.columns:
            mean, se = table[name], table[f"{name} (se)"]
            known = mean.notna()
            every[name] = mean.mean()
            every[f"{name} (se)"] = np.sqrt((se[known] ** 2).sum(skipna=False)) / known.sum() if known.any() else np.nan
        table = pd.concat([table, pd.DataFrame([every])], ignore_index=True)
    return table


def _means(part: pd.DataFrame) -> dict[str, float]:
    """The mean and the standard error of every column over the rows (draws) that have it."""
    found = {str(name): float(mean) for name, mean in part.mean().items()}
    return found | {f"{name} (se)": float(se) for name, se in part.sem().items()}


def people_tables(records: Records) -> str:
    """The summary as Markdown: studies, what ids change, the cells of every study, and log-loss."""
    draws = compare_draws(records)
    if draws.empty:
        return "Nothing was run.\n"
    cells, studies = summarise_people(draws), summarise_studies(draws)
    losses = cells["measure"].str.startswith(LOSS)
    blocks = [READ_AS]
    if len(studies):
        blocks.append("## Means per study\n\n" + _table(studies, ["study", "cells"]))
    ids = cells[~losses & cells[IDS].notna()]
    if len(ids):
        rows = [[r["task"], r["measure"], _score(r, IDS), str(r["draws"])] for r in ids.to_dict("records")]
        blocks.append(f"## {IDS}\n\n" + as_table(["task", "measure", IDS, "draws"], rows))
    for study in dict.fromkeys(cells["study"]):
        scores = cells[(cells["study"] == study) & ~losses]
        if len(scores):
            blocks.append(f"## {study}\n\n" + _table(scores, ["task", "measure", "draws"]))
    if losses.any():
        blocks.append("## Log-loss of held-out answers\n\n" + _table(cells[losses], ["task", "measure", "draws"]))
    return "\n\n".join(blocks) + "\n"


def _table(table: pd.DataFrame, first: list[str]) -> str:
    """The columns ``first``, then the methods in the order of METHODS, then what is by labels, and the differences."""
    methods = [m for m in METHODS if m in table and m not in SCALED]
    names = [n for n in (*BY_LABELS, *methods, *DIFFERENCES) if n in table and table[n].notna().any()]
    rows = [[*(str(r[name]) for name in first), *(_score(r, n) for n in names)] for r in table.to_dict("records")]
    return as_table([*first, *(name_of(n) for n in names)], rows)


def _score(row: dict[Any, Any], name: str) -> str:
    """Mean ± standard error; of what labels chose, also which it is."""
    if np.isnan(row[name]):
        return ""
    text = f"{row[name]:{'+.3f' if name in DIFFERENCES else '.3f'}}{plus_minus(row[f'{name} (se)'])}"
    which = row.get(f"{name} (which)")
    return f"{text} ({which.rpartition('-')[2]})" if which else text


def write_people_report(records: Records, output: Path, title: str) -> str:
    """Write to ``output`` what every benchmark does, and draws.csv, people.csv (cells) and studies.csv."""
    write_cells(records, output, title)
    draws = compare_draws(records)
    if not draws.empty:
        write_table(output / "draws.csv", draws.drop(columns="scalings").reset_index())
        write_table(output / "people.csv", summarise_people(draws))
        write_table(output / "studies.csv", summarise_studies(draws))
    text = f"# {title}\n\n{stamp(records) if records else ''}\n\n{people_tables(records)}{failures(records)}"
    write_atomic(output / "table.md", text.encode())
    drawn = draws.reset_index().reindex(columns=["study", "measure", OVER])
    drawn = drawn[~drawn["measure"].astype(str).str.startswith(LOSS)]
    drawn = drawn.rename(columns={"study": "data", OVER: "difference"})
    write_figure(output / "figure.png", plot_differences(drawn).figure)
    return text
