"""What proves a scatter ratio, and the check of it, which trusts nothing but the certificate and the memberships.

Write D = {x : F x >= 0, 1'x = 1} and M = max{|x|^2 : x in D}; then rho = sqrt((K-1) / (K M - 1)).

*From above.* A direction v (K,), 1'v = 0: no part of the hull lies further along v than h(v) = max_i (f_i - 1/K)'v / |v|, so
rho <= h(v) / r_0.

*From below.* On a region {x in D : a_j'x >= 0}, every generator g (an item, a convex combination of items, or a
branch row a_j) has g'x >= 0. Non-negative weights on pairs of generators with

    t 11' - I = sum_p weight_p (g_left(p) g_right(p)' + g_right(p) g_left(p)') / 2 + E

give t - |x|^2 >= x'Ex, hence |x|^2 <= t / (1 + min(0, smallest eigenvalue of E)). The regions are the leaves of a tree of splits, each of
which visibly covers its parent: all x_k <= theta for k in some set, or x_k >= theta for one of them.
"""

from dataclasses import dataclass, field

import numpy as np

from pdcc.arrays import Float64 as Array
from pdcc.arrays import Ints as Index
from pdcc.errors import CertificateError

_ROUNDING = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Leaf:
    """Weights on pairs of generators for one region: ``left``, ``right`` (P,) ids, ``weights`` (P,), and the number t.

    An id below N is an item, from N on an inner point of the certificate, and -1-j the j-th branch row from the root.
    """

    left: Index
    right: Index
    weights: Array
    level: float


@dataclass(frozen=True)
class Split:
    """A region cut up: ``children[0]`` has x_k <= threshold for all k in ``clusters``; ``children[1+i]`` has x_clusters[i] >= threshold."""

    clusters: tuple[int, ...]
    threshold: float
    children: "tuple[Split | Leaf, ...]"


@dataclass(frozen=True)
class Certificate:
    """Both sides of the interval for rho.

    ``direction`` (K,) bounds it from above, ``tree`` from below (None: the trivial bound 0). ``inner_items`` and
    ``inner_weights`` list the inner points as convex combinations of items.
    """

    direction: Array
    tree: Split | Leaf | None
    inner_items: tuple[Index, ...] = ()
    inner_weights: tuple[Array, ...] = field(default=())


@dataclass(frozen=True)
class Verification:
    """What a certificate proves, recomputed: ``rho_lb``, ``rho_ub``, and the number of ``leaves``.

    ``residual`` is the most negative eigenvalue of any E; ``rho_lb`` has already paid for it, so its size is no defect.
    """

    rho_lb: float
    rho_ub: float
    leaves: int
    residual: float


def ratio_of(largest: float, n_clusters: int) -> float:
    """rho for M = max |x|^2: sqrt((K-1) / (K M - 1)), never above 1 because the unit vectors are in D."""
    return float(np.sqrt((n_clusters - 1.0) / (n_clusters * max(largest, 1.0) - 1.0)))


def level_of(ratio: float, n_clusters: int) -> float:
    """The inverse: M = 1/K + (K-1) / (K rho^2)."""
    return 1.0 / n_clusters + (n_clusters - 1.0) / (n_clusters * ratio**2)


def split_rows(n_clusters: int, clusters: tuple[int, ...], threshold: float) -> list[Array]:
    """Branch rows of the children of a split, one (J, K) per child; on 1'x = 1, x_k >= theta is (e_k - theta 1)'x >= 0.

    Either no x_k exceeds the threshold, or the largest x_k reaches it: first the former, then the latter for each k.
    """
    unit = np.eye(n_clusters)
    above = unit[list(clusters)] - threshold
    largest = [
        np.array([above[i], *(unit[k] - unit[other] for other in clusters if other != k)])
        for i, k in enumerate(clusters)
    ]
    return [-above, *largest]


