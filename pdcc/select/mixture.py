"""Gaussian mixture of the features whose clusters also explain the answers.

    z_i ~ Categorical(pi)
    x_i | z_i = k ~ Normal(mean_k, covariance_k)
    answers | z as in ``blockmodel``: a rate for every two clusters, a bias and a slope for every annotator

Fitted by mean-field EM from given labels. Affine changes of the features change nothing but rounding.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import log_expit, log_softmax, softmax

from pdcc.arrays import Float64, Floats, Ints
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData
from pdcc.exclusive import one_core
from pdcc.select.blockmodel import AnswerModel, Ends, fit_answers

# Rounds of EM, sweeps of messages between answered items in each, and the mean change of a membership that ends it.
ROUNDS, SWEEPS, SETTLED = 25, 3, 1e-2
# Memberships that a fit begins with: this much is left to the clusters that a label does not name.
DOUBT = 0.1
# A membership that counts for nothing in a cluster's shape.
NOBODY = 1e-6


@dataclass(frozen=True)
class Mixed:
    """What a mixture found. by_features (N, K): log memberships by features alone. beliefs (N, K): memberships by
    features and the item's own answers."""

    by_features: Float64
    beliefs: Float64
    answers: AnswerModel
    shapes: "Shapes"


def mixture(Z: Float64, labels: Ints, n_clusters: int, data: PairData, *, own_shapes: bool) -> Mixed:
    """Fit to items at Z (N, p), from labels (N,); -1: no label.

    One covariance for all clusters, or with ``own_shapes`` one for each, drawn to the common one, which is drawn to
    that of all items, by as many items as there are dimensions.
    """
    unit = Z.std(axis=0)
    unit[unit == 0] = 1.0
    Z = Z / unit
    R = np.full((len(Z), n_clusters), DOUBT / n_clusters)
    known = np.flatnonzero(labels >= 0)
    R[known, labels[known]] += 1 - DOUBT
    R[labels < 0] = 1 / n_clusters
    links = Links.of(data, len(Z))
    earlier: AnswerModel | None = None
    with one_core():
        for _ in range(ROUNDS):
            joint = Shapes.of(Z, unit, R, own_shapes).log_joint(Z)
            answers = earlier = fit_answers(_ends(R, data), data, earlier)
            before = R
            R = links.settle(R, joint, answers, SWEEPS)
            if np.abs(R - before).mean() < SETTLED / n_clusters:
                break
        shapes = Shapes.of(Z, unit, R, own_shapes)
        joint = shapes.log_joint(Z)
        beliefs = softmax(joint + links.messages(R, answers), axis=1)
    return Mixed(log_softmax(joint, axis=1), beliefs, answers, shapes)


def _ends(R: Float64, data: PairData) -> Ends:
    labels = R.argmax(axis=1)
    return Ends.of_labels(labels[data.i], labels[data.j], R.shape[1])


@dataclass(frozen=True)
class Links:
    """Answers, sorted by annotator, and which items they are about.

    order (M,): the answers in that order; cuts (R + 1,): where each annotator's begin. to_left, to_right (N, M): 1 where
    the column's answer is about the row's item.
    """

    i: Ints
    j: Ints
    same: Float64
    different: Float64
    cuts: Ints
    to_left: "csr_array[np.float64]"
    to_right: "csr_array[np.float64]"

    @classmethod
    def of(cls, data: PairData, n_items: int) -> "Links":
        """The links of some answers about so many items."""
        M = len(data)
        r = np.zeros(M, np.int64) if data.annotator is None else data.annotator
        order = np.argsort(r, kind="stable")
        cuts = np.searchsorted(r[order], np.arange(int(r.max()) + 2))
        y, w = degree(data)[order], counts(data)[order]
        i, j = data.i[order], data.j[order]
        ones, column = np.ones(M), np.arange(M)
        left, right = (csr_array((ones, (end, column)), shape=(n_items, M)) for end in (i, j))
        return cls(i, j, w * y, w * (1 - y), cuts, left, right)

    def messages(self, R: Float64, answers: AnswerModel) -> Float64:
        """What the answers about each item say of its cluster, (N, K): expected log-likelihoods under memberships R (N, K)."""
        left, right = np.empty((len(self.i), R.shape[1])), np.empty((len(self.i), R.shape[1]))
        R_i, R_j = R[self.i], R[self.j]
        L = answers.logits
        for r in range(len(self.cuts) - 1):
            some = slice(self.cuts[r], self.cuts[r + 1])
            if self.cuts[r] == self.cuts[r + 1]:
                continue
            eta = answers.bias[r] + answers.slope[r] * L
            both = np.concatenate([log_expit(eta), log_expit(-eta)], axis=1)
            for out, other in ((left, R_j), (right, R_i)):
                said = other[some] @ both
                K = R.shape[1]
                out[some] = self.same[some, None] * said[:, :K] + self.different[some, None] * said[:, K:]
        return np.asarray(self.to_left @ left + self.to_right @ right)

    def settle(self, R: Float64, joint: Float64, answers: AnswerModel, sweeps: int) -> Float64:
        """Memberships (N, K) after so many damped sweeps of messages; joint (N, K): log of what all else says."""
        for _ in range(sweeps):
            R = (R + softmax(joint + self.messages(R, answers), axis=1)) / 2
        return R


@dataclass(frozen=True)
class Shapes:
    """Gaussian clusters: log_size (K,), means (K, p) of features divided by ``unit`` (p,), and Cholesky factors of the
    covariances, (K, p, p), or one for all, (1, p, p)."""

    log_size: Float64
    means: Float64
    factors: Float64
    unit: Float64

    @classmethod
    def of(cls, Z: Float64, unit: Float64, R: Float64, own_shapes: bool) -> "Shapes":
        """What memberships R (N, K) make of items at Z (N, p), already divided by ``unit``."""
        N, p = Z.shape
        n = R.sum(axis=0) + np.finfo(np.float64).tiny
        means = (R.T @ Z) / n[:, None]
        whole = np.cov(Z.T, bias=True).reshape(p, p)
        shapes = (Z.T @ Z - (means.T * n) @ means + p * whole)[None] / (N + p)
        if own_shapes:
            common, shapes = shapes[0], np.empty((len(n), p, p))
            for k, mean in enumerate(means):
                some = R[:, k] > NOBODY
                centred = (Z[some] - mean) * np.sqrt(R[some, k])[:, None]
                shapes[k] = (centred.T @ centred + p * common) / (n[k] + p)
        return cls(np.log((n + 1) / (N + len(n))), means, np.linalg.cholesky(shapes), unit)

    def log_joint(self, Z: Float64) -> Float64:
        """log p(k) + log p(z | k) of items at Z (N, p), divided by ``unit``, (N, K), up to a constant of each item."""
        if len(self.factors) == 1:
            inverse = np.linalg.inv(self.factors[0] @ self.factors[0].T)
            half = self.means @ inverse
            return np.asarray(Z @ half.T - 0.5 * (half * self.means).sum(axis=1) + self.log_size)
        found = np.empty((len(Z), len(self.means)))
        for k, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            white = solve_triangular(factor, (Z - mean).T, lower=True)
            found[:, k] = self.log_size[k] - np.log(np.diag(factor)).sum() - 0.5 * (white**2).sum(axis=0)
        return found

    def labels(self, Z: Floats) -> Ints:
        """The likeliest cluster of items at Z (N, p), as given, (N,)."""
        return np.asarray(self.log_joint(Z.astype(np.float64) / self.unit).argmax(axis=1), dtype=np.int64)
