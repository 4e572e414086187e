"""Are memberships scattered enough? A three-valued check of the sufficiently scattered condition (paper, Assumption 3.6).

With c = 1/K, the cone of SSC meets the simplex in the ball of radius r_0 = 1/sqrt(K(K-1)) around c, the largest in the
simplex. The *scatter ratio* rho is the radius of the largest ball around c inside conv(rows of F), in units of r_0: rho = 1 iff SSC1, and
**SSC(eps)** means rho >= 1 - eps. Finding rho is NP-hard in K, so the answer may be "undecided"; the other two come with proof.
"""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pdcc.arrays import Float64 as Array
from pdcc.arrays import Ints as Index
from pdcc.errors import CertificateError, PairDataError
from pdcc.identifiability.certificate import Certificate, Leaf, Split, Verification, level_of, verify
from pdcc.identifiability.pair_program import PairProgram, Region, cover
from pdcc.identifiability.rays import RayProgram, separation
from pdcc.identifiability.work import Budget
from pdcc.validation import check_memberships


class SSCVerdict(StrEnum):
    """Whether SSC(eps) holds."""

    SATISFIED = "satisfied"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


# Verdicts compare rho with 1 - eps up to this: the programs are solved to about 1e-9 and rho = 1 exactly must count as 1.
DECISION_TOLERANCE = 1e-6
# What "exactly 1" means for the separate statement on exact SSC.
_EXACT = 1e-7
# Without a ``gap`` the statement on exact SSC may take this much work after the verdict: a hundred draws should stay cheap.
_EXACT_WORK = 0.5
# The share of the work that climbing may use before proofs are tried.
_CLIMB = 0.2
# Beyond this the program of pairs (K(K+1)/2 unknowns) outgrows memory and time, and only rays and climbing are tried.
_MOST_CLUSTERS = 32


