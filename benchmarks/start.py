"""Accuracy of the guided start alone, by how many principal components it works in, on cifar10n (needs PDCC_DATA).

Labels are only looked at to score. ``--seed 0`` has the trials of the published table; other seeds are fresh ones.
"""

import argparse
from unittest.mock import patch

import numpy as np
from tqdm.auto import tqdm

from pdcc import PairData, metrics
from pdcc.auto import initialise
from pdcc.data.splits import split
from pdcc.experiments import tasks

TASKS = ("cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse")
WIDTHS = (2, 4)
HELD_OUT = 0.1


def start_accuracy(task: str, trial: int, seed: int) -> list[float]:
    """Of each width, on one trial of a task."""
    problem, own_seed = tasks.load(task, trial, seed), 1000 * seed + trial
    data = PairData.from_arrays(problem.X, problem.pairs, problem.similar)
    shown = split(data, HELD_OUT, own_seed).train(data)
    out = []
    for width in WIDTHS:
        with patch.object(initialise, "COMPONENTS", width):
            way = initialise.Partitioner(shown.features, "unit", problem.n_clusters, own_seed)
        out.append(metrics.acc(problem.truth[0], way.guided(shown, tries=10)))
    return out


def main() -> None:
    """One Markdown row per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=5)
    args = parser.parse_args()
    narrow, wide = WIDTHS
    print(
        f"| ACC of the start, seed {args.seed} | {narrow} K | {wide} K | difference ± SE |\n| --- | --- | --- | --- |"
    )
    for task in TASKS:
        found = np.array([start_accuracy(task, t, args.seed) for t in tqdm(range(args.trials), desc=task, leave=False)])
        gap = found[:, 1] - found[:, 0]
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        print(
            f"| {task} | {found[:, 0].mean():.3f} | {found[:, 1].mean():.3f} | {gap.mean():+.3f} ± {error:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
