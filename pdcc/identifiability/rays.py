"""Rays from the barycentre to the boundary of a hull, as linear programs with columns brought in on demand."""

import time

import highspy
import numpy as np

from pdcc.arrays import Float64 as Array
from pdcc.arrays import Ints as Index
from pdcc.identifiability.work import Budget

# Work of one program, of one of its pivots and of one number looked at (see `Budget`).
_PROGRAM, _PIVOT, _NUMBER = 4e-4, 6e-5, 2e-9
# Largest entry a dual direction may have, in units of K: it keeps the program bounded where the barycentre is not inside the
# hull. A ratio below about 1e-5 is then met as "on the bound" and handed to `separation`.
_DUAL_BOX = 1e5
_TOLERANCE = 1e-9


def hyperplane(n_clusters: int) -> Array:
    """An orthonormal basis (K, K-1) of {v : 1'v = 0} (Helmert)."""
    basis = np.zeros((n_clusters, n_clusters - 1))
    for j in range(n_clusters - 1):
        basis[: j + 1, j] = 1.0
        basis[j + 1, j] = -(j + 1.0)
        basis[:, j] /= np.sqrt((j + 1.0) * (j + 2.0))
    return basis


class RayProgram:
    """All rays of one hull: min sum(w) s.t. sum_i w_i (f_i - c) = d, w >= 0, for many d.

    The ray c + t d leaves conv(F) at t = 1 / sum(w); the row duals u (K-1,) solve max{d'u : (f_i - c)'u <= 1}, so every u
    found is a point of the polar of the hull. K-1 rows however many items there are; only the right-hand side changes
    from one ray to the next, so the last basis stays dual feasible. Columns enter when their reduced cost is negative.
    """

    def __init__(self, memberships: Array, budget: Budget):
        self.memberships = memberships
        self.budget = budget
        n_items, n_clusters = memberships.shape
        self.basis = hyperplane(n_clusters)
        self.points = (memberships - 1.0 / n_clusters) @ self.basis
        self._dim = n_clusters - 1
        self._rows = np.arange(self._dim, dtype=np.int32)
        self._held = np.zeros(n_items, dtype=bool)
        self._order: list[Index] = []
        self._radius = 1.0 / np.sqrt(n_clusters * (n_clusters - 1.0))
        solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("solver", "simplex"),
            ("primal_feasibility_tolerance", _TOLERANCE),
            ("dual_feasibility_tolerance", _TOLERANCE),
        ):
            solver.setOptionValue(option, value)
        empty = np.zeros(0)
        for _ in range(self._dim):
            solver.addRow(0.0, 0.0, 0, empty.astype(np.int32), empty)
        self._solver = solver
        signed = np.vstack([np.eye(self._dim), -np.eye(self._dim)])
        self._add_columns(signed, np.full(2 * self._dim, _DUAL_BOX * n_clusters))
        few = min(4, n_items)
        best = [np.argpartition(sign * memberships, few - 1, axis=0)[:few].ravel() for sign in (1.0, -1.0)]
        self._hold(np.unique(np.concatenate(best)))

    @property
    def held(self) -> Index:
        """The items (rows of the memberships) in the program so far."""
        return np.concatenate(self._order)

    def shoot(self, direction: Array) -> tuple[Array, Index, Array]:
        """For d (K-1,): the polar point u (K-1,), and the boundary point as items (J,) with convex weights (J,)."""
        for row in range(self._dim):
            self._solver.changeRowBounds(row, float(direction[row]), float(direction[row]))
        while True:
            _limit(self._solver, self.budget)
            self._solver.run()
            pivots = max(0, self._solver.getInfo().simplex_iteration_count)
            self.budget.spend(_PROGRAM + _PIVOT * pivots + _NUMBER * self.points.size)
            solution = self._solver.getSolution()
            polar = np.array(solution.row_dual, dtype=np.float64)
            if polar.size != self._dim or not np.isfinite(polar).all():  # stopped before there was anything to say
                return direction, self.held[:0], np.zeros(0)
            over = self.points @ polar - 1.0
            over[self._held] = -1.0
            worst = np.flatnonzero(over > _TOLERANCE)
            if len(worst) == 0 or self.budget.exhausted:
                break
            if len(worst) > 10:
                worst = worst[np.argpartition(-over[worst], 10)[:10]]
            self._hold(worst)
        weights = np.maximum(np.array(solution.col_value, dtype=np.float64)[2 * self._dim :], 0.0)
        items = self.held[: len(weights)]
        used = np.flatnonzero(weights)
        if len(used) == 0:
            return polar, items[:0], weights[:0]
        return polar, items[used], weights[used] / weights[used].sum()

    def ratio(self, polar: Array) -> float:
        """An upper bound on the scatter ratio, for any direction (K-1,): support of the hull there over r_0."""
        norm = float(np.linalg.norm(polar))
        return max(0.0, float((self.points @ polar).max()) / (norm * self._radius)) if norm > 0 else np.inf

    def climb(self, polar: Array, steps: int = 50) -> Array:
        """Frank-Wolfe with full steps on max |u| over the polar: the norm grows until u is a vertex that stays."""
        norm = 0.0
        for _ in range(steps):
            following = self.shoot(polar)[0]
            longer = float(np.linalg.norm(following))
            if longer <= norm * (1.0 + 1e-10) or self.budget.exhausted:
                return following if longer > norm else polar
            polar, norm = following, longer
        return polar

    def _hold(self, items: Index) -> None:
        self._held[items] = True
        self._order.append(items.astype(np.int64))
        self._add_columns(self.points[items], np.ones(len(items)))

    def _add_columns(self, points: Array, costs: Array) -> None:
        count = len(points)
        starts = np.arange(0, count * self._dim, self._dim, dtype=np.int32)
        self._solver.addCols(
            count,
            costs,
            np.zeros(count),
            np.full(count, highspy.kHighsInf),
            points.size,
            starts,
            np.tile(self._rows, count),
            np.ascontiguousarray(points).ravel(),
        )


