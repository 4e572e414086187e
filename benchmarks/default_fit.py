"""What a user waits for: CPU seconds of whole default fits, where they go, and against another installation of pdcc.

    python benchmarks/default_fit.py [--data digits wide] [--rounds 3] [--against DIRECTORY]

Each fit is a process of its own, on one thread. With --against, a directory that holds another version of the package
pdcc (as ``pip install --no-deps --target DIRECTORY`` makes it), fits of the two take turns on the same seeds: the
median of the ratios is what counts, and whether memberships are the same bits. birds5, labelme and cifar10n are
people's answers, read from the archives in the directory that PDCC_DATA names; the others need no files.
"""

import argparse
import functools
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

# What is timed: where it is found. No part calls another, so that no time is counted twice.
PARTS = {
    "training": [("pdcc.training", "fit")],
    "training at once": [("pdcc.together", "fit_together")],
    "warm starts": [("pdcc.training", "warm_start"), ("pdcc.together", "warm_start_together")],
    "mixtures": [("pdcc.select.starts", "mixture")],
    "K-means": [("pdcc.select.starts", "kmeans")],
    "nearest neighbours": [("pdcc.select.starts", "neighbour_graph"), ("pdcc.select.compare", "neighbour_graph")],
    "eigenvectors": [("pdcc.select.starts", "leading_vectors")],
    "left-out answers": [("pdcc.select.compare", "left_out_nll"), ("pdcc.select.forms", "left_out_nll")],
}
WRONG = 0.1
# As many answers as ``pdcc bench human-noise`` draws.
HUMAN_PAIRS = 10_000


def noisy(X, y, n_pairs, seed):
    """Features, classes, and random pairs whose answers are wrong in 10 %."""
    from pdcc.annotators import draw_pairs

    rng = np.random.default_rng(seed)
    pairs = draw_pairs(len(X), n_pairs, rng)
    return X, y, pairs, (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(n_pairs) < WRONG), None


def digits(seed):
    """1,797 digits, 2,000 answers."""
    from sklearn.datasets import load_digits

    return noisy(*load_digits(return_X_y=True), 2000, seed)


def wide(seed):
    """10,000 items of ten overlapping clusters in 512 dimensions, 10,000 answers."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, 10_000)
    X = 0.22 * rng.normal(size=(10, 512))[y] + rng.normal(size=(10_000, 512))
    return noisy(X.astype(np.float32), y, 10_000, seed)


def birds5(seed):
    """All answers of the sessions of birds5, whatever the seed. Read here: an earlier version does not know them."""
    from pdcc.datasets import data_directory

    home = data_directory()
    if home is None:
        raise FileNotFoundError("PDCC_DATA: expected the directory of the archives, found none. Set it.")
    a = np.load(home / "birds5_pairs.npz")
    pairs = np.column_stack([a["i"], a["j"]])
    return a["X"].astype(np.float32), a["y"], pairs, a["similar"] == 1, a["annotator"]


def labelme(seed):
    """10,000 pairs of LabelMe's images that one worker labelled both of."""
    from pdcc import datasets
    from pdcc.annotators import worker_pairs

    data, given = datasets.labelme()
    answers = worker_pairs(data.y, given, HUMAN_PAIRS, np.random.default_rng(seed))
    return data.X, data.y, answers.pairs, answers.similar, answers.annotators


def cifar10n(seed):
    """10,000 random pairs, similar where the first annotator's labels of CIFAR-10N agree."""
    from pdcc import datasets
    from pdcc.annotators import answer_by_labels, draw_pairs

    data, labels = datasets.cifar10n("random1")
    pairs = draw_pairs(len(data.y), HUMAN_PAIRS, np.random.default_rng(seed))
    return data.X, data.y, pairs, answer_by_labels(data.y, labels, pairs).similar, None


DATA = {"digits": digits, "wide": wide, "birds5": birds5, "labelme": labelme, "cifar10n": cifar10n}
# These need no files.
ALWAYS = ("digits", "wide")


def timed(spent, name, function):
    """``function``, whose CPU seconds are added to ``spent[name]``."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.process_time() - began

    return call


def one_fit(data, seed):
    """One default fit in this process: CPU seconds, those of its parts, accuracy, and a hash of the memberships."""
    from importlib import import_module

    import pdcc
    from pdcc import VolMaxDCC, metrics

    X, y, pairs, similar, annotators = DATA[data](seed)
    spent = {}
    for name, places in PARTS.items():
        for module, function in places:
            # Another version has other rooms, and an editable install would hand out those of this one.
            if not Path(pdcc.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py").exists():
                continue
            home = import_module(module)
            if hasattr(home, function):
                setattr(home, function, timed(spent, name, getattr(home, function)))
    began = time.process_time()
    est = VolMaxDCC(len(np.unique(y)), random_state=seed, progress=False, device="cpu")
    est.fit(X, pairs, similar, annotators)
    seconds = time.process_time() - began
    parts = {name: spent.get(name, 0.0) for name in PARTS}
    parts["all else"] = seconds - sum(parts.values())
    bits = hashlib.sha256(np.ascontiguousarray(est.memberships_).tobytes()).hexdigest()[:12]
    return {
        "from": pdcc.__file__,
        "seconds": seconds,
        "parts": parts,
        "accuracy": metrics.acc(y, est.labels_),
        "bits": bits,
    }


def in_process(data, seed, site=None):
    """``one_fit`` in a new process, with the package of this environment or the one in the directory ``site``."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--one", data, str(seed), site or ""]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if site is not None and not found["from"].startswith(site):
        raise ImportError(f"--against: expected a directory that holds the package pdcc, found {site}.")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(ALWAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        data, seed, site = args.one
        if site:
            sys.path.insert(0, site)
        print(json.dumps(one_fit(data, int(seed))))
        return
    for data in args.data:
        found = []
        for seed in range(args.rounds):
            here = in_process(data, seed)
            there = None if args.against is None else in_process(data, seed, args.against)
            found.append((here, there))
            line = f"{data}, seed {seed}: {here['seconds']:.1f} CPU s, accuracy {here['accuracy']:.4f}"
            if there is not None:
                same = "the same bits" if here["bits"] == there["bits"] else "other bits"
                line += f"; the other {there['seconds']:.1f} CPU s, accuracy {there['accuracy']:.4f}: {same}"
            print(line, flush=True)
        for name in found[0][0]["parts"]:
            share = statistics.median(here["parts"][name] / here["seconds"] for here, _ in found)
            line = f"  {name}: {share:.0%}"
            if args.against is not None:
                before = statistics.median(there["parts"][name] / there["seconds"] for _, there in found)
                line += f" (the other {before:.0%} of its own)"
            print(line)
        if args.against is not None:
            ratios = [here["seconds"] / there["seconds"] for here, there in found]
            print(f"{data}: CPU seconds / the other's, median of {len(ratios)}: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
