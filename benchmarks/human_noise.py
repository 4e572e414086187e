"""Real human noise: our default against its rivals and its own parts, nothing chosen with labels.

    PDCC_DATA=... python benchmarks/human_noise.py [--rows ...] [--methods ...] [--trials 5] [--jobs 2] [-o results]

10,000 pairs a trial, what is held out comes out of them. ACC by Hungarian matching, mean and standard error over
trials. Resumable: finished cells are read back from the CSV. "oracle" marks the one column that looks at labels.
"""

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

from pdcc import VanillaDCC, VolMaxDCC, datasets, metrics
from pdcc.annotators import answer_by_labels, draw_pairs, worker_pairs
from pdcc.partition import kmeans
from pdcc.scaling import SCALES, Scaler

N_PAIRS = 10_000
ROWS = ("cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse", "labelme")

# The rivals get the same scaling, start, dropout and early stopping unless their name says otherwise.
METHODS = {
    "default": lambda k, s: VolMaxDCC(k, random_state=s),
    "vanilla": lambda k, s: VanillaDCC(k, random_state=s),
    "vanilla, partition 0": lambda k, s: VanillaDCC(k, random_state=s, partition=0.0),
    "vanilla, K-means start": lambda k, s: VanillaDCC(k, random_state=s, init="kmeans", partition=0.0),
    "paper": lambda k, s: VolMaxDCC.paper(k, random_state=s),
    "stochastic, volume 0": lambda k, s: VolMaxDCC(k, random_state=s, confusion="stochastic", volume=0.0),
    "stochastic, volume 0.01": lambda k, s: VolMaxDCC(k, random_state=s, confusion="stochastic", volume=1e-2),
    "sigmoid, volume 0.01": lambda k, s: VolMaxDCC(k, random_state=s, confusion="sigmoid", volume=1e-2),
    "none, volume 0.01": lambda k, s: VolMaxDCC(k, random_state=s, confusion="none", volume=1e-2),
    "raw features": lambda k, s: VolMaxDCC(k, random_state=s, scale=None),
    "standard scale": lambda k, s: VolMaxDCC(k, random_state=s, scale="standard"),
    "K-means start": lambda k, s: VolMaxDCC(k, random_state=s, init="kmeans"),
    "random start": lambda k, s: VolMaxDCC(k, random_state=s, init="random"),
    "no dropout": lambda k, s: VolMaxDCC(k, random_state=s, dropout=0.0),
    "two hidden layers": lambda k, s: VolMaxDCC(k, random_state=s, hidden=(512, 512)),
    "no early stopping, 30 epochs": lambda k, s: VolMaxDCC(
        k, random_state=s, confusion="stochastic", volume=1e-2, validation_fraction=0.0, epochs=30
    ),
    "three restarts": lambda k, s: VolMaxDCC(k, random_state=s, n_init=3),
    "partition 0": lambda k, s: VolMaxDCC(k, random_state=s, partition=0.0),
    "partition 0.3": lambda k, s: VolMaxDCC(k, random_state=s, partition=0.3),
    "partition 1": lambda k, s: VolMaxDCC(k, random_state=s, partition=1.0),
}
MAIN = ("default", "vanilla", "vanilla, partition 0", "vanilla, K-means start", "paper")


def load(row, trial):
    """(data, answers, K) of one trial."""
    rng = np.random.default_rng(1000 + trial)
    if row == "labelme":
        data, given = datasets.labelme()
        return data, worker_pairs(data.y, given, N_PAIRS, rng), 8
    data, labels = datasets.cifar10n(row.split("-")[1])
    return data, answer_by_labels(data.y, labels, draw_pairs(len(data.y), N_PAIRS, rng)), 10


def cell(row, method, trial):
    torch.set_num_threads(1)
    data, answers, k = load(row, trial)
    began = time.perf_counter()
    chosen = ""
    if method == "K-means, oracle scaling":
        found = []
        for kind in SCALES:
            scaler = Scaler.fit(data.X, kind)
            every = np.concatenate([scaler(data.X), scaler(data.X_unseen)])
            labels = kmeans(every, k, tries=10, seed=trial, rows=np.arange(len(data.X)))
            found.append(
                (metrics.acc(data.y, labels[: len(data.X)]), metrics.acc(data.y_unseen, labels[len(data.X) :]))
            )
        seen, unseen = max(found)
    else:
        est = METHODS[method](k, trial).fit(data.X, answers.pairs, answers.similar, answers.annotators)
        seen, unseen = metrics.acc(data.y, est.labels_), metrics.acc(data.y_unseen, est.predict(data.X_unseen))
        start = est.story_["start"]["name"] if est.story_["start"] else "random"
        chosen = f"{start}; {est.story_['chosen']}"
    return {
        "row": row,
        "method": method,
        "trial": trial,
        "seen": seen,
        "unseen": unseen,
        "flips": answers.flip_rate,
        "seconds": time.perf_counter() - began,
        "chosen": chosen,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=ROWS, choices=ROWS)
    parser.add_argument("--methods", nargs="+", default=["K-means, oracle scaling", *MAIN])
    parser.add_argument("--ablation", action="store_true", help="the default's parts instead of its rivals")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    args = parser.parse_args()
    if args.ablation:
        args.methods = ["default", *(m for m in METHODS if m not in MAIN)]
    if datasets.data_directory() is None:
        print("PDCC_DATA is not set: nothing to measure. Point it at the directory of the benchmark archives.")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "human_noise.csv"
    done = list(csv.DictReader(path.open())) if path.exists() else []
    have = {(d["row"], d["method"], int(d["trial"])) for d in done}
    todo = [(r, m, t) for t in range(args.trials) for r in args.rows for m in args.methods if (r, m, t) not in have]
    for result in Parallel(n_jobs=args.jobs, return_as="generator_unordered")(delayed(cell)(*one) for one in todo):
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(result))
            writer.writeheader() if fresh else None
            writer.writerow(result)
        done.append({k: str(v) for k, v in result.items()})
        print(
            f"{result['row']:18}{result['method']:30}{result['trial']}  seen {result['seen']:.3f}  unseen {result['unseen']:.3f}  {result['seconds']:.0f} s  {result['chosen']}",
            flush=True,
        )
    print(table(done, args.rows, args.methods))
    cost = {m: np.mean([float(d["seconds"]) for d in done if d["method"] == m]) for m in args.methods}
    print("mean seconds a fit:", ", ".join(f"{m} {s:.0f}" for m, s in cost.items()))


def table(done, rows, methods):
    """Markdown: seen / unseen ACC, mean ± standard error."""
    lines = ["| method | " + " | ".join(rows) + " |", "|---" * (len(rows) + 1) + "|"]
    for method in methods:
        cells = []
        for row in rows:
            found = [d for d in done if (d["row"], d["method"]) == (row, method)]
            seen, unseen = (np.array([float(d[side]) for d in found]) for side in ("seen", "unseen"))
            error = f" ± {seen.std(ddof=1) / np.sqrt(len(seen)):.3f}" if len(seen) > 1 else ""
            cells.append(f"{seen.mean():.3f}{error} / {unseen.mean():.3f} ({len(seen)})" if len(seen) else "not run")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
