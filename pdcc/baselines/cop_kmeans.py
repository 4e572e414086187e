"""COP-KMeans (Wagstaff et al. 2001): K-means that puts an item only where no answer is broken."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, triu

from pdcc.arrays import Float64, Ints
from pdcc.baselines.kmeans import CentroidClusterer, centroids, spread_out, squared_distances
from pdcc.baselines.links import Closure, broken, close, members, signed_links
from pdcc.data.pairs import PairData
from pdcc.errors import InfeasibleError
from pdcc.validation import check_count, check_one_of

# How often a run may take a group that found no cluster left to the head of its order: most problems that can be
# solved need none, the hardest seen (N = 200, M = 400, K = 3) needed 29.
PROMOTIONS = 30
FIX = (
    'Pass on_infeasible="relax" to break few of them, or use a method that allows for wrong answers, such as VolMaxDCC '
    "or PCKMeans."
)


@dataclass(frozen=True)
class Groups:
    """What is assigned as one. of: (N,) the items' groups. member: (G, N) 0/1. links: (G, G), as ``signed_links``."""

    of: Ints
    member: "csr_array[np.float64]"
    links: "csr_array[np.float64]"

    @classmethod
    def make(cls, closure: Closure, data: PairData) -> "Groups":
        """Must-link components. One with a contradiction falls apart into items, whose "similar" answers stay links:
        kept whole, a few wrong answers would chain most items into one component, and that into one cluster.
        """
        contradicted = np.isin(closure.component, closure.component[data.i[closure.contradictions]])
        apart = np.where(contradicted, len(closure.size) + np.arange(data.n_items), closure.component)
        names, of = np.unique(apart, return_inverse=True)
        return cls(of, members(of, len(names)), signed_links(of, len(names), data))


class Sweep:
    """Greedy assignment of groups in a fixed order; with a new order for every sweep K-means would never settle."""

    def __init__(self, links: "csr_array[np.float64]", order: Ints):
        """order: the groups that have links; the others need none."""
        self.links, self.order = links, order
        ahead = csr_array(triu(links[order][:, order], k=1))
        pairs = list(zip(ahead.indices.tolist(), ahead.data.tolist(), strict=True))
        cuts = ahead.indptr.tolist()
        self.later = [pairs[a:b] for a, b in pairwise(cuts)]

    @classmethod
    def drawn(cls, groups: Groups, rng: np.random.Generator) -> "Sweep":
        """Groups with the most answers first, equals at random: whoever comes late finds most clusters barred."""
        weight: Float64 = np.asarray(abs(groups.links).sum(axis=1), dtype=np.float64)
        order = rng.permutation(np.flatnonzero(np.diff(groups.links.indptr)))
        return cls(groups.links, order[np.argsort(-weight[order], kind="stable")])

    def promoted(self, group: int) -> "Sweep":
        """The same with ``group`` first."""
        return Sweep(self.links, np.concatenate([[group], self.order[self.order != group]]))

    def __call__(self, cost: Float64, *, strict: bool) -> Ints | int:
        """Labels (G,) by the groups' costs (G, K): fewest broken answers first, then cheapest.

        If ``strict``, the number of the first group that would have to break one, where there is such a group.
        """
        labels: Ints = cost.argmin(axis=1)
        # Costs squeezed into [0, 1/2]: the whole numbers added to them count broken answers, and always decide first.
        low, high = cost.min(axis=1, keepdims=True), cost.max(axis=1, keepdims=True)
        # Plain lists: on rows this short each numpy call would cost ten times the arithmetic.
        score = ((cost - low) / np.where(high > low, 2 * (high - low), 1.0))[self.order].tolist()
        for group, row, later in zip(self.order.tolist(), score, self.later, strict=True):
            least = min(row)
            if strict and least >= 1.0:
                return int(group)
            labels[group] = k = row.index(least)
            for rank, sign in later:
                score[rank][k] += sign
        return labels


@dataclass(frozen=True)
class Run:
    """One run: labels (N,), centres (K, d), how many answers they break, inertia, sweeps."""

    labels: Ints
    centres: Float64
    n_broken: int
    inertia: float
    n_iter: int


