"""What more wrong answers cost each method, and which volume labels or answers would have chosen."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from pdcc.experiments.compare import Records, standard_error
from pdcc.experiments.wording import as_table, name_of, plus_minus

GRID = "volmax-paper-v"
# How a volume of the grid is chosen in every trial, from what its fits left on record: by which figure, and whether the most is best.
CHOICES = {
    "by classes of validation items (oracle)": ("acc_valid", 1.0),
    "by held-out answers": ("held_out", -1.0),
    "by classes of the seen items (oracle)": ("acc_seen", 1.0),
}
ANNOTATOR = "the annotator's own labels"
Trial = tuple[str, int, int]


def trials_of(records: Records) -> dict[Trial, dict[str, dict[str, Any]]]:
    """The finished records of every (task, trial, seed), by method."""
    found: dict[Trial, dict[str, dict[str, Any]]] = {}
    for r in records:
        if r["status"] == "done":
            found.setdefault((r["task"], r["trial"], r["seed"]), {})[r["method"]] = r
    return found


def chosen_volumes(records: Records, by: str, sign: float) -> dict[Trial, dict[str, Any]]:
    """The record of the volume with the best ``by`` in every trial that has two or more, the least volume among equals."""
    out = {}
    for trial, methods in trials_of(records).items():
        grid = [r for name, r in methods.items() if name.startswith(GRID) and r.get(by) is not None]
        grid.sort(key=lambda r: float(r["method"].removeprefix(GRID)))
        if len(grid) > 1:
            out[trial] = max(grid, key=lambda r: sign * r[by])  # the first of equals
    return out


def volume_choices(records: Records) -> str:
    """ACC on seen items at the volume chosen in each of three ways, as Markdown; empty where no grid was run.

    No new fit: the epoch is the one that predicts held-out answers best, whatever chooses the volume.
    """
    found = {how: chosen_volumes(records, *by) for how, by in CHOICES.items()}
    some = next(iter(found.values()))
    rows = []
    for task in dict.fromkeys(task for task, _, _ in some):
        cells = [task]
        for picked in found.values():
            mine = [r for (at, _, _), r in picked.items() if at == task]
            times = Counter(r["method"].removeprefix(GRID) for r in mine)
            volumes = ", ".join(v if n == 1 else f"{v} ({n} times)" for v, n in sorted(times.items(), key=_volume))
            cells.append(f"{_mean(r['acc_seen'] for r in mine)} at {volumes}" if mine else "not run")
        rows.append([*cells, str(sum(at == task for at, _, _ in some))])
    if not rows:
        return ""
    return (
        "VolMaxDCC as published, at the volume chosen from the grid in each trial (ACC on seen items; the epoch by held-out answers):\n\n"
        + as_table(["task", *CHOICES, "trials"], rows)
        + "\n"
    )


def _volume(item: tuple[str, int]) -> float:
    return float(item[0])


def _mean(values: Iterable[float]) -> str:
    each = np.array(list(values))
    return f"{each.mean():.3f}{plus_minus(standard_error(each))}"


def degradation(records: Records) -> str:
    """ACC on seen items with no wrong answers, and what is lost of it at each share of them, paired over trials, as Markdown.

    For tasks whose names end in that share, in per cent; the least loss in bold. Empty where none has a clean twin.
    """
    by_method: dict[str, dict[tuple[str, float], dict[tuple[int, int], float]]] = {}
    for (task, trial, seed), methods in trials_of(records).items():
        data, _, percent = task.rpartition("-")
        if not _is_number(percent):
            continue
        for name, r in methods.items():
            if r.get("acc_seen") is not None:
                by_method.setdefault(name, {}).setdefault((data, float(percent)), {})[trial, seed] = r["acc_seen"]
            if r.get("annotator_acc") is not None:
                at = by_method.setdefault(ANNOTATOR, {}).setdefault((data, float(percent)), {})
                at[trial, seed] = r["annotator_acc"]
    data_sets = dict.fromkeys(data for levels in by_method.values() for data, percent in levels if percent == 0)
    return "\n".join(block for block in (_lost(data, by_method) for data in data_sets) if block)


def _lost(data: str, by_method: dict[str, dict[tuple[str, float], dict[tuple[int, int], float]]]) -> str:
    levels = sorted({p for found in by_method.values() for d, p in found if d == data and p > 0})
    if not levels:
        return ""
    rows, losses = [], {}
    for method, found in by_method.items():
        clean = found.get((data, 0.0), {})
        for level in levels:
            noisy = found.get((data, level), {})
            gaps = np.array([clean[t] - noisy[t] for t in clean if t in noisy])
            if len(gaps):
                losses[method, level] = gaps
    means = {at: float(gaps.mean()) for at, gaps in losses.items() if at[0] != ANNOTATOR and "oracle" not in at[0]}
    least = {level: min((v for (_, p), v in means.items() if p == level), default=np.nan) for level in levels}
    for method, found in sorted(by_method.items(), key=lambda item: item[0] == ANNOTATOR):  # that one last
        if (data, 0.0) not in found or not any((method, level) in losses for level in levels):
            continue
        cells = []
        for level in levels:
            if (method, level) not in losses:
                cells.append("not run")
                continue
            gaps = losses[method, level]
            text = f"{gaps.mean():.3f}{plus_minus(standard_error(gaps))} ({len(gaps)})"
            cells.append(f"**{text}**" if means.get((method, level)) == least[level] else text)
        rows.append([name_of(method), f"{np.mean(list(found[data, 0.0].values())):.3f}", *cells])
    head = [f"{data}, ACC on seen items", "0 % wrong", *(f"lost at {level:g} %" for level in levels)]
    return (
        "What is lost to wrong answers: mean ± standard error over (trials), paired; the least loss in bold.\n\n"
        + as_table(head, rows)
        + "\n"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
