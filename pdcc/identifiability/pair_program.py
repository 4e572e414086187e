"""Proving that a ball lies inside a hull: products of pairs of constraints, and a tree of splits where those do not do.

With X standing for xx', every x in D = {F x >= 0, 1'x = 1} gives f_i'X f_j >= 0 for all pairs of items and 1'X1 = 1. So

    max |x|^2 over D  <=  max{tr X : f_i'X f_j >= 0 for all i, j; 1'X1 = 1},

a linear program in K(K+1)/2 unknowns with N^2 rows, of which a few hundred matter. The dual weights of those rows are the
certificate (`pdcc.identifiability.certificate`). Rows are added where they are violated by an interior iterate: those of
central points cut deeper than those of vertices, and one Newton matrix of a dense program of this shape costs milliseconds.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from pdcc.arrays import Float64 as Array
from pdcc.arrays import Ints as Index
from pdcc.identifiability.certificate import Leaf, Split, split_rows
from pdcc.identifiability.work import Budget

# Work of one Newton step, of one product of numbers in it, and of one entry of the matrix of all products (see `Budget`).
_STEP, _PRODUCT, _ENTRY = 8e-4, 6e-11, 1e-8
# Bounds the memory a tree may take: a region holds up to a few thousand pairs.
_MOST_REGIONS = 4000
# And this the matrix of all products.
_MOST_ITEMS = 2500
# Rows kept from one round to the next, in units of K(K+1)/2, and rounds after which a region is split instead.
_KEEP = 5
_MOST_ROUNDS = 60


@dataclass(frozen=True)
class Region:
    """A part of D: branch ``rows`` (J, K), the last ``fresh`` of them new, with rows @ x >= 0, and a point ``inside`` (K,) strictly within."""

    rows: Array
    inside: Array
    fresh: int = 0


@dataclass(frozen=True)
class Bound:
    """What one program came to.

    ``level`` bounds |x|^2 on the region, with multipliers ``leaf``; ``reached`` says it is at most the target. Otherwise
    ``moment`` (K, K) is an X satisfying all rows: the best there was when the program was found to end above the target, or stopped.
    """

    level: float
    leaf: Leaf
    moment: Array
    reached: bool


class PairProgram:
    """The program above on one region after another, for the items ``held`` of ``memberships`` (N, K)."""

    def __init__(self, memberships: Array, held: Index, budget: Budget):
        self.memberships, self.held, self.budget = memberships, held[:_MOST_ITEMS], budget
        n_clusters = memberships.shape[1]
        self._upper = np.triu_indices(n_clusters)
        off = self._upper[0] != self._upper[1]
        # svec: symmetric matrices as vectors with the same inner product.
        self._scale = np.where(off, np.sqrt(2.0), 1.0)
        self._ones = self._scale.copy()
        self._n_clusters = n_clusters

    def hold(self, items: Index) -> None:
        """Take in more items; programs solved so far stay valid, as fewer rows only loosen the bound."""
        self.held = np.concatenate([self.held, np.setdiff1d(items, self.held)])[:_MOST_ITEMS]

    def solve(self, region: Region, target: float, warm: Leaf | None = None, objective: Array | None = None) -> Bound:
        """Bound max x'Cx over the region, until at most ``target``, provably not, or out of work.

        ``warm`` has the rows to begin with (from the parent region); ``objective`` (K, K) is C, by default I.
        """
        generators = np.vstack([self.memberships[self.held], region.rows])
        slack = generators @ region.inside
        if slack.min() < 1e-13:
            # A region too thin to have an inside in double precision: nothing is proved about it.
            empty = np.zeros(0, dtype=np.int64)
            moment = np.outer(region.inside, region.inside)
            return Bound(np.inf, Leaf(empty, empty, np.zeros(0), target), moment, False)
        generators /= slack[:, None]  # every product is then 1 at the centre
        centre = self._vector(np.outer(region.inside, region.inside))
        cost = self._vector(np.eye(self._n_clusters) if objective is None else objective)
        left, right = self._first_pairs(generators, region, warm)
        rows = self._products(generators, left, right)
        point, spread = centre, rows @ centre
        weights = 1e-3 / spread
        level = target
        best, best_leaf = np.inf, (left, right, weights, level)
        floor, tolerance, moment = -np.inf, 0.3, self._matrix(centre)
        size, rounds = len(cost), 0
        while True:
            gap = float(weights @ spread)
            for _ in range(60):
                try:
                    # Close to a degenerate optimum slacks reach 0; what comes of dividing by them is caught as not finite.
                    with np.errstate(all="ignore"):
                        point, spread, weights, level = self._newton(rows, point, spread, weights, level, cost)
                except LinAlgError:
                    break
                remainder = self._matrix(level * self._ones - cost - rows.T @ weights)
                bound = _paid(level, remainder, objective is None)
                if bound < best:
                    best, best_leaf = bound, (left, right, weights, level)
                gap = float(weights @ spread)
                value = float(cost @ point)
                # Far above the target the rows so far leave X unbounded: time for more of them.
                if (
                    best <= target
                    or gap < tolerance * max(0.03, abs(value - target))
                    or gap < 1e-10
                    or value > 9.0 * target
                ):
                    break
                if self.budget.exhausted:
                    break
            if best <= target or self.budget.exhausted:
                break
            self.budget.spend(_ENTRY * len(generators) ** 2)
            products = generators @ self._matrix(point) @ generators.T
            # The share of the way from the centre at which every product is still non-negative.
            share = 1.0 / max(1.0, 1.0 - float(products.min()))
            feasible = centre + share * (point - centre)
            if float(cost @ feasible) > floor:
                floor, moment = float(cost @ feasible), self._matrix(feasible)
            if floor > target:
                break
            i, j = _violated(products, 3 * size, max(4, 6 * size // self._n_clusters))
            if len(i) == 0:
                if tolerance < 1e-6:
                    break
                tolerance /= 10.0
                continue
            rounds += 1
            if rounds > _MOST_ROUNDS:
                break
            keep = np.ones(len(rows), dtype=bool)
            surplus = len(rows) - (_KEEP + rounds // 3) * size
            if surplus > 0:
                # Rows dropped as soon as they go slack come back: only the weakest of many go, fewer as rounds go by.
                pull = weights / spread
                keep = pull >= np.partition(pull, surplus)[surplus]
            fresh = self._products(generators, i, j)
            left, right = np.concatenate([left[keep], i]), np.concatenate([right[keep], j])
            rows = np.vstack([rows[keep], fresh])
            back = 0.9 / max(0.9, 1.0 - float((rows @ point).min()))
            point = centre + back * (point - centre)
            spread = rows @ point
            weights = np.concatenate([weights[keep], max(gap / len(rows), 1e-9) / spread[int(keep.sum()) :]])
        left, right, weights, level = best_leaf
        ids = np.concatenate([self.held, -1 - np.arange(len(region.rows))])
        leaf = Leaf(ids[left], ids[right], weights / (slack[left] * slack[right]), float(level))
        return Bound(best, leaf, moment, best <= target)

    def _newton(
        self, rows: Array, point: Array, spread: Array, weights: Array, level: float, cost: Array
    ) -> tuple[Array, Array, Array, float]:
        """One predictor-corrector step on max{c'y : rows y >= 0, e'y = 1} and min{t : t e - rows' w = c, w >= 0}."""
        self.budget.spend(_STEP + _PRODUCT * rows.size * len(cost))
        ratio = weights / spread
        scaled = rows * np.sqrt(ratio)[:, None]
        matrix = scaled.T @ scaled
        matrix[np.diag_indices(len(cost))] += 1e-14 * np.trace(matrix) / len(cost)
        factor = cho_factor(matrix, check_finite=False)
        solved = cho_solve(factor, self._ones, check_finite=False)

        def step(complement: Array) -> tuple[float, Array, Array, Array]:
            push = complement / spread
            z = cho_solve(factor, rows.T @ push + cost - level * self._ones, check_finite=False)
            d_level = float(self._ones @ z) / float(self._ones @ solved)
            d_point = z - solved * d_level
            d_spread = rows @ d_point
            return d_level, d_point, d_spread, push - weights - ratio * d_spread

        gap = float(weights @ spread)
        _, _, d_spread, d_weights = step(np.zeros(len(spread)))
        reach, dual_reach = _reach(spread, d_spread), _reach(weights, d_weights)
        affine = float((spread + reach * d_spread) @ (weights + dual_reach * d_weights))
        centring = (affine / gap) ** 3 * gap / len(spread)
        d_level, d_point, d_spread, d_weights = step(centring - d_spread * d_weights)
        hold = max(0.95, 1.0 - gap)
        reach, dual_reach = hold * _reach(spread, d_spread), hold * _reach(weights, d_weights)
        if not np.isfinite(reach + dual_reach + d_level):
            raise LinAlgError("the Newton system is singular")
        point, spread = point + reach * d_point, spread + reach * d_spread
        # The cone is homogeneous: dividing by e'y takes back the drift an ill-conditioned last step leaves in it.
        drift = float(self._ones @ point)
        weights, level = weights + dual_reach * d_weights, level + dual_reach * d_level
        if not (drift > 0.5 and spread.min() > 0 and weights.min() > 0 and np.isfinite(level + weights.sum() + drift)):
            raise LinAlgError("the Newton step has left the interior")
        return point / drift, spread / drift, weights, level

    def _first_pairs(self, generators: Array, region: Region, warm: Leaf | None) -> tuple[Index, Index]:
        count = len(self.held)
        branch = np.arange(count, len(generators))
        items = generators[:count]
        extreme = np.unique(np.concatenate([items.argmax(0), items.argmin(0)]))
        if warm is None:
            pool = np.concatenate([extreme, branch])
            i, j = np.triu_indices(len(pool))
            return pool[i], pool[j]
        # Ids are of items and branch rows; positions change with `held`, which only ever grows at its end.
        place = np.full(len(self.memberships), -1, dtype=np.int64)
        place[self.held] = np.arange(count)
        left, right = (
            np.where(ids >= 0, place[np.maximum(ids, 0)], count - 1 - ids) for ids in (warm.left, warm.right)
        )
        partners = extreme if region.fresh > 1 else np.unique(np.concatenate([extreme, left, right]))
        old = len(branch) - region.fresh
        i, j = np.meshgrid(branch[old:], np.setdiff1d(np.concatenate([partners, branch]), branch[old:]))
        return np.concatenate([left, i.ravel()]), np.concatenate([right, j.ravel()])

    def _products(self, generators: Array, left: Index, right: Index) -> Array:
        a, b = generators[left], generators[right]
        i, j = self._upper
        return np.asarray((a[:, i] * b[:, j] + a[:, j] * b[:, i]) * (self._scale / 2.0))

    def _vector(self, matrix: Array) -> Array:
        return np.asarray(matrix[self._upper] * self._scale)

    def _matrix(self, vector: Array) -> Array:
        matrix = np.zeros((self._n_clusters, self._n_clusters))
        matrix[self._upper] = vector / self._scale
        return np.asarray(matrix + np.triu(matrix, 1).T)


def _paid(level: float, remainder: Array, norm: bool) -> float:
    """The bound a level gives once the negative part of what remains is paid for (see `certificate`).

    For x'Cx other than |x|^2 (``norm`` False), |x| <= 1 is known on the region.
    """
    negative = max(0.0, -float(np.linalg.eigvalsh(remainder)[0]))
    if not norm:
        return level + negative
    return level / (1.0 - negative) if negative < 1.0 else np.inf


def _reach(value: Array, change: Array) -> float:
    """The longest step up to 1 that keeps value + step * change non-negative."""
    return 1.0 / max(1.0, float((-change / value).max()))


def _violated(products: Array, limit: int, each: int) -> tuple[Index, Index]:
    """Pairs (i <= j) with the most negative products, at most ``limit`` of them and ``each`` per item."""
    size = len(products)
    lowest = float(products.min())
    if lowest >= -1e-12:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    flat = products.ravel()
    for share in (0.5, 0.1, 0.01, 0.0):
        found = np.flatnonzero(flat < min(share * lowest, -1e-12))
        if len(found) > 4 * limit:
            break
    found = found[found // size <= found % size]
    found = found[np.argsort(flat[found], kind="stable")][: 4 * limit]
    i, j = found // size, found % size
    keep = (_rank(i) < each) & (_rank(j) < each)
    return i[keep][:limit], j[keep][:limit]


def _rank(labels: Index) -> Index:
    """How many equal labels come before each."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - first
    return rank


@dataclass(eq=False)
class _Node:
    region: Region
    leaf: Leaf
    level: float
    moment: Array | None = None
    clusters: tuple[int, ...] = ()
    threshold: float = 0.0
    children: "list[_Node]" = field(default_factory=list)

    def frozen(self) -> Split | Leaf:
        if not self.children:
            return self.leaf
        return Split(self.clusters, self.threshold, tuple(child.frozen() for child in self.children))


@dataclass(frozen=True)
class Cover:
    """A tree of regions with ``level`` >= |x|^2 on all of D, and whether that is at most the target asked for."""

    tree: Split | Leaf
    level: float
    reached: bool
    regions: int


def cover(
    program: PairProgram,
    target: float,
    probe: Callable[[Array], float],
    start: Region | None = None,
    objective: Array | None = None,
) -> Cover:
    """Split D (or ``start``) until x'Cx <= target is proved on every region, ``probe`` finds a point beyond it, or the budget is spent.

    ``probe`` takes a moment matrix X (K, K) and returns the largest value met at a point of D; C is ``objective``, by default I.
    """
    n_clusters = program.memberships.shape[1]
    centre = np.full(n_clusters, 1.0 / n_clusters)
    start = start or Region(np.zeros((0, n_clusters)), centre)
    first = program.solve(start, target, None, objective)
    root = _Node(start, first.leaf, first.level, first.moment)
    count, regions = 0, 1
    open_nodes: list[tuple[float, int, _Node]] = [] if first.reached else [(-first.level, 0, root)]
    finished: list[float] = [first.level] if first.reached else []
    while open_nodes:
        if program.budget.exhausted or regions >= _MOST_REGIONS:
            break
        _, _, node = heapq.heappop(open_nodes)
        if node.moment is not None and probe(node.moment) > target:
            count += 1
            heapq.heappush(open_nodes, (-node.level, count, node))
            break
        for region in _split(node, program):
            child = _Node(region, node.leaf, node.level)
            node.children.append(child)
            regions += 1
            if not program.budget.exhausted:
                bound = program.solve(region, target, node.leaf, objective)
                child.moment = bound.moment
                if bound.level < child.level:
                    child.leaf, child.level = bound.leaf, bound.level
            if child.level <= target:
                finished.append(child.level)
            else:
                count += 1
                heapq.heappush(open_nodes, (-child.level, count, child))
    level = max([-entry[0] for entry in open_nodes] + finished)
    return Cover(root.frozen(), level, not open_nodes, regions)


def _split(node: _Node, program: PairProgram) -> list[Region]:
    """Cut a region where the moment matrix spreads most; the whole, by which cluster is above a threshold, if any."""
    region = node.region
    n_clusters = len(region.inside)
    unit = np.eye(n_clusters)
    if len(region.rows) == 0:
        # max |x|^2 peaks at the unit vectors: each peak alone, and the flat rest, are far easier than all together.
        node.clusters, node.threshold = tuple(range(n_clusters)), 0.25 + 1.0 / n_clusters
        top = (1.0 + node.threshold) / 2.0
        share = (top - 1.0 / n_clusters) / (1.0 - 1.0 / n_clusters)
        insides = [region.inside] + [region.inside + share * (unit[k] - region.inside) for k in range(n_clusters)]
    else:
        moment = node.moment if node.moment is not None else np.outer(region.inside, region.inside)
        mean = 0.9 * moment.sum(axis=1) + 0.1 * region.inside
        k = int(np.argmax(np.diag(moment) - moment.sum(axis=1) ** 2))
        node.clusters, node.threshold = (k,), float(mean[k])
        generators = np.vstack([program.memberships, region.rows])
        heading = unit[k] - 1.0 / n_clusters
        slope, slack = generators @ heading, generators @ mean
        insides = []
        for sign in (-1.0, 1.0):
            falling = sign * slope < 0
            step = 0.5 * float((slack[falling] / -(sign * slope[falling])).min(initial=1.0))
            insides.append(mean + sign * step * heading)
    cuts = split_rows(n_clusters, node.clusters, node.threshold)
    return [Region(np.vstack([region.rows, cut]), inside, len(cut)) for cut, inside in zip(cuts, insides, strict=True)]