def _limit(solver: highspy.Highs, budget: Budget) -> None:
    """Let the next run pivot no more often than the budget allows, and stop at its deadline if it has one."""
    solver.setOptionValue("simplex_iteration_limit", max(10, int(min(budget.left, 1e4) / _PIVOT)))
    if budget.deadline is not None:
        solver.setOptionValue(
            "time_limit", float(solver.getRunTime() + max(0.01, budget.deadline - time.perf_counter()))
        )


def separation(points: Array, budget: Budget) -> list[Array]:
    """Directions (K-1,) along which no point (N, K-1) lies beyond 0, or barely so: candidates for a ratio of zero.

    The deepest separating direction max{delta : (f_i - c)'u <= -delta, |u|_inf <= 1}, and, for a flat hull, both signs
    of the direction it is flattest in.
    """
    flattest = np.linalg.svd(points.T @ points)[2][-1]
    found: list[Array] = [flattest, -flattest]
    n_items, dim = points.shape
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = dim + 1, n_items
    program.col_cost_ = np.append(np.zeros(dim), -1.0)
    program.col_lower_ = np.append(np.full(dim, -1.0), 0.0)
    program.col_upper_ = np.ones(dim + 1)
    program.row_lower_ = np.full(n_items, -highspy.kHighsInf)
    program.row_upper_ = np.zeros(n_items)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(0, n_items * (dim + 1) + 1, dim + 1, dtype=np.int32)
    program.a_matrix_.index_ = np.tile(np.arange(dim + 1, dtype=np.int32), n_items)
    program.a_matrix_.value_ = np.hstack([points, np.ones((n_items, 1))]).ravel()
    solver.passModel(program)
    _limit(solver, budget)
    solver.run()
    budget.spend(_PROGRAM + _PIVOT * max(0, solver.getInfo().simplex_iteration_count) + _NUMBER * points.size)
    polar = np.array(solver.getSolution().col_value, dtype=np.float64)[:dim]
    return [*found, polar] if polar.size and np.linalg.norm(polar) > 0 else found