@dataclass(frozen=True, eq=False)
class SSCResult:
    """The answer of `check_ssc`.

    ``verdict``: "satisfied" (rho_lb >= 1 - eps - 1e-6, so that a ratio of 1 counts as 1 after rounding), "violated" (rho_ub below that), else "undecided".
    ``rho_lb``, ``rho_ub``: a certified interval for the scatter ratio; ``margin``: the same minus 1 - eps.
    ``anchor_ratio``: the largest s with c + s (simplex - c) inside the hull; NaN if the work limit came before it was known.
    ``exact``: a sentence on SSC proper, beginning "impossible", "holds", "fails" or "undecided".
    ``witness``: x (K,) with F x >= eps/K, 1'x = 1 and |x| > 1 if violated, else None.
    ``certificate``: what `verify` checks again; ``stage``: the step that decided; ``seconds``: time taken.

    Examples:
        >>> from pdcc import check_ssc
        >>> found = check_ssc([[0.75, 0.25], [0.25, 0.75]])  # all of the simplex, shrunk by a half
        >>> str(found.verdict), round(found.rho_ub, 2), found.verify().rho_ub < 0.95  # the proof, checked again
        ('violated', 0.5, True)
    """

    verdict: SSCVerdict
    rho_lb: float
    rho_ub: float
    anchor_ratio: float
    exact: str
    witness: Array | None
    certificate: Certificate | None
    stage: str
    seconds: float
    eps: float
    memberships: Array = field(repr=False)

    @property
    def margin(self) -> tuple[float, float]:
        """The interval of rho - (1 - eps)."""
        return self.rho_lb - (1.0 - self.eps), self.rho_ub - (1.0 - self.eps)

    def verify(self) -> Verification:
        """Check verdict, bounds and witness again from the memberships and the certificate alone; raise CertificateError if they fail.

        The anchor ratio has no certificate: its K linear programs are solved again.
        """
        threshold = 1.0 - self.eps - DECISION_TOLERANCE
        n_clusters = self.memberships.shape[1]
        if n_clusters > 1 and not np.isnan(self.anchor_ratio):
            again = anchor_ratio(self.memberships)
            if abs(again - self.anchor_ratio) > DECISION_TOLERANCE:
                raise CertificateError(f"an anchor ratio of {self.anchor_ratio} is claimed, {again} is found.")
        if self.certificate is None:
            if n_clusters == 1 and self.verdict is SSCVerdict.SATISFIED:
                return Verification(1.0, 1.0, 0, 0.0)
            raise CertificateError("certificate: there is none.")
        found = verify(self.certificate, self.memberships)
        if found.rho_lb < self.rho_lb - 1e-9 or found.rho_ub > self.rho_ub + 1e-9:
            raise CertificateError(
                f"rho in [{self.rho_lb}, {self.rho_ub}] is claimed, [{found.rho_lb}, {found.rho_ub}] is proved."
            )
        if self.verdict is SSCVerdict.SATISFIED and found.rho_lb < threshold:
            raise CertificateError(f"satisfied is claimed, but only rho >= {found.rho_lb} is proved.")
        if self.verdict is SSCVerdict.VIOLATED:
            if self.witness is None or found.rho_ub >= threshold:
                raise CertificateError(f"violated is claimed, but only rho <= {found.rho_ub} is proved.")
            slack = float((self.memberships @ self.witness).min()) - self.eps / n_clusters
            if slack < -1e-9 or abs(self.witness.sum() - 1.0) > 1e-9 or np.linalg.norm(self.witness) <= 1.0:
                raise CertificateError(f"the witness fails: slack {slack}, norm {np.linalg.norm(self.witness)}.")
        return found

    def __str__(self) -> str:
        how = "gave up" if self.verdict is SSCVerdict.UNDECIDED else f"decided by {self.stage}"
        return (
            f"SSC(eps={self.eps:g}) {self.verdict}: scatter ratio in [{self.rho_lb:.4f}, {self.rho_ub:.4f}], threshold "
            f"{1.0 - self.eps:g}, anchor ratio {self.anchor_ratio:.4f}; {how} after {self.seconds:.2f} s. "
            f"Exact SSC: {self.exact}"
        )


def check_ssc(
    memberships: ArrayLike,
    eps: float = 0.05,
    gap: float | None = None,
    work_limit: float = 5.0,
    time_limit: float | None = None,
    random_state: int = 0,
) -> SSCResult:
    """Decide SSC(eps) for ``memberships`` (N, K), rows on the simplex.

    Steps, each only if the ones before left it open: rays to the clusters and away from them (2K linear programs); climbing
    from those and from random starts to a witness; products of pairs of items (`pdcc.identifiability.pair_program`), on the whole and then region by
    region (K <= 32). With ``gap`` the interval is narrowed to that width after the verdict.

    Stops after work that an ordinary core does in about ``work_limit`` seconds, counted in arithmetic: the same input, options and
    ``random_state`` give the same answer on a busy machine. ``time_limit``, in seconds by the clock, breaks off besides; what is
    open then is "undecided".

    Examples:
        >>> import numpy as np
        >>> from pdcc import check_ssc
        >>> str(check_ssc(np.eye(4)).verdict), str(check_ssc(0.5 * np.eye(4) + 0.125).verdict)
        ('satisfied', 'violated')
    """
    began = time.perf_counter()
    F = check_memberships(memberships)
    _check_number("eps", eps, 0.0, 1.0, "at least 0 and below 1", "Use 0.05, or 0 for SSC1 itself.")
    if gap is not None:
        _check_number("gap", gap, 1e-9, np.inf, "None or a width of at least 1e-9", "Use None to stop at the verdict.")
    _check_number("work_limit", work_limit, 1e-3, np.inf, "a number of at least 0.001", "Use 5.0.")
    if time_limit is not None:
        _check_number("time_limit", time_limit, 1e-3, np.inf, "None or a number of seconds", "Use None.")
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise PairDataError("random_state", "an integer of at least 0", repr(random_state), "Use 0.")
    if F.shape[1] == 1:
        sentence = "holds: one cluster is its own anchor."
        return SSCResult(SSCVerdict.SATISFIED, 1.0, 1.0, 1.0, sentence, None, None, "one cluster", 0.0, float(eps), F)
    budget = Budget(float(work_limit), None if time_limit is None else began + time_limit)
    search = _Search(F, float(eps), budget, random_state)
    stage = search.decide()
    if gap is not None:
        search.narrow(gap)
    else:
        budget.restrict(_EXACT_WORK)
    exact = search.exact()
    certificate = search.certificate()
    proved = verify(certificate, F)
    verdict = search.verdict(proved.rho_lb, proved.rho_ub)
    return SSCResult(
        verdict=verdict,
        rho_lb=min(proved.rho_lb, proved.rho_ub),
        rho_ub=proved.rho_ub,
        anchor_ratio=search.anchor_ratio,
        exact=exact,
        witness=_witness(F, certificate.direction, float(eps)) if verdict is SSCVerdict.VIOLATED else None,
        certificate=certificate,
        stage=stage if verdict is not SSCVerdict.UNDECIDED else "none",
        seconds=time.perf_counter() - began,
        eps=float(eps),
        memberships=F,
    )


