"""Gaussian mixture of the features whose clusters also explain the answers: what few answers and many items say together.

z_i | c_i = k ~ Normal(mean_k, covariance_k), and an answer is "same" with one rate within clusters and another across them. Fitted by
mean-field EM from given labels. Affine changes of the features change nothing but rounding: the metric is learned, not given.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from pdcc.arrays import Float64, Floats, Ints
from pdcc.auto.calibration import TRIAL_ITEMS
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData
from pdcc.exclusive import one_core
from pdcc.rows import blocks_of

# Rounds of EM, rounds of messages between answered items in each, and the mean change of a membership that ends it.
ROUNDS, MESSAGES, SETTLED = 25, 3, 1e-2
# A membership that counts for nothing in a cluster's shape.
NOBODY = 1e-6
# Items that are labelled at once, and numbers that are computed at once.
BLOCK, NUMBERS = 2**13, 2**23


def mixture(
    Z: Floats, labels: Ints, n_clusters: int, pairs: PairData, *, own_shapes: bool, rng: np.random.Generator
) -> Ints:
    """Labels (N,) of items at ``Z`` (N, p) by the fitted mixture alone: an item's own answers shape the clusters, never its label.

    One covariance for all clusters, or with ``own_shapes`` one for each. Covariances are drawn to the common one, and that to
    the one of all items, by as many items as there are dimensions.
    """
    rows, i, j, said = _some(pairs, len(Z), rng)
    some = Z[rows].astype(np.float64)
    unit = some.std(axis=0)
    unit[unit == 0] = 1.0
    some /= unit
    whole = np.cov(some.T, bias=True).reshape(Z.shape[1], -1)
    R = np.full((len(some), n_clusters), 0.1 / n_clusters)
    R[np.arange(len(some)), labels[rows]] += 0.9
    same, different = (_links(i, j, how_much, len(some)) for how_much in said)
    with one_core():
        for _ in range(ROUNDS):
            clusters = _clusters(some, R, whole, own_shapes)
            by_features = clusters.log_joint(some)
            within, across = _rates((R[i] * R[j]).sum(axis=1), said)
            if within <= across:  # answers say nothing, or less
                within = across
            by_same, by_different = np.log(within / across), np.log((1 - within) / (1 - across))
            before = R
            for _ in range(MESSAGES):
                R = (R + _softmax(by_features + by_same * (same @ R) + by_different * (different @ R))) / 2
            if np.abs(R - before).mean() < SETTLED / n_clusters:
                break
        found = (clusters.log_joint(part.astype(np.float64) / unit).argmax(axis=1) for part in blocks_of(Z, BLOCK))
        return np.concatenate(list(found))


@dataclass(frozen=True)
class Clusters:
    """constant (K,): log p(k) less half the log-determinant. means (K, p). whiteners (K, p, p), or one for all, (p, p): what makes a cluster round."""

    constant: Float64
    means: Float64
    whiteners: Float64

    def log_joint(self, Z: Float64) -> Float64:
        """log p(k) + log p(z | k) of items at ``Z`` (N, p), (N, K), up to a constant of each item."""
        if self.whiteners.ndim == 2:  # z's own square is the same for all clusters
            round_means = self.means @ self.whiteners
            return np.asarray(Z @ (self.whiteners @ round_means.T) + self.constant - 0.5 * (round_means**2).sum(axis=1))
        # Items of unit deviation, and squares of differences: single precision loses nothing but their last digits.
        K, p = self.means.shape
        side_by_side = self.whiteners.transpose(1, 0, 2).reshape(p, K * p).astype(np.float32)
        middle = np.einsum("kp,kpq->kq", self.means, self.whiteners).reshape(K * p).astype(np.float32)
        squares = []
        for part in blocks_of(Z, max(1, NUMBERS // (K * p))):
            white = part.astype(np.float32) @ side_by_side
            white -= middle
            white *= white
            squares.append((white.reshape(-1, p) @ np.ones(p, np.float32)).reshape(-1, K))
        return self.constant - 0.5 * np.concatenate(squares)


def _clusters(Z: Float64, R: Float64, whole: Float64, own_shapes: bool) -> Clusters:
    """What memberships ``R`` (N, K) say of each cluster."""
    n_items, p = Z.shape
    n = R.sum(axis=0) + np.finfo(np.float64).tiny
    means = (R.T @ Z) / n[:, None]
    common = (Z.T @ Z - (means.T * n) @ means + p * whole) / (n_items + p)
    shapes = [common]
    if own_shapes:
        shapes, root = [], np.sqrt(R)
        for k, mean in enumerate(means):
            some = np.flatnonzero(R[:, k] > NOBODY)
            centred = (Z if len(some) == n_items else Z[some]) - mean
            centred *= root[some, k, None]  # a product with itself takes half the work of one with another
            shapes.append((centred.T @ centred + p * common) / (n[k] + p))
    factors = np.linalg.cholesky(np.stack(shapes))
    whiteners = np.linalg.inv(factors).transpose(0, 2, 1)
    half = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return Clusters(np.log((n + 1) / (n_items + len(n))) - half, means, whiteners if own_shapes else whiteners[0])


def _rates(together: Float64, said: Float64) -> tuple[float, float]:
    """How often answers say "same" within clusters, and across them; ``together`` (M,): the probability of the first."""
    same, weight = said[0], said.sum(axis=0)
    rates = [((w * same)[same > 0].sum() + 0.5) / ((w * weight).sum() + 1.0) for w in (together, 1 - together)]
    return float(rates[0]), float(rates[1])


def _some(pairs: PairData, n_items: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints, Float64]:
    """Items to fit to, and the answers among them: their places in those items, and how much they say "same" and "different", (2, M)."""
    y = degree(pairs)
    said = np.stack([y, 1 - y]) * counts(pairs)
    if n_items <= TRIAL_ITEMS:
        return np.arange(n_items), pairs.i, pairs.j, said
    drawn = rng.permutation(len(pairs))[: TRIAL_ITEMS // 2]
    others = rng.choice(n_items, TRIAL_ITEMS - 2 * len(drawn), replace=False)
    rows = np.unique(np.r_[pairs.i[drawn], pairs.j[drawn], others])
    known = np.isin(pairs.i, rows) & np.isin(pairs.j, rows)
    return rows, np.searchsorted(rows, pairs.i[known]), np.searchsorted(rows, pairs.j[known]), said[:, known]


def _links(i: Ints, j: Ints, how_much: Float64, n_items: int) -> csr_matrix:
    """How many answers link two items, (N, N), symmetric; ``how_much`` (M,) each of them does."""
    there = how_much > 0
    i, j, value = i[there], j[there], how_much[there]
    return csr_matrix((np.r_[value, value], (np.r_[i, j], np.r_[j, i])), shape=(n_items, n_items))


def _softmax(logits: Float64) -> Float64:
    found = logits - logits.T.copy().max(axis=0)[:, None]  # numpy is slow at the largest of each short row
    np.exp(found, out=found)
    found /= (found @ np.ones(found.shape[1]))[:, None]
    return np.asarray(found)
