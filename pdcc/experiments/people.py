"""All sets of answers that people gave: the names of their tasks, and which of the answers a draw has.

A task is called ``people-STUDY-PART-SIZE``. STUDY is the source of the answers. PART says which features (full, mid),
which column of labels (aggre to worse) or which word (bar, plane). SIZE is how many answers there are: "all", "3n" or
"n" (three or one per item). Of the photographs, it may also be a damage: "coins" or "swapped".
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pdcc import datasets
from pdcc.annotators import Answers, flip_rate
from pdcc.datasets import Labelled, Photographs

STUDIES = {
    "birds5": ("full", "mid"),
    "dogs3": ("full", "mid"),
    "labelme": ("full",),
    "cifar10n": ("aggre", "random1", "random2", "random3", "worse"),
    "dwug": ("bar", "plane"),
}
RATIOS = {"n": 1, "3n": 3}
SIZES = ("all", *reversed(RATIOS))
# The share of the sessions that a draw keeps, and the shares that are damaged.
KEPT = 0.9
DAMAGES = {"coins": 0.5, "swapped": 0.1}
WITHOUT_IDS = ("cifar10n",)
# Where K-means and PCKMeans also run on unit rows: the rows of the other features are about that long as they come.
UNIT_ROWS = ("labelme", "cifar10n")


def people_tasks(sizes: Iterable[str] = SIZES, studies: Iterable[str] = tuple(STUDIES)) -> tuple[str, ...]:
    """The names of the tasks of these studies. Of CIFAR-10N, M = N is the same as all: 10,000 pairs."""
    sizes = tuple(sizes)
    return tuple(
        f"people-{study}-{part}-{size}"
        for study in studies
        for part in STUDIES[study]
        for size in sizes
        if (study, size) != ("cifar10n", "n")
    )


def parts(task: str) -> tuple[str, str, str]:
    """(study, part, size) of a task, by its name."""
    _, study, part, size = task.split("-")
    return study, part, size


def leaves_out(task: str, method: str) -> bool:
    """Whether a method has no place in a task: unit rows, but of the features that ``UNIT_ROWS`` names."""
    return task.startswith("people-") and method.endswith("-unit") and parts(task)[0] not in UNIT_ROWS


def drawn_sessions(asked: Photographs, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The answers (M,) of a random ``share`` of the sessions."""
    sessions = rng.permutation(np.unique(asked.annotators))
    return np.asarray(np.isin(asked.annotators, sessions[: round(share * len(sessions))]))


def photograph_problem(task: str, trial: int, rng: np.random.Generator) -> tuple[Labelled, Answers, int]:
    """(data, answers, K) of one draw of a task about photographs.

    "all": draw 0 has every answer, the others those of nine tenths of the sessions. "n", "3n": random answers;
    those of "n" are the first of those of "3n". "coins": half of the sessions toss a coin for every answer.
    "swapped": a tenth of the sessions use each word for the other.
    """
    study, part, size = parts(task)
    asked = datasets.photographs(study, part)
    rows, similar = np.arange(len(asked.pairs)), asked.similar
    if size in RATIOS:
        rows = rng.permutation(len(rows))[: RATIOS[size] * len(asked.y)]
    elif size in DAMAGES:
        damaged = drawn_sessions(asked, DAMAGES[size], rng)
        other = rng.random(len(rows)) < 0.5 if size == "coins" else ~similar
        similar = np.where(damaged, other, similar)
    elif trial > 0:
        rows = np.flatnonzero(drawn_sessions(asked, KEPT, rng))
    pairs, similar = asked.pairs[rows], similar[rows]
    answers = Answers(pairs, similar, flip_rate(asked.y, pairs, similar), asked.annotators[rows])
    return Labelled(asked.X, asked.y, asked.X[:0], asked.y[:0]), answers, int(asked.y.max()) + 1
