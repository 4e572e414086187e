"""How time and memory grow with items and answers: one epoch of training on blobs, each cell in a process of its own.

    python benchmarks/scaling.py [--largest] [--draw]

Features are written to a mapped .npy in a temporary directory by chunks; everything that "auto" would compare is fixed, so that what is
measured is one start and one epoch. Peak: of RssAnon + RssShmem, sampled every 50 ms from the first look at the data on; pages of
the mapped file are the system's and not counted. Records go to docs/measured/scaling.jsonl; cells that are there are not run again.
``--largest`` adds 10^6 items of 512 columns and 10^7 answers; ``--draw`` only draws docs/scaling.png and prints the tables.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "measured" / "scaling.jsonl"
K, BATCH, HIDDEN, WRONG = 10, 1024, (64,), 0.1
CHUNK = 20_000


@dataclass(frozen=True)
class Cell:
    """N items of d columns, and M answers."""

    n_items: int
    n_answers: int
    n_columns: int = 64

    @property
    def name(self) -> str:
        return f"{self.n_items}-{self.n_answers}-{self.n_columns}"


CELLS = [Cell(10**n, 10**m) for n in (4, 5, 6) for m in (4, 5, 6, 7)]
LARGEST = Cell(10**6, 10**7, 512)


class Peak(threading.Thread):
    """The largest RssAnon + RssShmem of this process, in bytes, while it runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.done = 0, threading.Event()

    def run(self):
        while not self.done.wait(0.05):
            self.most = max(self.most, resident())


def resident():
    """RssAnon + RssShmem of this process in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(1024 * int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))


def world(cell, place):
    """A mapped file of blobs, and answers of which a tenth is wrong."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(K, cell.n_columns)).astype(np.float32)
    classes = rng.integers(K, size=cell.n_items).astype(np.int8)
    shape = (cell.n_items, cell.n_columns)
    X = np.lib.format.open_memmap(place, mode="w+", dtype=np.float32, shape=shape)
    for begin in range(0, cell.n_items, CHUNK):
        c = classes[begin : begin + CHUNK]
        X[begin : begin + CHUNK] = centres[c] + 4 * rng.standard_normal((len(c), cell.n_columns), dtype=np.float32)
    X.flush()
    del X
    pairs = rng.integers(cell.n_items, size=(cell.n_answers, 2))
    similar = (classes[pairs[:, 0]] == classes[pairs[:, 1]]) ^ (rng.random(cell.n_answers) < WRONG)
    return classes, pairs, similar


def measure(cell):
    """One record: seconds of the start and of the epoch, and the peak of memory."""
    from pdcc import VolMaxDCC, metrics, training
    from pdcc.data.pairs import PairData

    seconds = {}
    original = training.fit

    def timed(*args, **options):
        began = time.perf_counter()
        found = original(*args, **options)
        seconds["epoch"] = time.perf_counter() - began
        return found

    training.fit = timed
    how = {"confusion": "stochastic", "volume": 0.01, "scale": "standard", "epochs": 1, "batch_size": BATCH}
    est = VolMaxDCC(K, hidden=HIDDEN, random_state=0, progress=False, **how)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "features.npy"
        classes, pairs, similar = world(cell, path)
        X = np.load(path, mmap_mode="r")
        before, peak = resident(), Peak()
        peak.start()
        began = time.perf_counter()
        data = PairData.from_arrays(X, pairs, similar)
        checked = time.perf_counter()
        prepared = est.prepare(data)
        started = time.perf_counter()
        est.fit_data(data, prepared=prepared)
        ended = time.perf_counter()
        peak.done.set()
        peak.join()
    steps = -(-int(0.9 * cell.n_answers) // BATCH)
    return {
        **vars(cell),
        "name": cell.name,
        "batch_size": BATCH,
        "check_seconds": checked - began,
        "start_seconds": started - checked,
        "epoch_seconds": seconds["epoch"],
        "step_milliseconds": 1e3 * seconds["epoch"] / steps,
        "rest_seconds": ended - started - seconds["epoch"],
        "peak_bytes": peak.most,
        "before_bytes": before,
        "accuracy": metrics.acc(classes, est.labels_),
    }


def in_process(cell):
    """Measure in a new process, whose memory holds nothing else."""
    command = [sys.executable, __file__, "--cell", *map(str, vars(cell).values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


def exponents(records, of, by, least):
    """The slope of log ``of`` against log ``by`` from ``least`` on, for every value of the other."""
    other = "n_items" if by == "n_answers" else "n_answers"
    found = {}
    for value in sorted({r[other] for r in records}):
        rows = [r for r in records if r[other] == value and r[by] >= least]
        if len(rows) > 1:
            found[value] = float(np.polyfit(np.log([r[by] for r in rows]), np.log([r[of] for r in rows]), 1)[0])
    return found


def table(records):
    """Markdown, a row per cell."""
    lines = ["| N | M | d | start, s | epoch, s | step, ms | peak, GB |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {r['n_items']:,} | {r['n_answers']:,} | {r['n_columns']} | {r['start_seconds']:.1f} | {r['epoch_seconds']:.2f} | {r['step_milliseconds']:.2f} | {r['peak_bytes'] / 1e9:.2f} |"
        for r in records
    ]
    return "\n".join(lines)


def draw(records, path):
    """Epoch and peak against M, a line for each N, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for N in sorted({r["n_items"] for r in records}):
        rows = sorted((r for r in records if r["n_items"] == N), key=lambda r: r["n_answers"])
        M = [r["n_answers"] for r in rows]
        axes[0].loglog(M, [r["epoch_seconds"] for r in rows], "o-", label=f"N = {N:,}")
        axes[1].loglog(M, [r["peak_bytes"] / 1e9 for r in rows], "o-", label=f"N = {N:,}")
    for axis, title in zip(axes, ("one epoch, seconds", "peak of memory, GB"), strict=True):
        axis.set(xlabel="answers M", title=title)
        axis.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--cell", nargs=3, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell is not None:
        print(json.dumps(measure(Cell(*args.cell))))
        return
    from pdcc.experiments.grid import run_study
    from pdcc.storage.journal import read_lines

    if not args.draw:
        run_study([*CELLS, LARGEST] if args.largest else CELLS, in_process, RECORD, progress=True)
    done = {r["name"]: r for r in read_lines(RECORD) if "error" not in r}
    records = [done[cell.name] for cell in (*CELLS, LARGEST) if cell.name in done]
    print(table(records))
    few = [r for r in records if r["n_columns"] == Cell(1, 1).n_columns]
    for of, by, least in (
        ("epoch_seconds", "n_answers", 10**5),
        ("step_milliseconds", "n_items", 1),
        ("start_seconds", "n_items", 1),
    ):
        print(of, "grows with", by, "to the power", {k: round(v, 2) for k, v in exponents(few, of, by, least).items()})
    draw(few, ROOT / "docs" / "scaling.png")


if __name__ == "__main__":
    main()
