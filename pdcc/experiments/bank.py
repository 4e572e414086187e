"""Nine labelled data sets and six ways to answer wrongly: is the default right on data it was not set on?

A task is called ``bank-DATA-KIND-RATIO``: "bank-wine-mind-2" asks about twice as many pairs as there are items.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from pdcc import datasets
from pdcc.annotators import (
    Answers,
    answer_by_labels,
    answer_through,
    answer_with_flips,
    draw_pairs,
    machine_annotator,
    mistaken_labels,
    mixed_annotators,
    uniform_confusion,
)
from pdcc.datasets import Labelled

# Two halves: what is set by looking at one may be judged on the other.
HALVES = {
    "A": ("wine", "satellite", "digits", "iris", "labelme"),
    "B": ("breast_cancer", "vowel", "dna", "cifar10n"),
}
DATA = (*HALVES["A"], *HALVES["B"])
RATIOS = (1, 2, 5)
# Of these, at most so many items are drawn in each trial.
MOST_ITEMS, DRAWN = 2500, ("satellite", "cifar10n")
FLIPS, CONFUSED, MISTAKEN = 0.10, 0.20, 0.20
# A machine annotator is shown so many labels per class, or this share of all where that is more.
LABELS_PER_CLASS, LABELLED = 3, 0.02
ERRORS = np.linspace(0.05, 0.40, 8)

Asked = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], np.random.Generator]


def _clean(asked: Asked) -> Answers:
    """The truth."""
    _, y, pairs, _ = asked
    return answer_by_labels(y, y, pairs)


def _flips(asked: Asked) -> Answers:
    """Every answer is turned round on its own."""
    _, y, pairs, rng = asked
    return answer_with_flips(y, pairs, FLIPS, rng)


def _confusion(asked: Asked) -> Answers:
    """Either item is taken for another class, drawn afresh for every answer."""
    _, y, pairs, rng = asked
    F = _one_hot(y)
    return answer_through(F, pairs, uniform_confusion(F.shape[1], CONFUSED), rng)


def _mind(asked: Asked) -> Answers:
    """One annotator has a label of every item in mind, and some of these are wrong: errors are transitively consistent."""
    _, y, pairs, rng = asked
    return answer_by_labels(y, mistaken_labels(y, MISTAKEN, rng), pairs)


def _machine(asked: Asked) -> Answers:
    """A classifier on standardised columns that knows few labels, one of every class among them, answers by its predictions."""
    X, y, pairs, rng = asked
    n_labels = max(LABELS_PER_CLASS * len(np.unique(y)), round(LABELLED * len(y)))
    standard = StandardScaler().fit_transform(X.astype(np.float64))
    return machine_annotator(standard, y, pairs, n_labels=n_labels, seed=int(rng.integers(2**31)))


def _eight(asked: Asked) -> Answers:
    """Eight annotators with ids, who take either item for another class, each with an error of their own."""
    _, y, pairs, rng = asked
    F = _one_hot(y)
    return mixed_annotators(F, pairs, np.stack([uniform_confusion(F.shape[1], e) for e in ERRORS]), rng)


def _one_hot(y: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.eye(int(y.max()) + 1)[y]


KINDS: dict[str, Callable[[Asked], Answers]] = {
    "clean": _clean, "flips": _flips, "confusion": _confusion, "mind": _mind, "machine": _machine, "eight": _eight,
}  # fmt: skip


def bank_tasks(data: Iterable[str] = DATA) -> tuple[str, ...]:
    """The names of all tasks about these data sets."""
    return tuple(f"bank-{name}-{kind}-{ratio}" for name in data for kind in KINDS for ratio in RATIOS)


def parts(task: str) -> tuple[str, str, int]:
    """(data, kind of answers, M / N) of a task, by its name."""
    _, name, kind, ratio = task.split("-")
    return name, kind, int(ratio)


def half_of(data: str) -> str:
    """The half, "A" or "B", that a data set is in."""
    return next(half for half, names in HALVES.items() if data in names)


def labelled(name: str, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features X (N, d) and classes (N,) of one of ``DATA``; of the large ones a random part."""
    if name == "digits":
        whole = datasets.digits(n_unseen=0)
        return whole.X, whole.y
    if name in ("cifar10n", "labelme"):
        seen = datasets.cifar10n("clean")[0] if name == "cifar10n" else datasets.labelme()[0]
        X, y = seen.X, seen.y
    else:
        X, y = datasets.table(name)
    if name in DRAWN:
        rows = rng.permutation(len(y))[:MOST_ITEMS]
        X, y = X[rows], y[rows]
    return X, y


def bank_problem(task: str, draw: np.random.Generator, answer: np.random.Generator) -> tuple[Labelled, Answers, int]:
    """(data, answers, K) of a task: ``draw`` draws items and pairs, ``answer`` is the annotators' own.

    Pairs are distinct and uniform; those at a smaller ratio are the first of those at a larger one.
    """
    name, kind, ratio = parts(task)
    X, y = labelled(name, draw)
    pairs = draw_pairs(len(y), max(RATIOS) * len(y), draw, distinct=True)[: ratio * len(y)]
    answers = KINDS[kind]((X, y, pairs, answer))
    return Labelled(X, y, X[:0], y[:0]), answers, int(y.max()) + 1
