"""The tasks of the paper's section 6, from files that you put under PDCC_DATA/paper (nothing is downloaded).

Features and classes of ``stl10``, ``cifar10`` and ``imagenet10``, each in one of these forms:

* ``NAME.npz`` with X_seen (10000, d), y_seen (10000,), X_unseen (2000, d; CIFAR-10: 45000) and y_unseen;
* ``NAME.npz`` with all rows, X (13000, d; CIFAR-10: 60000) and y; or the same as the authors keep them: ``NAME.pkl``, a
  dict with X and Y, or ``NAME/feature.npy`` and ``NAME/label.npy``. These rows may be sorted by class, so they are
  shuffled, once and the same way in every trial, into 10000 seen, 1000 (5000) that the paper tuned on and we leave
  alone, and the unseen rest.

The Mechanical Turk answers are the authors' own file, ``pair_8994_real_imagenet10-cc-10k_trial_0.pkl``: a dict with
ind_pairs, label_pairs, true_label_pairs, X and true_y of the 10000 seen items, and shuffle_inds, which leads from
ImageFolder's order (that of ``imagenet10``, if in one piece) to theirs. Their code counts a pair that nobody answered as
different; the file does not tell which. Pickles are read by ``restricted_unpickle``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pdcc.annotators import Answers, draw_pairs, flip_rate, machine_annotators
from pdcc.datasets import Labelled, data_directory
from pdcc.errors import PairDataError
from pdcc.experiments.paper.restricted_unpickle import read_pickle
from pdcc.validation import check_pairs

AMT = "imagenet10-amt"
AMT_FILE = "pair_8994_real_imagenet10-cc-10k_trial_0.pkl"


@dataclass(frozen=True)
class Sizes:
    """Counts of a task: items seen, left alone and unseen, pairs, clusters."""

    seen: int
    valid: int
    unseen: int
    pairs: int
    clusters: int = 10

    @property
    def items(self) -> int:
        """All items of the data set."""
        return self.seen + self.valid + self.unseen


SIZES = {
    "stl10": Sizes(10_000, 1_000, 2_000, 10_000),
    "cifar10": Sizes(10_000, 5_000, 45_000, 10_000),
    "imagenet10": Sizes(10_000, 1_000, 2_000, 10_000),
    AMT: Sizes(10_000, 1_000, 2_000, 8_994),
}

# The data and the share of wrong answers of every block of the paper's tables (Mechanical Turk: 23.09 %, as it came).
PAPER_TASKS: dict[str, tuple[str, float | None]] = {
    f"{name}-{percent}": (name, round(percent / 100, 4))
    for name, levels in {
        "stl10": (0.0, 8.3, 10.3, 15.0),
        "cifar10": (0.0, 4.9, 8.7, 10.9),
        "imagenet10": (0.0, 3.4, 6.9, 11.2),
    }.items()
    for percent in levels
} | {AMT: (AMT, None)}

_FEATURES = "as features of the network of Contrastive Clustering (Li et al. 2021) trained without labels for 1000 epochs, 512 per image in the paper"
SOURCES = {
    "stl10": f"the 13,000 labelled images of STL-10 (Coates et al. 2011), {_FEATURES}",
    "cifar10": f"the 60,000 images of CIFAR-10 (Krizhevsky 2009), {_FEATURES}",
    "imagenet10": f"the 13,000 images of ten ImageNet classes that Chang et al. (2017) call ImageNet-10, {_FEATURES}",
    AMT: f"the answers to 8,994 pairs that the authors release with their code, VolMaxDCC, as {AMT_FILE}",
}


def paper_task(
    task: str, trial: int = 0, seed: int = 0, *, flip: float | None = None, sizes: Sizes | None = None
) -> tuple[Labelled, Answers, int]:
    """(data, answers, K) of one trial of a task, one of ``PAPER_TASKS``: "stl10-8.3", ..., "imagenet10-amt".

    As in the authors' code, a trial draws new pairs, the same at every noise level, while the seen items and the order
    in which the machine annotator learns labels stay. The Mechanical Turk answers are the same in every trial.
    ``flip`` asks for another share of wrong answers, ``sizes`` replaces the paper's counts.
    """
    if task not in PAPER_TASKS:
        raise ValueError(f"task: expected one of {', '.join(PAPER_TASKS)}, found {task!r}. Choose one of them.")
    name, level = PAPER_TASKS[task]
    sizes = SIZES[name] if sizes is None else sizes
    if level is None:
        if flip is not None:
            raise ValueError(f"flip: expected None, since annotators gave these answers, found {flip!r}. Leave it out.")
        return *_turk(sizes), sizes.clusters
    data = paper_features(name, sizes)
    pairs = draw_pairs(sizes.seen, sizes.pairs, np.random.default_rng([seed, trial]))
    rate = level if flip is None else flip
    return data, machine_annotators(data.X, data.y, pairs, flip_rate=rate, seed=seed), sizes.clusters


def paper_features(name: str, sizes: Sizes | None = None) -> Labelled:
    """Features and classes of "stl10", "cifar10" or "imagenet10", split into seen and unseen items."""
    if name not in SIZES or name == AMT:
        raise ValueError(f"name: expected stl10, cifar10 or imagenet10, found {name!r}. Choose one of them.")
    sizes = SIZES[name] if sizes is None else sizes
    path, found = _find(name)
    if "X_seen" in found:
        parts = [found.get(key, np.empty(0)) for key in ("X_seen", "y_seen", "X_unseen", "y_unseen")]
    else:
        X, y = _rows(path, found["X"], found["y"], sizes.items, name)
        order = np.random.default_rng(0).permutation(sizes.items)
        seen, unseen = order[: sizes.seen], order[sizes.seen + sizes.valid :]
        parts = [X[seen], y[seen], X[unseen], y[unseen]]
    seen_rows = _rows(path, parts[0], parts[1], sizes.seen, name, "_seen", sizes.clusters)
    return Labelled(*seen_rows, *_rows(path, parts[2], parts[3], sizes.unseen, name, "_unseen", sizes.clusters))


def _turk(sizes: Sizes) -> tuple[Labelled, Answers]:
    path = _directory(AMT) / AMT_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}. It is {SOURCES[AMT]}.")
    found = read_pickle(path)
    needed = ("ind_pairs", "label_pairs", "true_label_pairs", "X", "true_y")
    if not isinstance(found, dict) or not set(needed) <= set(found):
        keys = ", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise PairDataError(str(path), f"a dict with {', '.join(needed)}", keys, f"It is {SOURCES[AMT]}.")
    whole = np.shape(found["X"])[:1] == (sizes.items,)  # in the authors' order, then
    X, y = _rows(path, found["X"], found["true_y"], sizes.items if whole else sizes.seen, AMT)
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
    rest = Labelled(X, y, X[sizes.seen + sizes.valid :], y[sizes.seen + sizes.valid :])
    if not whole:
        rest = _turk_unseen(y, found.get("shuffle_inds"), sizes)
    similar = given == 1
    data = Labelled(X[: sizes.seen], y[: sizes.seen], rest.X_unseen, rest.y_unseen)
    return data, Answers(pairs, similar, flip_rate(y, pairs, similar))


def _turk_unseen(true_y: NDArray[np.int64], shuffle: Any, sizes: Sizes) -> Labelled:
    """ImageNet-10 with the items unseen by the Turk pairs; theirs are the first of ``shuffle``."""
    path, found = _find("imagenet10")
    if "X_seen" in found:
        return paper_features("imagenet10", sizes)
    X, y = _rows(path, found["X"], found["y"], sizes.items, "imagenet10")
    order = np.asarray([] if shuffle is None else shuffle)
    if not np.array_equal(np.sort(order), np.arange(sizes.items)) or not np.array_equal(y[order[: sizes.seen]], true_y):
        raise PairDataError(
            str(path),
            f"rows that shuffle_inds of {AMT_FILE} puts in the order of its true_y",
            "another order" if len(order) else "no shuffle_inds there",
            "Compute the features in the order of torchvision's ImageFolder, or save X_unseen and y_unseen (and X_seen, y_seen) to imagenet10.npz.",
        )
    rest = order[sizes.seen + sizes.valid :]
    return Labelled(X, y, X[rest], y[rest])


def _directory(name: str) -> Path:
    directory = data_directory()
    if directory is None:
        raise FileNotFoundError(
            f"PDCC_DATA is not set. Set it to the directory whose folder paper/ holds {SOURCES[name]}."
        )
    return directory / "paper"


def _find(name: str) -> tuple[Path, dict[str, NDArray[Any]]]:
    """The file of a data set and its arrays: X_seen and so on, or X and y."""
    directory = _directory(name)
    npz, pkl, npy = (directory / part for part in (f"{name}.npz", f"{name}.pkl", f"{name}/feature.npy"))
    path = next((path for path in (npz, pkl, npy) if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"{directory} has none of {npz.name} (X_seen, y_seen, X_unseen, y_unseen; or X, y), {pkl.name} (X, Y) and {name}/feature.npy with label.npy. They hold {SOURCES[name]}."
        )
    try:
        if path == pkl:
            found = read_pickle(path)
            found = {str(k): v for k, v in found.items()} if isinstance(found, dict) else {}
            found = {"X": found.get("X"), "y": found.get("Y", found.get("y"))}
        elif path == npy:
            found = {
                "X": np.load(path, allow_pickle=False),
                "y": np.load(path.parent / "label.npy", allow_pickle=False),
            }
        else:
            with np.load(path, allow_pickle=False) as archive:
                found = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        if isinstance(error, PairDataError):
            raise
        raise PairDataError(str(path), "plain arrays", f"{error}", "Save them with np.savez.") from error
    if "X_seen" not in found and (found.get("X") is None or found.get("y") is None):
        raise PairDataError(str(path), "X and y", f"{', '.join(found)}", "Save the arrays under these names.")
    return path, found


def _rows(
    path: Path, X: Any, y: Any, n: int, name: str, suffix: str = "", n_clusters: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features (n, d) float32 and classes (n,) int64, or an error that says what the file must hold."""
    X, y = np.asarray(X), np.asarray(y)
    if X.ndim != 2 or len(X) != n or y.shape != (n,):
        expected = f"X{suffix} ({n}, d) and y{suffix} ({n},)"
        raise PairDataError(str(path), expected, f"shapes {X.shape} and {y.shape}", f"The paper has {SOURCES[name]}.")
    if n_clusters is not None and len(np.unique(y)) != n_clusters:
        raise PairDataError(
            str(path),
            f"{n_clusters} classes in y{suffix}",
            f"{len(np.unique(y))}",
            "Shuffle the rows before you split.",
        )
    return X.astype(np.float32), y.astype(np.int64)
