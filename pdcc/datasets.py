"""Data to try pdcc on: the paper's synthetic study, scikit-learn's own sets, and measurements and real human noise from PDCC_DATA.

Examples:
    >>> from pdcc import datasets
    >>> datasets.digits().X.shape
    (1297, 64)
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdcc.annotators import Answers, answer_through, draw_pairs

# A[observed, true] of the paper's synthetic study (appendix, "Validating Identifiability Claims").
PAPER_CONFUSION = np.array([[1.0, 0.2, 0.3], [0.0, 0.8, 0.3], [0.0, 0.0, 0.4]])


@dataclass(frozen=True)
class Synthetic:
    """Features and true memberships of the synthetic study: X (N, 3), memberships (N, 3), seen/unseen halves."""

    X: NDArray[np.float64]
    memberships: NDArray[np.float64]
    confusion: NDArray[np.float64]
    n_seen: int

    def answers(self, n_pairs: int, seed: int) -> Answers:
        """Uniform pairs of seen items, each answered by a Bernoulli draw of <A m_i, A m_j>."""
        rng = np.random.default_rng(seed)
        pairs = draw_pairs(self.n_seen, n_pairs, rng)
        return answer_through(self.memberships, pairs, self.confusion, rng)


def synthetic(n: int = 2000, confusion: ArrayLike | str | None = None, seed: int = 0) -> Synthetic:
    """The paper's synthetic data: K = 3, the first half seen.

    Memberships are one-hot vectors plus N(0, variance .1), clipped at 0 and normalised (all-zero rows are drawn
    again); features are [2 m1, 3 m2 + 1, m1 m2 + m3 - 2]. ``confusion``: None (A = I), "paper", or a 3x3
    column-stochastic A[observed, true].

    Examples:
        >>> from pdcc import datasets
        >>> data = datasets.synthetic(n=200, confusion="paper")
        >>> data.X.shape, data.answers(50, seed=0).pairs.shape
        ((200, 3), (50, 2))
    """
    if n < 4:
        raise ValueError(f"n: expected at least 4 items, found {n}. Ask for more.")
    rng = np.random.default_rng(seed)
    F = np.zeros((0, 3))
    while len(F) < n:
        draw = np.eye(3)[rng.integers(3, size=n)] + rng.normal(0.0, np.sqrt(0.1), size=(n, 3))
        draw = np.clip(draw, 0.0, None)
        F = np.concatenate([F, draw[draw.sum(axis=1) > 0]])[:n]
    F /= F.sum(axis=1, keepdims=True)
    X = np.column_stack([2 * F[:, 0], 3 * F[:, 1] + 1, F[:, 0] * F[:, 1] + F[:, 2] - 2])
    if confusion is None:
        A = np.eye(3)
    elif isinstance(confusion, str):
        if confusion != "paper":
            raise ValueError(
                f"confusion: expected None, 'paper' or a 3x3 matrix, found {confusion!r}. Pass one of these."
            )
        A = PAPER_CONFUSION
    else:
        A = np.asarray(confusion, dtype=np.float64)
    return Synthetic(X=X, memberships=F, confusion=A, n_seen=n // 2)


@dataclass(frozen=True)
class Labelled:
    """Items with known classes, split into those pairs may name and those kept to test generalisation."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    X_unseen: NDArray[Any]
    y_unseen: NDArray[np.int64]


def digits(n_unseen: int = 500, seed: int = 0) -> Labelled:
    """scikit-learn's 1797 handwritten digits (8x8 pixels, K = 10), shuffled and split.

    Examples:
        >>> from pdcc import datasets
        >>> data = datasets.digits(n_unseen=97)
        >>> data.X.shape, data.X_unseen.shape
        ((1700, 64), (97, 64))
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.data))
    X, y = bunch.data[order].astype(np.float32) / 16.0, bunch.target[order].astype(np.int64)
    cut = len(X) - n_unseen
    return Labelled(X[:cut], y[:cut], X[cut:], y[cut:])


def data_directory() -> Path | None:
    """The directory named by the environment variable PDCC_DATA, or None where it is not set."""
    name = os.environ.get("PDCC_DATA")
    return Path(name) if name else None


def _archive(name: str) -> dict[str, NDArray[Any]]:
    directory = data_directory()
    if directory is None or not (directory / name).is_file():
        where = "PDCC_DATA is not set" if directory is None else f"{directory} has no {name}"
        raise FileNotFoundError(
            f"{where}. Set PDCC_DATA to the directory that holds {name} and the other archives that docs/benchmark.md describes."
        )
    with np.load(directory / name, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


SKLEARN_TABLES, ARCHIVED_TABLES = ("wine", "breast_cancer", "iris"), ("satellite", "vowel", "dna")
PHOTOGRAPHS = ("birds5", "dogs3")
WITH_ANSWERS = ("cifar10n", "labelme", "dwug_bar_nn", "dwug_plane_nn", *(f"{name}_pairs" for name in PHOTOGRAPHS))
# What PDCC_DATA may hold.
ARCHIVES = tuple(f"{name}.npz" for name in (*WITH_ANSWERS, *ARCHIVED_TABLES))


def table(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Measurements X (N, d), columns in their own units, and classes (N,).

    "wine", "breast_cancer" and "iris" come with scikit-learn; "satellite", "vowel" and "dna" (UCI) are read from PDCC_DATA.

    Examples:
        >>> from pdcc import datasets
        >>> X, y = datasets.table("wine")
        >>> X.shape, len(set(y.tolist()))
        ((178, 13), 3)
    """
    if name in SKLEARN_TABLES:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    elif name in ARCHIVED_TABLES:
        a = _archive(f"{name}.npz")
        X, y = a["X"], a["y"]
    else:
        known = ", ".join((*SKLEARN_TABLES, *ARCHIVED_TABLES))
        raise ValueError(f"name: expected one of {known}, found {name!r}. Choose one of them.")
    return X.astype(np.float32), y.astype(np.int64)


