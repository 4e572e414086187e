"""What records of a benchmark come to: means with errors, paired differences, and what choosing without labels costs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Records = Sequence[dict[str, Any]]
KNOWN = (
    "task",
    "method",
    "trial",
    "seed",
    "status",
    "message",
    "versions",
    "source",
    "date",
    "n_items",
    "n_pairs",
    "flip_rate",
    "annotator_acc",
    "acc_valid",
    "held_out",
)
COSTS = ("seconds", "peak_mb")
# Of these the least is best.
SMALL_IS_GOOD = ("log_loss", "mse", *COSTS)
# What a method is judged by: accuracy where there is truth, held-out answers where there is none.
HEADLINE = ("acc_seen", "log_loss", "auc")


def summarise(records: Records) -> pd.DataFrame:
    """One row per task, method and measure: mean, standard deviation, standard error, trials done and failed."""
    rows = []
    pairs = dict.fromkeys((r["task"], r["method"]) for r in records)
    names = dict.fromkeys([*(k for r in records for k in r if k not in (*KNOWN, *COSTS)), *COSTS])
    # A failure shows in every table of its task: what others were scored by there, or at least the time.
    measured = {
        task: {"seconds"} | {name for r in records if r["task"] == task and r["status"] == "done" for name in names if name in r}
        for task in dict.fromkeys(task for task, _ in pairs)
    }  # fmt: skip
    for task, method in pairs:
        mine = [r for r in records if (r["task"], r["method"]) == (task, method)]
        failed = sum(r["status"] == "failed" for r in mine)
        for name in names:
            values = np.array([r[name] for r in mine if r["status"] == "done" and r.get(name) is not None])
            values = values[np.isfinite(values)]
            if len(values) == 0 and not (failed and name in measured[task]):
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


def paired(records: Records, measure: str, method: str, other: str) -> pd.DataFrame:
    """Mean difference method - other over trials both finished, with its standard error, one row per task."""
    rows = []
    for task in dict.fromkeys(r["task"] for r in records):
        value = {
            (r["method"], r["trial"], r["seed"]): r[measure]
            for r in records
            if r["task"] == task and r["status"] == "done" and np.isfinite(r.get(measure, np.nan))
        }
        gaps = np.array([v - value[other, *key[1:]] for key, v in value.items() if key[0] == method and (other, *key[1:]) in value])  # fmt: skip
        if len(gaps):
            rows.append(
                {"task": task, "difference": float(gaps.mean()), "se": standard_error(gaps), "trials": len(gaps)}
            )
    return pd.DataFrame(rows, columns=["task", "difference", "se", "trials"])


def standard_error(gaps: NDArray[np.float64]) -> float:
    """Standard error of their mean; NaN for a single one."""
    return float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")


def oracle_loss(records: Records, chosen: str, options: Sequence[str], measure: str = "acc_seen") -> pd.DataFrame:
    """What a label-free choice costs: the best option of each trial, by labels, minus ``chosen``; mean and standard error over trials, one row per task."""
    rows = []
    for task in dict.fromkeys(r["task"] for r in records):
        value = {(r["method"], (r["trial"], r["seed"])): r[measure] for r in records if r["task"] == task and np.isfinite(r.get(measure, np.nan))}  # fmt: skip
        trials = [t for m, t in value if m == chosen and all((o, t) in value for o in options)]
        best = np.array([max(value[o, t] for o in options) for t in trials])
        mine = np.array([value[chosen, t] for t in trials])
        if len(trials):
            gaps = best - mine
            rows.append({"task": task, "oracle": best.mean(), "chosen": mine.mean(), "loss": gaps.mean(), "se": standard_error(gaps), "trials": len(trials)})  # fmt: skip
    return pd.DataFrame(rows, columns=["task", "oracle", "chosen", "loss", "se", "trials"])


def headlines(records: Records) -> list[str]:
    """The measures methods are judged by, as the records have them."""
    return [name for name in dict.fromkeys(k for r in records for k in r) if name.startswith(HEADLINE)]


def against_best(records: Records, method: str) -> pd.DataFrame:
    """``method`` beside the best of the others, one row per task and headline measure.

    difference: how much worse (below 0) or better (above) over the trials both finished, with its standard error;
    within: whether it is the best or less than one standard error behind (None where one trial has no such error).
    """
    table, rows = summarise(records), []
    for measure in headlines(records):
        part = table[(table["measure"] == measure) & ~table["method"].str.contains("oracle")]
        sign = -1.0 if measure.startswith(SMALL_IS_GOOD) else 1.0
        for task in dict.fromkeys(part["task"]):
            means = part[(part["task"] == task) & part["mean"].notna()].set_index("method")["mean"]
            if method not in means or len(means) < 2:
                continue
            best = str((sign * means.drop(method)).idxmax())
            gap = paired([r for r in records if r["task"] == task], measure, method, best)
            if gap.empty:
                continue
            difference, se = sign * float(gap["difference"].iloc[0]), float(gap["se"].iloc[0])
            within = True if difference >= 0 else None if np.isnan(se) else -difference <= se
            rows.append({"task": task, "measure": measure, "best_other": best, "other": means[best], "mean": means[method], "difference": difference, "se": se, "within": within})  # fmt: skip
    columns = ["task", "measure", "best_other", "other", "mean", "difference", "se", "within"]
    return pd.DataFrame(rows, columns=columns)
