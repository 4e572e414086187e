"""The paper's synthetic study (appendix): membership MSE against the number of pairs, clean and with the paper's A.

    python benchmarks/synthetic.py [--seeds 10] [--jobs 2] [-o results] [--figure docs/synthetic.png]

N = 2000 items, 1000 of them seen, K = 3. Every method: one hidden layer of 256, Adam, 100 epochs, random start, no
scaling, dropout, early stopping or choice, so that only the likelihood and the volume differ. Resumable.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

from pdcc import VolMaxDCC, datasets, metrics

PAIRS = (1000, 4000, 10_000)
COMMON = {
    "hidden": (256,),
    "lr": 3e-3,
    "epochs": 100,
    "validation_fraction": 0.0,
    "dropout": 0.0,
    "scale": None,
    "init": "random",
    "partition": 0.0,
    "progress": False,
}
# name: (confusion of the data, form fitted, volume)
METHODS = {
    "clean: Vanilla": (None, "none", 0.0),
    "noisy: Vanilla": ("paper", "none", 0.0),
    "noisy: sigmoid B, volume 0": ("paper", "sigmoid", 0.0),
    "noisy: sigmoid B, volume 1e-3": ("paper", "sigmoid", 1e-3),
    "noisy: stochastic A, volume 1e-2": ("paper", "stochastic", 1e-2),
}


def cell(method, n_pairs, seed):
    torch.set_num_threads(1)
    truth, form, volume = METHODS[method]
    data = datasets.synthetic(2000, truth, seed)
    answers = data.answers(n_pairs, seed)
    n = data.n_seen
    est = VolMaxDCC(3, confusion=form, volume=volume, random_state=seed, **COMMON).fit(
        data.X[:n], answers.pairs, answers.similar
    )
    seen = metrics.membership_mse(data.memberships[:n], est.memberships_)
    return {
        "method": method,
        "pairs": n_pairs,
        "seed": seed,
        "seen": seen,
        "unseen": metrics.membership_mse(data.memberships[n:], est.predict_proba(data.X[n:])),
        "flips": answers.flip_rate,
        "status": est.status_,
    }


def medians(done, method):
    """(pairs, median seen MSE, median unseen MSE, number of seeds), one row a number of pairs."""
    rows = []
    for n in PAIRS:
        found = np.array(
            [[float(d["seen"]), float(d["unseen"])] for d in done if d["method"] == method and int(d["pairs"]) == n]
        )
        if len(found):
            rows.append((n, *np.median(found, axis=0), len(found)))
    return rows


def draw(done, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for method, colour in zip(METHODS, ("#4477aa", "#bbbbbb", "#ccbb44", "#228833", "#aa3377"), strict=True):
        rows = np.array(medians(done, method))
        axes.loglog(rows[:, 0], rows[:, 1], "o-", color=colour, label=method)
        axes.loglog(rows[:, 0], rows[:, 2], "--", color=colour, alpha=0.6)
    axes.set(
        xlabel="pairs M", ylabel="membership MSE (median)", title="Synthetic study: solid seen, dashed unseen items"
    )
    axes.set_xticks(PAIRS, [f"{n:,}" for n in PAIRS], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    parser.add_argument("--figure", type=Path, default=None)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "synthetic.csv"
    done = list(csv.DictReader(path.open())) if path.exists() else []
    have = {(d["method"], int(d["pairs"]), int(d["seed"])) for d in done}
    todo = [(m, n, s) for s in range(args.seeds) for n in PAIRS for m in METHODS if (m, n, s) not in have]
    for result in Parallel(n_jobs=args.jobs, return_as="generator_unordered")(delayed(cell)(*one) for one in todo):
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(result))
            writer.writeheader() if fresh else None
            writer.writerow(result)
        done.append({k: str(v) for k, v in result.items()})
    print("| method | " + " | ".join(f"M = {n:,}" for n in PAIRS) + " |\n" + "|---" * (len(PAIRS) + 1) + "|")
    for method in METHODS:
        print(
            f"| {method} | "
            + " | ".join(f"{seen:.4f} / {unseen:.4f} ({k})" for _, seen, unseen, k in medians(done, method))
            + " |"
        )
    if args.figure is not None:
        draw(done, args.figure)


if __name__ == "__main__":
    main()
