"""Gaussian mixture of the features whose clusters also explain the answers: what few answers and many items say together.

z_i | c_i = k ~ Normal(mean_k, covariance_k), and an answer is "same" with one rate within clusters and another across them. Fitted by
mean-field EM from given labels. Affine changes of the features change nothing but rounding: the metric is learned, not given.
"""

import numpy as np
from scipy.sparse import csr_matrix

from pdcc.arrays import Float64, Floats, Ints
from pdcc.auto.calibration import TRIAL_ITEMS
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData
from pdcc.exclusive import one_core
from pdcc.rows import blocks_of

# Rounds of EM, rounds of messages between answered items in each, and the mean change of a membership that ends it.
ROUNDS, MESSAGES, SETTLED = 25, 3, 1e-3
# Items that are labelled at once.
BLOCK = 2**17


def mixture(
    Z: Floats, labels: Ints, n_clusters: int, pairs: PairData, *, own_shapes: bool, rng: np.random.Generator
) -> Ints:
    """Labels (N,) of items at ``Z`` (N, p) by the fitted mixture alone: an item's own answers shape the clusters, never its label.

    One covariance for all clusters, or with ``own_shapes`` one for each. Covariances are drawn to the common one, and that to
    the one of all items, by as many items as there are dimensions.
    """
    rows, i, j, said = _some(pairs, len(Z), rng)
    some = Z[rows].astype(np.float64)
    whole = np.cov(some.T, bias=True).reshape(Z.shape[1], -1)
    R = np.full((len(some), n_clusters), 0.1 / n_clusters)
    R[np.arange(len(some)), labels[rows]] += 0.9
    same, different = (_links(i, j, how_much, len(some)) for how_much in said)
    with one_core():
        for _ in range(ROUNDS):
            clusters = _clusters(some, R, whole, own_shapes)
            by_features = _log_joint(some, clusters)
            within, across = _rates((R[i] * R[j]).sum(axis=1), said)
            if within <= across:  # answers say nothing, or less
                within = across
            by_same, by_different = np.log(within / across), np.log((1 - within) / (1 - across))
            before = R
            for _ in range(MESSAGES):
                R = (R + _softmax(by_features + by_same * (same @ R) + by_different * (different @ R))) / 2
            if np.abs(R - before).mean() < SETTLED / n_clusters:
                break
        found = (_log_joint(part.astype(np.float64), clusters).argmax(axis=1) for part in blocks_of(Z, BLOCK))
        return np.concatenate(list(found))


# log p(k) less half the log-determinant, the mean (p,), what makes it round (p, p).
Cluster = tuple[float, Float64, Float64]


def _clusters(Z: Float64, R: Float64, whole: Float64, own_shapes: bool) -> list[Cluster]:
    """What memberships ``R`` (N, K) say of each cluster."""
    n_items, p = Z.shape
    n = R.sum(axis=0) + np.finfo(np.float64).tiny
    means = (R.T @ Z) / n[:, None]
    common = (Z.T @ Z - (means.T * n) @ means + p * whole) / (n_items + p)
    whitener, half = _whitening(common)
    found = []
    for k, mean in enumerate(means):
        if own_shapes:
            second = (Z * R[:, k, None]).T @ Z - n[k] * np.outer(mean, mean)
            whitener, half = _whitening((second + p * common) / (n[k] + p))
        found.append((float(np.log((n[k] + 1) / (n_items + len(n)))) - half, mean, whitener))
    return found


def _log_joint(Z: Float64, clusters: list[Cluster]) -> Float64:
    """log p(k) + log p(z | k), (N, K), up to a constant."""
    density, last, white = np.empty((len(Z), len(clusters))), None, Z
    for k, (constant, mean, whitener) in enumerate(clusters):
        if whitener is not last:  # one shape is applied once
            last, white = whitener, Z @ whitener
        density[:, k] = constant - 0.5 * ((white - mean @ whitener) ** 2).sum(axis=1)
    return density


def _whitening(covariance: Float64) -> tuple[Float64, float]:
    """The matrix (p, p) that makes it the identity, and half its log-determinant."""
    factor = np.linalg.cholesky(covariance)
    return np.linalg.inv(factor).T, float(np.log(np.diag(factor)).sum())


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
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