CIFAR10N_NOISE = ("clean", "aggre", "random1", "random2", "random3", "worse")


def cifar10n(noise: str = "worse") -> tuple[Labelled, NDArray[np.int64]]:
    """CIFAR-10 features and one human label per item (CIFAR-10N); "clean" gives the true labels instead."""
    if noise not in CIFAR10N_NOISE:
        raise ValueError(f"noise: expected one of {', '.join(CIFAR10N_NOISE)}, found {noise!r}. Choose one of them.")
    a = _archive("cifar10n.npz")
    labels = a["y_seen"] if noise == "clean" else a[f"human_{noise}"]
    return _labelled(a), labels.astype(np.int64)


def labelme() -> tuple[Labelled, NDArray[np.int64]]:
    """LabelMe features and the answers (N, 59) of its Mechanical Turk workers, -1 where a worker gave none."""
    a = _archive("labelme.npz")
    return _labelled(a), a["answers"].astype(np.int64)


def _labelled(a: dict[str, NDArray[Any]]) -> Labelled:
    return Labelled(
        a["X_seen"].astype(np.float32),
        a["y_seen"].astype(np.int64),
        a["X_unseen"].astype(np.float32),
        a["y_unseen"].astype(np.int64),
    )


@dataclass(frozen=True)
class Judgments:
    """DWUG: uses of one word, and annotators' direct judgments of how related two uses are (similar = judgment >= 3).

    ``clusters`` were inferred from these same judgments: not independent truth.
    """

    X: NDArray[Any]
    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]
    annotators: NDArray[np.int64]
    clusters: NDArray[np.int64]


def dwug(word: str = "plane_nn") -> Judgments:
    """One word of DWUG EN: "bar_nn" or "plane_nn"."""
    a = _archive(f"dwug_{word}.npz")
    pairs = np.column_stack([a["i"], a["j"]]).astype(np.int64)
    return Judgments(
        a["X"].astype(np.float32),
        pairs,
        a["judgment"] >= 3,
        a["annotator"].astype(np.int64),
        a["cluster"].astype(np.int64),
    )


@dataclass(frozen=True)
class Photographs:
    """Photographs of known classes, and annotators' direct answers: do two of them show the same species or breed?

    X (N, d) features, y (N,) classes, pairs (M, 2) row numbers, similar (M,) bool, annotators (M,) session numbers.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]
    annotators: NDArray[np.int64]


PHOTOGRAPH_FEATURES = {"full": "X", "mid": "X_mid"}


def photographs(name: str = "birds5", features: str = "full") -> Photographs:
    """One crowd study: "birds5" (5 species) or "dogs3" (3 breeds), read from PDCC_DATA.

    ``features``: "full" for the archive's ``X``, "mid" for its weaker ``X_mid``. The network behind the full features
    of dogs3 was trained on these very classes: test with "mid" there.
    """
    if name not in PHOTOGRAPHS:
        raise ValueError(f"name: expected one of {', '.join(PHOTOGRAPHS)}, found {name!r}. Choose one of them.")
    if features not in PHOTOGRAPH_FEATURES:
        known = ", ".join(PHOTOGRAPH_FEATURES)
        raise ValueError(f"features: expected one of {known}, found {features!r}. Choose one of them.")
    a = _archive(f"{name}_pairs.npz")
    return Photographs(
        a[PHOTOGRAPH_FEATURES[features]].astype(np.float32),
        a["y"].astype(np.int64),
        np.column_stack([a["i"], a["j"]]).astype(np.int64),
        a["similar"] == 1,
        a["annotator"].astype(np.int64),
    )
