"""Scores of a clustering against known classes. They use true labels, so nothing in pdcc chooses by them.

Examples:
    >>> from pdcc import metrics
    >>> metrics.acc([0, 0, 1, 1], ["b", "b", "a", "b"])  # cluster names are arbitrary
    0.75
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from pdcc.arrays import as_array


def _labels(true: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = as_array("true", true, dates=True), as_array("predicted", predicted, dates=True)
    if a.ndim != 1 or b.ndim != 1 or len(a) != len(b) or len(a) == 0:
        raise ValueError(
            f"true, predicted: expected two label arrays of one length, found shapes {a.shape} and {b.shape}. Pass one label per item in both."
        )
    return a, b


def acc(true: ArrayLike, predicted: ArrayLike) -> float:
    """Share of items right under the best one-to-one matching of clusters to classes (Hungarian on counts).

    Examples:
        >>> from pdcc import metrics
        >>> metrics.acc([0, 0, 1, 1], [1, 1, 0, 0])
        1.0
    """
    a, b = _labels(true, predicted)
    _, a = np.unique(a, return_inverse=True)
    _, b = np.unique(b, return_inverse=True)
    counts = np.zeros((a.max() + 1, b.max() + 1), dtype=np.int64)
    np.add.at(counts, (a, b), 1)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(a))


def nmi(true: ArrayLike, predicted: ArrayLike) -> float:
    """Normalised mutual information (arithmetic mean).

    Examples:
        >>> from pdcc import metrics
        >>> round(metrics.nmi([0, 0, 1, 1], [1, 1, 0, 0]), 6)
        1.0
    """
    return float(normalized_mutual_info_score(*_labels(true, predicted)))


def ari(true: ArrayLike, predicted: ArrayLike) -> float:
    """Adjusted Rand index.

    Examples:
        >>> from pdcc import metrics
        >>> metrics.ari([0, 0, 1, 1], [1, 1, 0, 0])
        1.0
    """
    return float(adjusted_rand_score(*_labels(true, predicted)))


def _memberships(reference: ArrayLike, other: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = (as_array(name, F, np.float64) for name, F in (("reference", reference), ("other", other)))
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(
            f"reference, other: expected two (N, K) arrays of one shape, found {a.shape} and {b.shape}. Compare solutions with the same items and number of clusters."
        )
    return a, b


def align(reference: ArrayLike, other: ArrayLike) -> NDArray[np.int64]:
    """The order in which to take ``other``'s clusters so that ``other[:, order]`` matches ``reference``; both (N, K).

    Cluster numbers are arbitrary; this is the permutation that maximises the cosine between matched columns.

    Examples:
        >>> import numpy as np
        >>> from pdcc import metrics
        >>> one = np.array([[0.9, 0.1], [0.2, 0.8]])
        >>> metrics.align(one, one[:, ::-1]).tolist()
        [1, 0]
    """
    a, b = _memberships(reference, other)
    return np.asarray(linear_sum_assignment(_unit(a).T @ _unit(b), maximize=True)[1], dtype=np.int64)


def membership_mse(true: ArrayLike, estimated: ArrayLike) -> float:
    """The paper's MSE (appendix, synthetic data): columns to length 1, best permutation, mean squared distance.

    Both (N, K); ``1/K min_Pi sum_k | true_k / |true_k| - estimated_pi(k) / |estimated_pi(k)| |^2``, in [0, 2].

    Examples:
        >>> import numpy as np
        >>> from pdcc import metrics
        >>> one = np.array([[0.9, 0.1], [0.2, 0.8]])
        >>> round(metrics.membership_mse(one, one[:, ::-1]), 6)
        0.0
    """
    a, b = _memberships(true, estimated)
    cosines = _unit(a).T @ _unit(b)
    matched = cosines[linear_sum_assignment(cosines, maximize=True)]
    return float(np.mean(2.0 - 2.0 * matched))


def _unit(F: NDArray[np.float64]) -> NDArray[np.float64]:
    # An empty cluster has no direction: it stays the zero vector and matches nothing.
    return np.asarray(F / np.maximum(np.linalg.norm(F, axis=0, keepdims=True), np.finfo(np.float64).tiny))