def verify(certificate: Certificate, memberships: Array) -> Verification:
    """Recompute both bounds from ``memberships`` (N, K); raise CertificateError where the certificate is malformed."""
    n_items, n_clusters = memberships.shape
    direction = certificate.direction - certificate.direction.mean()
    length = float(np.linalg.norm(direction))
    if direction.shape != (n_clusters,) or not np.isfinite(length) or length == 0.0:
        raise CertificateError("direction: expected a finite vector (K,) that is not constant.")
    support = float(((memberships - 1.0 / n_clusters) @ direction).max()) / length
    rho_ub = min(1.0, max(0.0, support * float(np.sqrt(n_clusters * (n_clusters - 1.0)))))
    inner = []
    for items, weights in zip(certificate.inner_items, certificate.inner_weights, strict=True):
        if len(items) == 0 or items.min() < 0 or items.max() >= n_items:
            raise CertificateError("inner point: names an item that is not there.")
        if not (weights >= 0).all() or abs(weights.sum() - 1.0) > 1e-9:
            raise CertificateError("inner point: weights are not convex.")
        inner.append(weights @ memberships[items])
    generators = np.vstack([memberships, *inner]) if inner else memberships
    if certificate.tree is None:
        return Verification(0.0, rho_ub, 0, 0.0)
    largest, leaves, residual = 0.0, 0, 0.0
    pending: list[tuple[Split | Leaf, Array]] = [(certificate.tree, np.zeros((0, n_clusters)))]
    while pending:
        node, branches = pending.pop()
        if isinstance(node, Leaf):
            bound, negative = _leaf_bound(node, generators, branches)
            largest, residual, leaves = max(largest, bound), max(residual, negative), leaves + 1
            continue
        if len(node.children) != 1 + len(node.clusters) or not np.isfinite(node.threshold) or not node.clusters:
            raise CertificateError("split: its children do not cover it.")
        cuts = split_rows(n_clusters, node.clusters, node.threshold)
        pending.extend((child, np.vstack([branches, cut])) for child, cut in zip(node.children, cuts, strict=True))
    rho_lb = ratio_of(largest, n_clusters) if np.isfinite(largest) else 0.0
    if rho_lb > rho_ub + 1e-7:
        raise CertificateError(f"the two sides contradict each other: {rho_lb} <= rho <= {rho_ub}.")
    return Verification(rho_lb, rho_ub, leaves, residual)


def _leaf_bound(leaf: Leaf, generators: Array, branches: Array) -> tuple[float, float]:
    if not (len(leaf.left) == len(leaf.right) == len(leaf.weights)) or not np.isfinite(leaf.level):
        raise CertificateError("leaf: pairs and weights do not match.")
    if not (np.isfinite(leaf.weights) & (leaf.weights >= 0)).all():
        raise CertificateError("leaf: a weight is negative or not finite.")
    ids = np.concatenate([leaf.left, leaf.right])
    if len(ids) and (ids.max() >= len(generators) or ids.min() < -len(branches)):
        raise CertificateError("leaf: names a generator that is not there.")
    stacked = np.vstack([generators, branches[::-1]])  # so that id -1-j is the j-th branch row
    half = (stacked[leaf.left] * leaf.weights[:, None]).T @ stacked[leaf.right]
    n_clusters = generators.shape[1]
    remainder = leaf.level - np.eye(n_clusters) - (half + half.T) / 2.0
    if not np.isfinite(remainder).all():
        raise CertificateError("leaf: its weights overflow.")
    # The sum is only as exact as float64 makes it; what rounding could hide is paid for too.
    lengths = np.linalg.norm(stacked, axis=1)
    rounding = 4.0 * _ROUNDING * n_clusters * float(leaf.weights @ (lengths[leaf.left] * lengths[leaf.right]))
    negative = max(0.0, rounding - float(np.linalg.eigvalsh(remainder)[0]))
    return (leaf.level / (1.0 - negative) if negative < 1.0 else np.inf), negative
