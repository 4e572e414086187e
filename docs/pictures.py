"""Draws docs/overview.png, the picture of README.md: ``python docs/pictures.py`` (``make pictures``). The fit is the first of the tutorial."""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pdcc import VolMaxDCC, datasets, metrics, plots
from pdcc.annotators import Answers, draw_pairs, mixed_annotators, uniform_confusion

OUTPUT = Path(__file__).parent / "overview.png"
WRONG = (0.05, 0.10, 0.10, 0.15, 0.30)
SHOWN = 5


def asked(truth: NDArray[np.int64]) -> Answers:
    """The tutorial's 1,200 answers of five people."""
    rng = np.random.default_rng(0)
    people = np.stack([uniform_confusion(10, wrong) for wrong in WRONG])
    return mixed_annotators(np.eye(10)[truth], draw_pairs(len(truth), 1200, rng), people, rng)


def draw_answers(X: NDArray[np.float32], truth: NDArray[np.int64], answers: Answers, ax: Axes) -> None:
    """A few pairs and what was said of them: two right "same", one wrong, two "different"."""
    right = (truth[answers.pairs[:, 0]] == truth[answers.pairs[:, 1]]) == answers.similar
    same, different = np.flatnonzero(answers.similar & right), np.flatnonzero(~answers.similar & right)
    rows = [same[0], different[0], np.flatnonzero(~right)[0], same[1], different[1]]
    for at, row in enumerate(rows):
        for place, item in zip((0.0, 1.0), answers.pairs[row], strict=True):
            ax.imshow(X[item].reshape(8, 8), cmap="gray_r", extent=(place, place + 0.8, -at - 0.8, -at))
        words, colour = ("same" if answers.similar[row] else "different"), "black" if right[row] else "#c23b22"
        ax.text(2.1, -at - 0.4, words if right[row] else f"{words} (wrong)", va="center", color=colour)
    ax.set(xlim=(0, 4.2), ylim=(-SHOWN, 0.1))
    ax.axis("off")


def main() -> None:
    """Fit, diagnose, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output = parser.parse_args().output
    digits = datasets.digits()
    X, truth = digits.X[:600], digits.y[:600]
    answers = asked(truth)
    est = VolMaxDCC(10, hidden=(64,), random_state=0, progress=False)
    est.fit(X, answers.pairs, answers.similar, answers.annotators)
    found = est.diagnose(X, answers.pairs, answers.similar, answers.annotators, quick=True, work=2.0)

    figure = Figure(figsize=(11.0, 3.7), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.7, 1.5))
    draw_answers(X, truth, answers, left)
    left.set_title(f"{len(answers.pairs):,} answers, {answers.flip_rate:.0%} wrong", fontsize=11)
    plots.plot_map(X, est.labels_, unsettled=~found.items["settled"].to_numpy(dtype=bool), ax=middle)
    middle.get_legend().remove()
    middle.set_xlabel("")
    settled = int(found.items["settled"].sum())
    middle.set_title(f"{len(X)} digits in 10 clusters; ringed: not settled ({len(X) - settled})", fontsize=11)
    plots.plot_purity(found.clusters, target=0.8, ax=right)
    a, true = found.accuracy, metrics.acc(truth, est.labels_)
    right.set_title(f"labels right: {a.low:.0%} to {a.high:.0%}, without a label\n(in truth {true:.0%})", fontsize=11)
    figure.savefig(output, dpi=90, metadata={"Software": None})


if __name__ == "__main__":
    main()
