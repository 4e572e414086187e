"""A map of the items: the plane of features in which the clusters differ most, each item in its cluster's colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from pdcc.arrays import Float64, Ints
from pdcc.plots.canvas import INK, axes_of, colour, marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Features are first reduced to so many principal components, in which scatter within clusters can be estimated.
COMPONENTS = 30
# Of the spread over all items, how much counts besides that between clusters (two clusters differ along one line only), and
# how much is added to that within them (so that no direction looks sharp because few items happen to agree on it).
BESIDES, SHRINK = 0.05, 0.1


def plane(features: ArrayLike, labels: ArrayLike) -> Float64:
    """Coordinates (N, 2) in the plane where clusters ``labels`` (N,) differ most relative to their own width; features (N, d).

    Fisher's discriminant on the leading principal components, shrunk. The same input gives the same picture: no randomness,
    and signs are fixed.
    """
    X, y = _checked(features, labels)
    X = X - X.mean(axis=0)
    X = X / max(float(np.abs(X).max()), 1e-300)
    # The smaller of the two Gram matrices: as exact, and quick for many columns as for many rows.
    if X.shape[1] > len(X):
        values, vectors = np.linalg.eigh(X @ X.T)
        top = np.argsort(-values, kind="stable")[:COMPONENTS]
        Z = vectors[:, top] * np.sqrt(values[top].clip(0.0))
    else:
        values, vectors = np.linalg.eigh(X.T @ X)
        Z = X @ vectors[:, np.argsort(-values, kind="stable")[:COMPONENTS]]
    Z = Z[:, Z.std(axis=0) > 1e-7 * max(float(Z.std()), 1e-300)]
    if Z.shape[1] >= 2:
        number = np.unique(y, return_inverse=True)[1]
        means = np.stack([Z[number == k].mean(axis=0) for k in range(number.max() + 1)])[number]
        total, between = Z.T @ Z / len(Z), means.T @ means / len(Z)
        trace = np.eye(Z.shape[1]) * np.trace(total) / Z.shape[1]
        axes = eigh(between + BESIDES * total, total - between + SHRINK * (total + 0.1 * trace))[1][:, ::-1][:, :2]
        Z = Z @ axes
    found = np.zeros((len(Z), 2))
    found[:, : min(Z.shape[1], 2)] = Z[:, :2]
    spread = found.std(axis=0)
    found = found / np.where(spread > 0, spread, 1.0)
    turn = np.sign(found[np.abs(found).argmax(axis=0), [0, 1]])
    return np.asarray(found * np.where(turn == 0, 1.0, turn))


def plot_map(
    features: ArrayLike, labels: ArrayLike, *, unsettled: ArrayLike | None = None, ax: Axes | None = None
) -> Axes:
    """Items in the plane where their clusters differ most, coloured by label; those that are ``unsettled`` (N,) are ringed.

    features (N, d), or memberships (N, K); labels (N,). Distances between clusters look larger than they are in all columns.
    """
    X, y = _checked(features, labels)
    at = plane(X, y)
    open_ = np.zeros(len(X), dtype=bool) if unsettled is None else np.asarray(unsettled, dtype=bool)
    if open_.shape != (len(X),):
        raise ValueError(
            f"unsettled: expected one entry per item, shape ({len(X)},), found {open_.shape}. Give one per row of features."
        )
    ax = axes_of(ax, (5.4, 4.6))
    for k, label in enumerate(np.unique(y)):
        mine = at[y == label]
        number = int(label) if isinstance(label, np.integer) else k
        ax.scatter(
            mine[:, 0],
            mine[:, 1],
            s=11,
            color=colour(number),
            marker=marker(number),
            alpha=0.75,
            linewidth=0,
            label=f"cluster {label}",
        )
    if open_.any():
        ax.scatter(
            at[open_, 0], at[open_, 1], s=28, facecolor="none", edgecolor=INK, linewidth=0.6, label="not settled"
        )
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set(xlabel="the two directions in which clusters differ most", aspect="equal")
    ax.spines[:].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, markerscale=1.6)
    return ax


def _checked(features: ArrayLike, labels: ArrayLike) -> tuple[Float64, Ints]:
    X, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if X.ndim < 2 or len(X) < 2 or not np.isfinite(X).all():
        raise ValueError(
            f"features: expected finite numbers of at least two items, shape (N, d), found shape {X.shape}. Pass features or memberships."
        )
    if y.shape != (len(X),):
        raise ValueError(
            f"labels: expected one per item, shape ({len(X)},), found {y.shape}. Give one per row of features."
        )
    return X.reshape(len(X), -1), y
