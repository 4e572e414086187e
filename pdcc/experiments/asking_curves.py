"""What does choosing pairs save? Accuracy against answers for suggested, uncertain and random pairs, round by round."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc import datasets
from pdcc.arrays import Bools, Ints
from pdcc.asking.crossfit import cross_fit
from pdcc.asking.suggest import suggest_pairs
from pdcc.asking.uniform import RandomPairs
from pdcc.data.pairs import PairData
from pdcc.estimator import VolMaxDCC
from pdcc.experiments.grid import run_study
from pdcc.metrics import acc
from pdcc.plots.experiments import plot_asking
from pdcc.storage.journal import write_figure, write_table

STRATEGIES = ("suggested", "uncertain", "random")
# Candidates per pair from which the most uncertain are taken.
CANDIDATES = 50
WRONG = 0.1
# By data: answers to begin with, per round, and in all; random pairs go on to the last number, whose accuracy is the one to reach.
SIZES = {"digits": (800, 400, 2400, 4000), "cifar10n-random1": (2000, 1000, 6000, 10_000)}


@dataclass(frozen=True)
class Setting:
    """One curve."""

    data: str
    strategy: str
    seed: int

    @property
    def name(self) -> str:
        """Unique among settings."""
        return "-".join(map(str, asdict(self).values()))


def problem(data: str, seed: int) -> tuple[Any, Ints, Callable[[Ints, np.random.Generator], Bools]]:
    """(X (N, d), classes (N,), who answers pairs (n, 2)): digits with a tenth of the answers flipped, or what people called images."""
    if data == "digits":
        found = datasets.digits(n_unseen=0, seed=seed)

        def flips(pairs: Ints, rng: np.random.Generator) -> Bools:
            same = found.y[pairs[:, 0]] == found.y[pairs[:, 1]]
            return np.asarray(same ^ (rng.random(len(pairs)) < WRONG))

        return found.X, found.y, flips
    found, said = datasets.cifar10n(data.removeprefix("cifar10n-"))
    return found.X, found.y, lambda pairs, rng: np.asarray(said[pairs[:, 0]] == said[pairs[:, 1]])


def uncertain_pairs(est: VolMaxDCC, X: Any, n: int, exclude: Ints, rng: np.random.Generator) -> Ints:
    """The ``n`` of many random pairs whose answer is hardest to predict: uncertainty sampling."""
    drawn = RandomPairs(len(X), rng)(CANDIDATES * n, exclude)[["i", "j"]].to_numpy()
    p = est.predict_pairs(X, drawn)
    return np.asarray(drawn[np.argsort(np.abs(p - 0.5), kind="stable")[:n]])


def run_cell(setting: Setting) -> dict[str, Any]:
    """Ask, fit, choose, ask again, and go on from the fit; the accuracy after every round."""
    X, y, answer = problem(setting.data, setting.seed)
    rng = np.random.default_rng([setting.seed, 7])  # the same first answers for every strategy
    first, batch, last, goal = SIZES[setting.data]
    pairs = RandomPairs(len(X), rng)(first, np.zeros((0, 2), dtype=np.int64))[["i", "j"]].to_numpy()
    similar = answer(pairs, rng)
    est = VolMaxDCC(int(y.max()) + 1, random_state=setting.seed, progress=False, device="cpu")
    curve: list[dict[str, Any]] = []
    while True:
        # Random pairs get a new fit every time, which is what to beat.
        go_on = curve and setting.strategy != "random"
        est = est.refit(X, pairs, similar) if go_on else est.fit(X, pairs, similar)
        curve.append({"answers": len(pairs), "accuracy": acc(y, est.labels_)})
        if len(pairs) >= (goal if setting.strategy == "random" else last):
            return asdict(setting) | {"name": setting.name, "curve": curve}
        n = goal - len(pairs) if len(pairs) >= last else batch
        if setting.strategy == "random":
            new = RandomPairs(len(X), rng)(n, pairs)[["i", "j"]].to_numpy()
        elif setting.strategy == "uncertain":
            new = uncertain_pairs(est, X, n, pairs, rng)
        else:
            found = cross_fit(est.fitted_, PairData.from_arrays(X, pairs, similar), seed=setting.seed)
            seed = int(rng.integers(2**31))
            new = suggest_pairs(found.beliefs, found.agreement, n=n, exclude=pairs, random_state=seed)[["i", "j"]].to_numpy()  # fmt: skip
        pairs, similar = np.concatenate([pairs, new]), np.concatenate([similar, answer(new, rng)])


def summarise(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per data, strategy and number of answers: accuracy, its standard error over seeds, and how many there are."""
    flat = [
        {"data": r["data"], "strategy": r["strategy"], "seed": r["seed"], **at}
        for r in rows
        if "error" not in r
        for at in r["curve"]
    ]
    grouped = pd.DataFrame(flat).groupby(["data", "strategy", "answers"], sort=False)["accuracy"]
    return grouped.agg(accuracy="mean", error=lambda v: float(v.std() / np.sqrt(len(v))), seeds="size").reset_index()


def simulate_asking(
    output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool, dask: str | None = None
) -> str:
    """Run the study into ``output``: asking.jsonl, asking.csv and a figure for each data set. Returns the summary as text. Images need PDCC_DATA."""
    path = output / "asking.jsonl"
    which = [name for name in SIZES if name == "digits" or datasets.data_directory() is not None]
    asked = [
        Setting(data, strategy, 1000 * seed + r)
        for data in which
        for r in range(5 if size is None else size)
        for strategy in STRATEGIES
    ]
    rows = run_study(asked, run_cell, path, n_jobs=n_jobs, dask=dask, progress=progress, label="asking")
    table = summarise(rows)
    write_table(output / "asking.csv", table)
    for data in dict.fromkeys(table["data"]):
        write_figure(output / f"asking-{data}.png", plot_asking(table, data).figure)
    return table.round(3).to_string(index=False)