class COPKMeans(CentroidClusterer):
    """K-means under hard constraints: "similar" answers join items for good, "different" answers keep them apart.

    Items joined by chains of "similar" answers move as one, each to the nearest centroid that no "different" answer
    bars, groups with the most answers first. One wrong answer can make that impossible.

    Args:
        n_clusters: K.
        scale: "standard" (columns of one size), "unit" (centred rows of one length) or None (features as they are).
        max_iter: at most this many sweeps per run.
        n_init: runs, each with its own order and k-means++ seeds; the lowest inertia among the fewest broken answers.
        on_infeasible: "raise" an InfeasibleError if "different" answers contradict chains of "similar" ones, or no run
            found a cluster for every group; or "relax": then break up contradictory chains, and put every item where
            it breaks the fewest answers so far, then nearest.
        random_state: seed; an int fixes everything.

    Fitted attributes:
        labels_ (N,), cluster_centers_ (K, d), n_iter_, violations_ ({"must_link": ..., "cannot_link": ...}: the given
        answers that labels_ break), feasible_ (labels_ break none), inertia_, scaler_, n_features_in_. ``predict`` uses
        no answers: it takes the nearest centroid, also for items fitted on.

    Examples:
        >>> import numpy as np
        >>> from pdcc.baselines import COPKMeans
        >>> X = np.repeat(np.eye(3), 20, axis=0) + 0.01 * np.arange(60)[:, None]
        >>> pairs = np.array([[i, (7 * i + 1) % 60] for i in range(60)])
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> COPKMeans(3, random_state=0).fit(X, pairs, similar).feasible_
        True
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        scale: str | None = "standard",
        max_iter: int = 100,
        n_init: int = 10,
        on_infeasible: str = "raise",
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.scale = scale
        self.max_iter = max_iter
        self.n_init = n_init
        self.on_infeasible = on_infeasible
        self.random_state = random_state

    def _check(self) -> None:
        super()._check()
        check_count("max_iter", self.max_iter)
        check_count("n_init", self.n_init)
        check_one_of("on_infeasible", self.on_infeasible, ("raise", "relax"))

    def _train(self, x: Float64, data: PairData, seed: int) -> Ints:
        closure = close(data)
        groups = Groups.make(closure, data)

        def attempt(strict: bool) -> list[Run | int]:
            return [self._run(x, data, groups, seed, t, strict) for t in range(self.n_init)]

        found = [] if len(closure.contradictions) else attempt(strict=True)
        runs = [run for run in found if isinstance(run, Run)]
        if not runs:
            if self.on_infeasible == "raise":
                raise InfeasibleError(self._why(data, closure, groups, found))
            runs = [run for run in attempt(strict=False) if isinstance(run, Run)]
        best = min(runs, key=lambda run: (run.n_broken, run.inertia))
        self.cluster_centers_, self.inertia_, self.n_iter_ = best.centres, best.inertia, best.n_iter
        self.violations_ = broken(best.labels, data)
        self.feasible_ = best.n_broken == 0
        return best.labels

    def _run(self, x: Float64, data: PairData, groups: Groups, seed: int, t: int, strict: bool) -> Run | int:
        """Run number ``t``; the group that found no cluster, if not even one sweep reached its end."""
        K = self.n_clusters
        centres = spread_out(x, K, seed + t)
        sweep = Sweep.drawn(groups, np.random.default_rng([seed, t]))
        labels, seen, n_iter, promotions = np.full(len(x), -1), set(), 0, PROMOTIONS
        while n_iter < self.max_iter:
            found = sweep(np.asarray(groups.member @ squared_distances(x, centres)), strict=strict)
            if isinstance(found, int):
                if promotions:
                    sweep, promotions = sweep.promoted(found), promotions - 1
                    continue
                if n_iter == 0:
                    return found
                break  # an earlier sweep kept every answer: better than none
            n_iter += 1
            labels = found[groups.of]
            centres = centroids(x, labels, K)
            # Under constraints inertia may rise, so that sweeps can also go round in a circle.
            if labels.tobytes() in seen:
                break
            seen.add(labels.tobytes())
        inertia = float(((x - centres[labels]) ** 2).sum())
        return Run(labels, centres, sum(broken(labels, data).values()), inertia, n_iter)

    def _why(self, data: PairData, closure: Closure, groups: Groups, stuck: list[Run | int]) -> str:
        if len(closure.contradictions):
            rows, expected = closure.contradictions, "answers that some clustering keeps"
            found = f'{len(rows)} "different" answer(s) between items that chains of "similar" answers join'
        else:
            group = stuck[0]
            rows = np.flatnonzero(~data.similar & ((groups.of[data.i] == group) | (groups.of[data.j] == group)))
            expected = f"answers that an assignment to {self.n_clusters} clusters keeps"
            found = (
                f"no contradiction, but in each of {len(stuck)} run(s) a group of items that "
                '"different" answers bar from every cluster'
            )
        row = int(rows[0])
        where = f"first at row {row}: items {data.i[row]} and {data.j[row]}"
        if data.self_pairs:
            where += f", not counting {data.self_pairs} pair(s) of an item with itself"
        return f"similar: expected {expected}, found {found} ({where}). {FIX}"