def anchor_ratio(memberships: Array) -> float:
    """rho(1): the largest s with c + s (simplex - c) inside the hull of the rows (N, K)."""
    search = _Search(memberships, 0.0, Budget(np.inf), 0)
    search.anchored()
    return search.anchor_ratio


class _Search:
    """The state of one check: the best bound on either side, and what proves it."""

    def __init__(self, F: Array, eps: float, budget: Budget, random_state: int):
        self.F, self.budget = F, budget
        self.threshold = 1.0 - eps
        self.n_clusters = F.shape[1]
        self.rng = np.random.default_rng(random_state)
        self.rays = RayProgram(F, budget)
        self.rho_ub, self.polar = np.inf, np.zeros(self.n_clusters - 1)
        self.rho_lb = 0.0
        self.anchor_ratio = np.nan
        self.met: list[Array] = []
        self.tree: Split | Leaf | None = None
        self.inner: tuple[tuple[Index, ...], tuple[Array, ...]] = ((), ())
        self._pairs: PairProgram | None = None

    def verdict(self, rho_lb: float, rho_ub: float) -> SSCVerdict:
        if rho_ub < self.threshold - DECISION_TOLERANCE:
            return SSCVerdict.VIOLATED
        return SSCVerdict.SATISFIED if rho_lb >= self.threshold - DECISION_TOLERANCE else SSCVerdict.UNDECIDED

    def decided(self) -> bool:
        return self.verdict(self.rho_lb, self.rho_ub) is not SSCVerdict.UNDECIDED

    def offer(self, polar: Array) -> None:
        """Take a direction as the bound from above if it is the best so far."""
        ratio = self.rays.ratio(polar)
        self.met.append(polar)
        if ratio < self.rho_ub:
            self.rho_ub, self.polar = ratio, polar

    def anchored(self) -> list[Array]:
        """Rays away from the clusters and to them, which give the anchor ratio."""
        for k in range(self.n_clusters):
            self.offer(-self.rays.basis[k])  # no program needed: 1 - K min_i F_ik
        anchors = self._anchors()
        if self.rho_ub < 1e-3:
            for polar in separation(self.rays.points, self.budget):
                self.offer(polar)
            if self.rho_ub < 1e-12:
                self.anchor_ratio = 0.0
        return anchors

    def decide(self) -> str:
        """The cascade; returns the name of the step that decided."""
        basis, K = self.rays.basis, self.n_clusters
        anchors = self.anchored()
        if self.decided():
            return "rays"
        tangents = []
        for k in range(K):
            if self.budget.exhausted:
                break
            tangents.append(self.rays.shoot(-basis[k])[0])
            self.offer(tangents[-1])
            if self.decided():
                return "rays"
        half = (K + 1) // 2
        starts = [*sorted(tangents, key=self.rays.ratio)[:half], *sorted(anchors, key=self.rays.ratio)[:half]]
        enough = (1 - _CLIMB) * self.budget.left
        for polar in [*starts, *self.rng.normal(size=(4, K - 1))]:
            if self.budget.left < enough:
                break
            self.offer(self.rays.climb(polar))
            if self.decided():
                return "climbing"
        self.prove(self.threshold - DECISION_TOLERANCE / 2)
        if self.decided():
            return "a witness met while splitting" if self.rho_ub < self.threshold else "products of pairs"
        return "narrowing"  # if at all, it is what follows that decides

    def narrow(self, gap: float) -> None:
        """Go on until rho_ub - rho_lb <= gap."""
        while self.rho_ub - self.rho_lb > gap and not self.budget.exhausted:
            before = self.rho_ub
            self.prove(self.rho_ub - 0.9 * gap)
            if self.rho_ub >= before:
                break

    def prove(self, ratio: float) -> None:
        """Try to certify rho >= ratio; a point met on the way that says otherwise lowers rho_ub instead."""
        if ratio <= self.rho_lb or self.n_clusters > _MOST_CLUSTERS or self.budget.exhausted:
            return
        program = self.pair_program()
        K = self.n_clusters

        def probe(moment: Array) -> float:
            mean = moment.sum(axis=1)
            principal = np.linalg.eigh(moment - np.outer(mean, mean))[1][:, -1]
            for heading in (mean, principal, -principal):
                if np.ptp(heading) > 1e-12 and not self.budget.exhausted:
                    self.offer(self.rays.climb(-(heading @ self.rays.basis)))
            program.hold(self.rays.held)
            return level_of(max(self.rho_ub, 1e-6), K)

        found = cover(program, level_of(max(ratio, 1e-6), K), probe)
        rho_lb = verify(Certificate(np.eye(K)[0], found.tree), self.F).rho_lb
        if rho_lb > self.rho_lb:
            self.rho_lb, self.tree, self.inner = rho_lb, found.tree, ((), ())

    def pair_program(self) -> PairProgram:
        if self._pairs is None:
            self._pairs = PairProgram(
                self.F, np.arange(len(self.F)) if len(self.F) <= 1000 else self.rays.held, self.budget
            )
        return self._pairs

    def certificate(self) -> Certificate:
        return Certificate(self.rays.basis @ self.polar, self.tree, *self.inner)

    def exact(self) -> str:
        """A sentence on exact SSC: SSC1 (rho = 1) and SSC2 (|x| = 1 in D at the unit vectors only)."""
        lowest = self.F.min(axis=0)
        k = int(np.argmax(lowest))
        if lowest[k] > 0:
            return f"impossible: strictly positive columns (every item has at least {lowest[k]:.3g} of cluster {k}, SSC needs zeros)."
        if self.rho_ub < 1.0 - _EXACT:
            return f"fails: the scatter ratio is at most {self.rho_ub:.9f}, SSC1 needs 1."
        self.prove(1.0 - _EXACT)
        if self.rho_ub < 1.0 - _EXACT:
            return f"fails: the scatter ratio is at most {self.rho_ub:.9f}, SSC1 needs 1."
        if self.rho_lb < 1.0 - _EXACT:
            return "undecided: the scatter ratio could not be told from 1."
        for polar in self.met:
            x = 1.0 / self.n_clusters - self.rays.basis @ polar / (
                self.n_clusters * float((self.rays.points @ polar).max())
            )
            if np.linalg.norm(x) > 1.0 - _EXACT and x.max() < 1.0 - 1e-3:
                return "fails: SSC1 holds (rho = 1 to 1e-7) but SSC2 does not, as the ball also touches the hull away from the simplex."
        if self._strict():
            return "holds: SSC1 and SSC2, to 1e-7."
        return "undecided: SSC1 holds (rho = 1 to 1e-7), SSC2 could not be settled."

    def _strict(self) -> bool:
        """SSC2 where SSC1 holds: |x|^2 < 1 where every x_k <= theta, and |x|^2 + eta (1 - x_k) <= 1 where x_k >= theta.

        x_k <= 1 on D under SSC1, so the second leaves |x| = 1 only at x_k = 1, that is at the unit vector.
        """
        K, program = self.n_clusters, self.pair_program()
        theta, eta, unit = 0.25 + 1.0 / K, 1e-2, np.eye(K)
        centre = np.full(K, 1.0 / K)
        flat = Region(theta - unit, centre, K)
        if not cover(program, 1.0 - 1e-4, lambda moment: 0.0, flat).reached:
            return False
        for k in range(K):
            objective = unit + eta * (1.0 - (unit[k][:, None] + unit[k]) / 2.0)
            peak = Region(unit[[k]] - theta, centre + 0.9 * (unit[k] - centre), 1)
            if not cover(program, 1.0 + _EXACT, lambda moment: 0.0, peak, objective).reached:
                return False
        return True

    def _anchors(self) -> list[Array]:
        """Rays to the K clusters: the anchor ratio, and the simplex of their ends as a first inner bound."""
        K, basis = self.n_clusters, self.rays.basis
        polars: list[Array] = []
        items: list[Index] = []
        weights: list[Array] = []
        ratio = np.inf
        for k in range(K):
            if self.budget.exhausted:
                return polars
            polar, used, share = self.rays.shoot(basis[k])
            self.offer(polar)
            polars.append(polar)
            along = float(basis[k] @ polar)
            ratio = min(ratio, max(0.0, float((self.rays.points @ polar).max())) / along if along > 0 else np.inf)
            items.append(used)
            weights.append(share)
        if not self.budget.exhausted:  # a program cut short has not reached its optimum
            self.anchor_ratio = min(1.0, ratio)
        if any(len(used) == 0 for used in items):
            return polars
        ends = np.array([share @ self.F[used] for used, share in zip(items, weights, strict=True)])
        leaf = _simplex_leaf(ends, len(self.F))
        if leaf is not None:
            self.tree, self.inner = leaf, (tuple(items), tuple(weights))
            self.rho_lb = verify(self.certificate(), self.F).rho_lb
        return polars


