"""Writes the measured tables into README.md and docs from the records in docs/measured; ``--check`` only compares.

A record is the cells.jsonl of a ``pdcc bench`` run: copy it to docs/measured/PRESET.jsonl.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pdcc.experiments.bank_summary import bank_tables
from pdcc.experiments.cells import plan
from pdcc.experiments.compare import Records, summarise
from pdcc.experiments.presets import PRESETS
from pdcc.experiments.robustness import degradation, volume_choices
from pdcc.experiments.tables import READ_AS, comparisons, markdown, stamp
from pdcc.experiments.wording import as_table, name_of
from pdcc.storage.journal import read_lines

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "docs" / "measured"
# What README.md has room for; docs/results.md has all of it.
FEW_METHODS = ("kmeans", "pck-means", "c-idec", "volmax-paper", "vanilla", "volmax")
FEW_TASKS = ("cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse", "labelme")


def measured(preset: str) -> list[dict[str, Any]]:
    """The committed records of a preset, in the order of its tasks and methods."""
    chosen = PRESETS[preset]
    done = {(r["task"], r["method"], r["trial"]): r for r in read_lines(MEASURED / f"{preset}.jsonl") if r["seed"] == 0}
    cells = plan(chosen.tasks, chosen.methods, chosen.trials, 0)
    return [done[c.task, c.method, c.trial] for c in cells if (c.task, c.method, c.trial) in done]


def block(preset: str, *parts: Callable[[Records], str], read_as: str = READ_AS) -> str:
    """Parts of one preset's report, how they are read, and when it was measured."""
    records = measured(preset)
    if not records:
        return "Not measured yet."
    return "\n\n".join([*(part(records).strip() for part in parts), f"{read_as} {stamp(records)}".strip()])


def some(*measures: str) -> Callable[[Records], str]:
    """Only the tables of these measures."""
    return lambda records: markdown(records, measures)


def short(records: Records) -> str:
    """Accuracy on seen items alone, a row per task, with the best means in bold."""
    table = summarise(records)
    found = {(r["task"], r["method"]): r for r in table[table["measure"] == "acc_seen"].to_dict("records")}
    rows = []
    for task in FEW_TASKS:
        done = {m: found[task, m] for m in FEW_METHODS if (task, m) in found}
        best = max((f"{cell['mean']:.3f}" for cell in done.values()), default="")
        cells = {m: f"{cell['mean']:.3f} ± {cell['std']:.3f}" for m, cell in done.items()}
        bold = {m: f"**{cell}**" if cell.startswith(best) else cell for m, cell in cells.items()}
        rows.append([task, *(bold.get(m, "not run") for m in FEW_METHODS)])
    return as_table(["ACC", *map(name_of, FEW_METHODS)], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "HUMAN_NOISE_SHORT": lambda: short(measured("human-noise")),
    "HUMAN_NOISE": lambda: block("human-noise", some("acc", "log_loss", "auc")),
    "HUMAN_NOISE_COMPARED": lambda: block("human-noise", comparisons, read_as=""),
    "HUMAN_NOISE_COSTS": lambda: block("human-noise", some("nmi", "ari", "seconds", "peak_mb")),
    "MACHINE": lambda: block("machine", some("acc", "followed"), volume_choices, degradation),
    "QUICK": lambda: block("quick", some("acc", "seconds")),
    "ABLATION": lambda: block("ablation", some("acc")),
    "VOLUMES": lambda: block("volumes", some("acc"), comparisons),
    "VOLUMES_RAW": lambda: block("volumes-raw", some("acc"), comparisons),
    "BANK": lambda: block("bank", bank_tables, read_as=""),
}


def rewritten(text: str) -> str:
    """The document with every marked block as the records have it."""

    def fresh(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- {name} -->\n{BLOCKS[name]()}\n<!-- /{name} -->" if name in BLOCKS else found[0]

    return re.sub(r"<!-- (?P<name>[A-Z_]+) -->\n.*?<!-- /(?P=name) -->", fresh, text, flags=re.DOTALL)


def main() -> None:
    """Rewrite, or with --check complain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail where a table differs from its record"
    )
    check = parser.parse_args().check
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        old = path.read_text(encoding="utf-8")
        new = rewritten(old)
        if new != old:
            stale.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and stale:
        raise SystemExit(f"{', '.join(stale)}: tables differ from docs/measured. Run python benchmarks/tables.py.")


if __name__ == "__main__":
    main()
