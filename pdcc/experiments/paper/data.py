"""The tasks of the paper's section 6 and appendix, from files that you put under PDCC_DATA/paper (nothing is downloaded).

Features and classes of ``stl10``, ``cifar10``, ``imagenet10``, ``imagenet10-600`` (those of a network trained for 600 epochs) and,
beyond the paper, ``cifar100`` (its 20 superclasses), each in one of these forms:

* ``NAME.npz`` with X_seen (10000, d), y_seen (10000,), X_unseen (2000, d; CIFAR: 45000) and y_unseen; also X_valid and y_valid, if an
  oracle is to choose by labels as the authors do;
* ``NAME.npz`` with all rows, X (13000, d; CIFAR: 60000) and y; or the same as the authors keep them: ``NAME.pkl``, a
  dict with X and Y, or ``NAME/feature.npy`` and ``NAME/label.npy``; or as SpherePair's repository keeps them:
  ``NAME_pretrained_dataset.pkl`` or ``NAME/NAME_pretrained_dataset.pkl``, a tuple (X, y). A pickle may be in pieces
  ``.part1``, ``.part2``, ... These rows may be sorted by class, so they are shuffled, once and the same way in every trial,
  into 10000 seen, 1000 (5000) that the paper tuned on and only oracles see, and the unseen rest.

The Mechanical Turk answers are the authors' own file, ``pair_8994_real_imagenet10-cc-10k_trial_0.pkl``: a dict with
ind_pairs, label_pairs, true_label_pairs, X and true_y of the 10000 seen items, and shuffle_inds, which leads from
ImageFolder's order (that of ``imagenet10``, if in one piece) to theirs. Their code counts a pair that nobody answered as
different; the file does not tell which. Pickles are read by ``restricted_unpickle``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcc.annotators import Answers, draw_pairs, flip_rate, machine_annotators
from pdcc.datasets import Labelled
from pdcc.errors import PairDataError
from pdcc.experiments.paper.files import AMT, AMT_FILE, SOURCES, checked_rows, directory_of, find_arrays
from pdcc.experiments.paper.restricted_unpickle import read_pickle
from pdcc.validation import check_pairs

Valid = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class Sizes:
    """Counts of a task: items seen, tuned on and unseen, pairs, clusters."""

    seen: int
    valid: int
    unseen: int
    pairs: int
    clusters: int = 10

    @property
    def items(self) -> int:
        """All items of the data set."""
        return self.seen + self.valid + self.unseen


@dataclass(frozen=True)
class PaperTrial:
    """One trial of a task. valid: items (n, d) and classes (n,) that the authors tune on, where the files have them."""

    data: Labelled
    answers: Answers
    n_clusters: int
    valid: Valid | None


SIZES = {
    "stl10": Sizes(10_000, 1_000, 2_000, 10_000),
    "cifar10": Sizes(10_000, 5_000, 45_000, 10_000),
    "imagenet10": Sizes(10_000, 1_000, 2_000, 10_000),
    "imagenet10-600": Sizes(10_000, 1_000, 2_000, 10_000),
    "cifar100": Sizes(10_000, 5_000, 45_000, 10_000, 20),
    AMT: Sizes(10_000, 1_000, 2_000, 8_994),
}


def _levels(name: str, *percents: float) -> dict[str, tuple[str, float | None]]:
    return {f"{name}-{percent}": (name, round(percent / 100, 4)) for percent in percents}


# The data and the share of wrong answers of every block of the paper's tables (Mechanical Turk: 23.09 %, as it came).
PAPER_TASKS: dict[str, tuple[str, float | None]] = {
    **_levels("stl10", 0.0, 8.3, 10.3, 15.0),
    **_levels("cifar10", 0.0, 4.9, 8.7, 10.9),
    **_levels("imagenet10", 0.0, 3.4, 6.9, 11.2),
    AMT: (AMT, None),
}
# Of the appendix; and one data set that the paper does not have, at the noise of the one most like it.
SHORT_TRAINED_TASKS = _levels("imagenet10-600", 0.0, 4.4, 5.8)
SUPERCLASS_TASKS = _levels("cifar100", 0.0, 4.9, 8.7, 10.9)
FILE_TASKS = {**PAPER_TASKS, **SHORT_TRAINED_TASKS, **SUPERCLASS_TASKS}


def paper_task(
    task: str, trial: int = 0, seed: int = 0, *, flip: float | None = None, sizes: Sizes | None = None
) -> tuple[Labelled, Answers, int]:
    """(data, answers, K) of one trial of a task: see ``paper_trial``."""
    found = paper_trial(task, trial, seed, flip=flip, sizes=sizes)
    return found.data, found.answers, found.n_clusters


def paper_trial(
    task: str, trial: int = 0, seed: int = 0, *, flip: float | None = None, sizes: Sizes | None = None
) -> PaperTrial:
    """One trial of a task, one of ``FILE_TASKS``: "stl10-8.3", ..., "imagenet10-amt", ..., "cifar100-10.9".

    As in the authors' code, a trial draws new pairs, the same at every noise level, while the seen items and the order
    in which the machine annotator learns labels stay. The Mechanical Turk answers are the same in every trial.
    ``flip`` asks for another share of wrong answers, ``sizes`` replaces the paper's counts.
    """
    if task not in FILE_TASKS:
        raise ValueError(f"task: expected one of {', '.join(FILE_TASKS)}, found {task!r}. Choose one of them.")
    name, level = FILE_TASKS[task]
    sizes = SIZES[name] if sizes is None else sizes
    if level is None:
        if flip is not None:
            raise ValueError(f"flip: expected None, since annotators gave these answers, found {flip!r}. Leave it out.")
        data, answers, valid = _turk(sizes)
        return PaperTrial(data, answers, sizes.clusters, valid)
    data, valid = paper_items(name, sizes)
    pairs = draw_pairs(sizes.seen, sizes.pairs, np.random.default_rng([seed, trial]))
    rate = level if flip is None else flip
    answers = machine_annotators(data.X, data.y, pairs, flip_rate=rate, seed=seed)
    return PaperTrial(data, answers, sizes.clusters, valid)


def paper_features(name: str, sizes: Sizes | None = None) -> Labelled:
    """Features and classes of one of the data sets, split into seen and unseen items."""
    return paper_items(name, sizes)[0]


def paper_items(name: str, sizes: Sizes | None = None) -> tuple[Labelled, Valid | None]:
    """Seen and unseen items of "stl10", "cifar10", "imagenet10", "imagenet10-600" or "cifar100", and those the paper tunes on."""
    if name not in SIZES or name == AMT:
        known = ", ".join(n for n in SIZES if n != AMT)
        raise ValueError(f"name: expected one of {known}, found {name!r}. Choose one of them.")
    sizes = SIZES[name] if sizes is None else sizes
    path, found = find_arrays(name)
    valid: Valid | None = None
    if "X_seen" in found:
        parts = [found.get(key, np.empty(0)) for key in ("X_seen", "y_seen", "X_unseen", "y_unseen")]
        if "X_valid" in found:
            valid = checked_rows(
                path, found["X_valid"], found.get("y_valid", np.empty(0)), len(found["X_valid"]), name, "_valid"
            )
    else:
        X, y = checked_rows(path, found["X"], found["y"], sizes.items, name)
        order = np.random.default_rng(0).permutation(sizes.items)
        seen, tuned, unseen = np.split(order, [sizes.seen, sizes.seen + sizes.valid])
        parts, valid = [X[seen], y[seen], X[unseen], y[unseen]], (X[tuned], y[tuned])
    seen_rows = checked_rows(path, parts[0], parts[1], sizes.seen, name, "_seen", sizes.clusters)
    rest = checked_rows(path, parts[2], parts[3], sizes.unseen, name, "_unseen", sizes.clusters)
    return Labelled(*seen_rows, *rest), valid


def _turk(sizes: Sizes) -> tuple[Labelled, Answers, Valid | None]:
    path = directory_of(AMT) / AMT_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}. It is {SOURCES[AMT]}.")
    found = read_pickle(path)
    needed = ("ind_pairs", "label_pairs", "true_label_pairs", "X", "true_y")
    if not isinstance(found, dict) or not set(needed) <= set(found):
        keys = ", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise PairDataError(str(path), f"a dict with {', '.join(needed)}", keys, f"It is {SOURCES[AMT]}.")
    whole = np.shape(found["X"])[:1] == (sizes.items,)  # in the authors' order, then
    X, y = checked_rows(path, found["X"], found["true_y"], sizes.items if whole else sizes.seen, AMT)
    pairs = _turk_pairs(path, found, y, sizes)
    similar = np.asarray(found["label_pairs"]) == 1
    valid: Valid | None
    if whole:
        cut = sizes.seen + sizes.valid
        rest, valid = Labelled(X, y, X[cut:], y[cut:]), (X[sizes.seen : cut], y[sizes.seen : cut])
    else:
        rest, valid = _turk_rest(y, found.get("shuffle_inds"), sizes)
    data = Labelled(X[: sizes.seen], y[: sizes.seen], rest.X_unseen, rest.y_unseen)
    return data, Answers(pairs, similar, flip_rate(y, pairs, similar)), valid


def _turk_pairs(path: Path, found: dict[Any, Any], y: NDArray[np.int64], sizes: Sizes) -> NDArray[np.int64]:
    """Pairs (M, 2) of seen items, once answers and true answers are found to fit them."""
    pairs = check_pairs(np.asarray(found["ind_pairs"]), sizes.seen)
    given, true = (np.asarray(found[key]) for key in ("label_pairs", "true_label_pairs"))
    if len(pairs) != sizes.pairs or given.shape != (sizes.pairs,) or not np.isin(given, (0, 1)).all():
        raise PairDataError(
            str(path),
            f"{sizes.pairs} pairs, answered 0 or 1",
            f"{len(pairs)} pairs and answers of shape {given.shape}",
            f"It is {SOURCES[AMT]}.",
        )
    if not np.array_equal(y[pairs[:, 0]] == y[pairs[:, 1]], true == 1):
        raise PairDataError(
            str(path), "true_label_pairs that follow from true_y", "others", "Its rows are out of order."
        )
    return pairs


def _turk_rest(true_y: NDArray[np.int64], shuffle: Any, sizes: Sizes) -> tuple[Labelled, Valid | None]:
    """ImageNet-10 with the items that the Turk pairs leave out; theirs are the first of ``shuffle``."""
    path, found = find_arrays("imagenet10")
    if "X_seen" in found:
        return paper_items("imagenet10", sizes)
    X, y = checked_rows(path, found["X"], found["y"], sizes.items, "imagenet10")
    order = np.asarray([] if shuffle is None else shuffle)
    if not np.array_equal(np.sort(order), np.arange(sizes.items)) or not np.array_equal(y[order[: sizes.seen]], true_y):
        raise PairDataError(
            str(path),
            f"rows that shuffle_inds of {AMT_FILE} puts in the order of its true_y",
            "another order" if len(order) else "no shuffle_inds there",
            "Compute the features in the order of torchvision's ImageFolder, or save X_unseen and y_unseen (and X_seen, y_seen) to imagenet10.npz.",
        )
    tuned, rest = np.split(order[sizes.seen :], [sizes.valid])
    return Labelled(X, y, X[rest], y[rest]), (X[tuned], y[tuned])