def _simplex_leaf(ends: Array, first: int) -> Leaf | None:
    """The pair weights for a simplex with corners ``ends`` (K, K) around c: P^-T (t 11' - I) P^-1 at the least t that keeps them >= 0."""
    if np.linalg.cond(ends) > 1e10:
        return None
    inverse = np.linalg.inv(ends)
    share = inverse.sum(axis=0)  # c = sum_k share_k end_k / K
    if share.min() <= 1e-12:
        return None
    gram, outer = inverse.T @ inverse, np.outer(share, share)
    level = float((gram / outer).max())
    weights = np.maximum(level * outer - gram, 0.0)
    left, right = np.triu_indices(len(ends))
    return Leaf(first + left, first + right, weights[left, right] * np.where(left == right, 1.0, 2.0), level)


def _witness(F: Array, direction: Array, eps: float) -> Array:
    """x (K,) = c - s v, as long as F x >= eps/K allows (at most 10 where nothing stops it)."""
    K = F.shape[1]
    v = direction - direction.mean()
    v = v / np.linalg.norm(v)
    support = float(((F - 1.0 / K) @ v).max())
    step = 10.0 if support <= (1.0 - eps) / (10.0 * K) else (1.0 - eps) / (K * support)
    return np.asarray(1.0 / K - step * v)


def _check_number(name: str, value: Any, low: float, high: float, expected: str, fix: str) -> None:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not low <= value < high:
        raise PairDataError(name, expected, repr(value), fix)
