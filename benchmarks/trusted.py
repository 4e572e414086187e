"""What a hundred trusted labels are worth with real human answers, and what the diagnosis claims without them.

    PDCC_DATA=... python benchmarks/trusted.py [--trials 5] [--draws 200]

For every task and trial: a default fit to 10,000 answers, a quick look at it, and then many draws of 100 items whose classes are
made known: how often the interval holds the fit's accuracy, and how wide it is beside one from the 100 labels alone. Labels are used
for these and to score, nowhere else. Records go to docs/measured/trusted.jsonl; those that are there are not made again.
"""

import argparse
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pdcc import VolMaxDCC
from pdcc.accuracy.trusted import Trusted, named, with_trusted
from pdcc.datasets import data_directory
from pdcc.experiments import tasks
from pdcc.experiments.grid import run_study
from pdcc.experiments.labels_bank import TRUSTED, ece

RECORD = Path(__file__).resolve().parents[1] / "docs" / "measured" / "trusted.jsonl"
TASKS = ("labelme", "cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse", "cifar10n-three")


@dataclass(frozen=True)
class Setting:
    """A task, a trial of it, and how often labels are drawn."""

    task: str
    trial: int
    draws: int

    @property
    def name(self) -> str:
        return "-".join(map(str, asdict(self).values()))


def run_cell(setting):
    """Fit, look, and draw labels."""
    one = tasks.load(setting.task, setting.trial)
    given, y = (one.X, one.pairs, one.similar, one.annotators), one.truth[0]
    est = VolMaxDCC(one.n_clusters, random_state=setting.trial, progress=False).fit(*given)
    found = est.diagnose(*given, quick=True)
    p, right = found.items["probability"].to_numpy(), named(est.labels_, y)
    accuracy, rng = right.mean(), np.random.default_rng([setting.trial, 7])
    rows = []
    for _ in range(setting.draws):
        known = rng.permutation(len(y))[:TRUSTED]
        drawn = [with_trusted(est.labels_, q, Trusted(known, y[known])) for q in (p, np.full(len(p), 0.5))]
        rows.append([v for e in drawn for v in (e.low <= accuracy <= e.high, e.high - e.low)])
    held, width, alone_held, alone = np.mean(rows, axis=0)
    return asdict(setting) | {
        "name": setting.name, "accuracy": float(accuracy), "low": found.accuracy.low, "estimate": found.accuracy.estimate, "high": found.accuracy.high,
        "reason": found.accuracy_reason, "covered": float(held), "width": float(width), "alone_covered": float(alone_held), "alone_width": float(alone),
        "narrower": float(np.mean([r[1] < r[3] for r in rows])), "ece": ece(p, right),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--draws", type=int, default=200)
    args = parser.parse_args()
    if data_directory() is None:
        raise SystemExit("PDCC_DATA: expected a directory with cifar10n.npz and labelme.npz, found none. Set it.")
    logging.disable(logging.WARNING)
    asked = [Setting(task, trial, args.draws) for trial in range(args.trials) for task in TASKS]
    rows = run_study(asked, run_cell, RECORD, progress=True, label="trusted")
    print(pd.DataFrame([r for r in rows if "error" not in r]).drop(columns=["name", "draws"]).round(3).to_string())


if __name__ == "__main__":
    main()
