"""Accuracy of every start alone, before any training, on cifar10n under unit rows (needs PDCC_DATA).

Labels are only looked at to score. ``--seed 0`` has the trials of the published table; other seeds are fresh ones.
"""

import argparse

import numpy as np
from tqdm.auto import tqdm

from pdcc import PairData, metrics
from pdcc.data.scaling import Scaler
from pdcc.data.splits import split
from pdcc.experiments import tasks
from pdcc.select.starts import Partitioner
from pdcc.training import Shape, Source, Start

TASKS = ("cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse")
HELD_OUT = 0.1
STARTS = [
    Start(source, shape) for source in Source for shape in Shape if (source, shape) != (Source.ANSWERS, Shape.NONE)
]


def start_accuracies(task: str, trial: int, seed: int) -> list[float]:
    """Of each of ``STARTS``, on one trial of a task."""
    problem, own_seed = tasks.load(task, trial, seed), 1000 * seed + trial
    data = PairData.from_arrays(problem.X, problem.pairs, problem.similar)
    shown = split(data, HELD_OUT, own_seed).train(data)
    way = Partitioner(Scaler.fit(data.features, "unit")(data.features), problem.n_clusters, own_seed)
    return [metrics.acc(problem.truth[0], way.make(start, shown).labels) for start in STARTS]


def main() -> None:
    """One Markdown row per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=5)
    args = parser.parse_args()
    print(f"| ACC of the start, seed {args.seed} | {' | '.join(map(str, STARTS))} |\n|{' --- |' * (len(STARTS) + 1)}")
    for task in TASKS:
        trials = tqdm(range(args.trials), desc=task, leave=False)
        found = np.array([start_accuracies(task, t, args.seed) for t in trials])
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(found.mean(axis=0), error, strict=True)]
        print(f"| {task} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
