"""The scatter check: closed forms, exact hulls, certificates that hold, and refusals that say why."""

import dataclasses
import itertools
import os
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull, QhullError

from pdcc.errors import CertificateError
from pdcc.identifiability.certificate import Leaf, Split
from pdcc.identifiability.pair_program import Bound, cover
from pdcc.identifiability.rays import hyperplane
from pdcc.identifiability.ssc import check_ssc
from pdcc.identifiability.work import Budget


def subsets(K, m):
    return np.array([np.isin(np.arange(K), chosen) / m for chosen in itertools.combinations(range(K), m)])


def hexagon(omega):
    return np.array(list(itertools.permutations((omega, 1 - omega, 0.0))))


def polygon(n):
    angle = 2 * np.pi * np.arange(n) / n + 0.1
    return 1 / 3 + np.column_stack([np.cos(angle), np.sin(angle)]) / np.sqrt(6.0) @ hyperplane(3).T


def exact_ratio(F):
    K = F.shape[1]
    points = (F - 1 / K) @ hyperplane(K)
    if K == 2:
        return max(0.0, min(points.max(), -points.min()) * np.sqrt(2.0))
    try:
        hull = ConvexHull(points)
    except QhullError:
        return 0.0
    return max(0.0, -hull.equations[:, -1].max() * np.sqrt(K * (K - 1)))


ORACLES = [
    *((f"identity {K}", np.eye(K), 1.0) for K in (2, 3, 6, 12)),
    *((f"hexagon {w:.2f}", hexagon(w), min(1.0, 3 * w - 1)) for w in (0.5, 0.6, 2 / 3, 0.8)),
    *(
        (f"subsets {m} of {K}", subsets(K, m), min(1.0, K / m - 1))
        for K, m in ((3, 2), (4, 2), (5, 2), (6, 4), (7, 3), (8, 6), (10, 5))
    ),
    *((f"{n}-gon", polygon(n), np.cos(np.pi / n)) for n in (3, 4, 5, 12)),
    *((f"shrunk {K} {s}", s * np.eye(K) + (1 - s) / K, s) for K, s in ((3, 0.5), (10, 0.97), (20, 0.1))),
]


@pytest.mark.parametrize(("F", "rho"), [pytest.param(F, rho, id=name) for name, F, rho in ORACLES])
def test_closed_forms_to_1e_6(F, rho):
    result = check_ssc(F, gap=1e-6, work_limit=20.0)
    assert result.rho_lb == pytest.approx(rho, abs=1e-6)
    assert result.rho_ub == pytest.approx(rho, abs=1e-6)
    assert result.verdict == ("satisfied" if rho >= 0.95 else "violated")
    result.verify()


def test_anchor_ratio_is_the_shrinkage_of_a_simplex():
    assert check_ssc(0.6 * np.eye(5) + 0.4 / 5).anchor_ratio == pytest.approx(0.6, abs=1e-8)
    # Midpoints of the edges reach half way to a corner of the triangle, and that is (1/2 - 1/3) / (1 - 1/3).
    assert check_ssc(subsets(3, 2)).anchor_ratio == pytest.approx(0.25, abs=1e-8)


@pytest.mark.parametrize(
    ("F", "begins"),
    [
        (np.eye(4), "holds"),
        (hexagon(0.8), "holds"),
        (subsets(7, 3), "holds"),
        (subsets(4, 2), "fails: SSC1 holds"),
        (hexagon(2 / 3), "fails: SSC1 holds"),
        (hexagon(0.6), "fails: the scatter ratio"),
        (0.999 * np.eye(4) + 0.001 / 4, "impossible: strictly positive columns"),
        (np.ones((3, 1)), "holds"),
    ],
)
def test_exact_ssc_is_said_apart(F, begins):
    # With a gap it may search as long as it needs; the limit only guards against hanging.
    assert check_ssc(F, gap=1e-6, work_limit=120.0).exact.startswith(begins)


def test_random_hulls_agree_with_qhull():
    rng = np.random.default_rng(1)
    verdicts = set()
    for number in range(60):
        K = int(rng.integers(2, 8))
        alpha = np.full(K, np.exp(rng.uniform(np.log(0.05), np.log(3.0))))
        alpha[0] *= rng.choice([1.0, 1.0, 6.0])
        F = rng.dirichlet(alpha, int(rng.integers(K + 1, 60)))
        if number % 2:
            F = np.vstack([F, 0.9 * np.eye(K) + 0.1 / K])
        rho = exact_ratio(F)
        result = check_ssc(F, gap=1e-4 if number % 3 == 0 else None, work_limit=20.0)
        verdicts.add(result.verdict)
        assert result.rho_lb - 1e-7 <= rho <= result.rho_ub + 1e-7
        assert result.verdict == ("satisfied" if rho >= 0.95 else "violated")
        if number % 3 == 0:
            assert result.rho_ub - result.rho_lb <= 1e-4
        result.verify()
    assert verdicts == {"satisfied", "violated"}


@st.composite
def any_memberships(draw):
    """Rows of small integers or of floats, of any rank, some repeated, some all in one cluster."""
    K = draw(st.integers(1, 6))
    entry = draw(st.sampled_from([st.integers(0, 3), st.floats(0.0, 1.0, width=32), st.floats(1e-9, 1.0)]))
    rows = draw(st.lists(st.lists(entry, min_size=K, max_size=K), min_size=1, max_size=14))
    F = np.array(rows, dtype=np.float64)
    F[F.sum(axis=1) < 1e-6] = 1.0
    F /= F.sum(axis=1, keepdims=True)
    if draw(st.booleans()):
        F = np.vstack([F, draw(st.floats(0.2, 1.0)) * (np.eye(K) - 1 / K) + 1 / K])
    return F.astype(draw(st.sampled_from([np.float32, np.float64])))


@settings(
    max_examples=int(os.environ.get("PDCC_SSC_EXAMPLES", "150")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(F=any_memberships(), eps=st.sampled_from([0.0, 0.05, 0.3, 0.95]), gap=st.sampled_from([None, None, 1e-3]))
def test_hypothesis_inputs_neither_crash_nor_break_a_certificate(F, eps, gap):
    result = check_ssc(F, eps=eps, gap=gap, work_limit=2.0)
    assert 0.0 <= result.rho_lb <= result.rho_ub <= 1.0
    found = result.verify()
    assert found.rho_lb <= found.rho_ub + 1e-7
    assert (result.witness is not None) == (result.verdict == "violated")
    assert str(result).startswith(f"SSC(eps={eps:g}) {result.verdict}")


def test_a_witness_holds_on_every_item():
    F = np.random.default_rng(0).dirichlet(np.full(6, 3.0), 400)
    result = check_ssc(F, eps=0.1)
    assert result.verdict == "violated"
    assert (F @ result.witness).min() >= 0.1 / 6 - 1e-12
    assert result.witness.sum() == pytest.approx(1.0)
    assert np.linalg.norm(result.witness) > 1.0
    assert result.margin[1] < 0


@pytest.mark.parametrize(
    "F",
    [
        np.random.default_rng(0).dirichlet([30, 1, 1, 1], 50),  # the barycentre is outside
        np.array([[1.0, 0, 0], [0, 0.5, 0.5], [0.5, 0.25, 0.25]]),  # a segment through the barycentre
        np.full((7, 3), 1 / 3),  # the barycentre itself, repeated
        np.array([[0.2, 0.8, 0.0]]),  # one item
        np.eye(5)[:3],  # fewer items than clusters
        np.array([[0.9, 0.1], [0.6, 0.4]]),
    ],
)
def test_flat_or_lopsided_hulls_have_ratio_zero(F):
    result = check_ssc(F)
    assert result.verdict == "violated"
    assert (result.rho_lb, result.rho_ub) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert result.anchor_ratio == pytest.approx(0.0, abs=1e-9)
    assert np.linalg.norm(result.witness) > 1.0
    result.verify()


def test_two_clusters_are_an_interval():
    F = np.array([[0.02, 0.98], [0.9, 0.1], [0.5, 0.5]])
    result = check_ssc(F, eps=0.3, gap=1e-6)
    assert result.rho_lb == pytest.approx(0.8, abs=1e-6)
    assert result.verdict == "satisfied"


def test_many_clusters_are_certified_without_anchors():
    F = np.random.default_rng(0).dirichlet(np.full(15, 1.0), 1000)
    result = check_ssc(F, work_limit=20.0)
    assert result.verdict == "satisfied"
    assert result.anchor_ratio < 0.3
    assert result.verify().leaves > 1


def test_same_answer_twice_and_in_float32():
    F = np.random.default_rng(3).dirichlet(np.full(7, 0.8), 300)
    first, second, single = check_ssc(F), check_ssc(F), check_ssc(F.astype(np.float32))
    assert (first.rho_lb, first.rho_ub, first.stage) == (second.rho_lb, second.rho_ub, second.stage)
    assert single.verdict == first.verdict
    assert single.rho_ub == pytest.approx(first.rho_ub, abs=1e-5)


def test_permuting_items_and_clusters_changes_nothing():
    rng = np.random.default_rng(4)
    F = rng.dirichlet(np.full(5, 0.7), 60)
    there = check_ssc(F, gap=1e-6)
    back = check_ssc(F[rng.permutation(60)][:, rng.permutation(5)], gap=1e-6)
    assert back.rho_lb == pytest.approx(there.rho_lb, abs=2e-6)


@pytest.mark.parametrize("limit", [0.05, 0.5])
def test_out_of_work_the_interval_is_still_certified(limit):
    F = np.random.default_rng(0).dirichlet(np.full(20, 1.0), 1000)
    result = check_ssc(F, work_limit=limit)
    assert result.verdict == "undecided"
    assert result.rho_lb <= result.rho_ub
    assert result.rho_ub < 1.0
    result.verify()


def test_a_clock_may_break_off_and_then_nothing_is_claimed():
    F = np.random.default_rng(0).dirichlet(np.full(20, 1.0), 1000)
    result = check_ssc(F, time_limit=0.05)
    assert result.verdict == "undecided"
    result.verify()


def test_the_answer_does_not_depend_on_the_machines_load(monkeypatch):
    """A clock that jumps by an hour at every look must not change a bit of an answer that has no time limit."""
    F = np.random.default_rng(0).dirichlet(np.full(15, 1.0), 400)
    calm = check_ssc(F, work_limit=0.3)
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(hours)))
    busy = check_ssc(F, work_limit=0.3)
    assert (busy.verdict, busy.rho_lb, busy.rho_ub, busy.stage) == (calm.verdict, calm.rho_lb, calm.rho_ub, calm.stage)


def test_a_tie_between_regions_does_not_compare_them():
    """All regions end at one level, and the second look meets a point beyond the target: the queue holds ties then."""

    class Flat:
        memberships, budget = np.eye(3), Budget(1.0)

        def solve(self, region, target, warm=None, objective=None):
            none = np.zeros(0, dtype=np.int64)
            return Bound(2.0, Leaf(none, none, np.zeros(0), 2.0), np.outer(region.inside, region.inside), False)

    looks = iter([0.0, 9.0])
    found = cover(Flat(), 1.0, lambda moment: next(looks))
    assert not found.reached
    assert found.level == 2.0


def test_a_tampered_certificate_is_refused():
    F = np.random.default_rng(0).dirichlet(np.full(8, 1.0), 1000)
    result = check_ssc(F)
    assert isinstance(result.certificate.tree, Split)
    leaf = result.certificate.tree.children[1]
    assert isinstance(leaf, Leaf)

    def swapped(child):
        tree = dataclasses.replace(
            result.certificate.tree,
            children=(result.certificate.tree.children[0], child, *result.certificate.tree.children[2:]),
        )
        return dataclasses.replace(result, certificate=dataclasses.replace(result.certificate, tree=tree))

    with pytest.raises(CertificateError, match="negative"):
        swapped(dataclasses.replace(leaf, weights=-leaf.weights)).verify()
    with pytest.raises(CertificateError, match="not finite"):
        swapped(dataclasses.replace(leaf, weights=np.full_like(leaf.weights, np.inf))).verify()
    with pytest.raises(CertificateError, match="overflow"), np.errstate(over="ignore", invalid="ignore"):
        swapped(dataclasses.replace(leaf, weights=np.full_like(leaf.weights, 1e308))).verify()
    with pytest.raises(CertificateError, match="claimed"):
        swapped(dataclasses.replace(leaf, weights=leaf.weights * 0.5)).verify()
    with pytest.raises(CertificateError, match="not there"):
        swapped(dataclasses.replace(leaf, left=leaf.left + 10_000)).verify()
    dropped = dataclasses.replace(result.certificate.tree, children=result.certificate.tree.children[:-1])
    with pytest.raises(CertificateError, match="cover"):
        dataclasses.replace(result, certificate=dataclasses.replace(result.certificate, tree=dropped)).verify()
    with pytest.raises(CertificateError, match="claimed"):
        dataclasses.replace(result, rho_ub=0.9).verify()
    with pytest.raises(CertificateError):
        dataclasses.replace(result, memberships=0.5 * F + 0.5 / 8).verify()


@pytest.mark.parametrize(
    ("F", "says", "row"),
    [
        (np.array([[0.5, 0.5], [np.nan, 1.0]]), "finite", 1),
        (np.array([[0.5, 0.5], [1.1, -0.1]]), "at least 0", 1),
        (np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.6]]), "sum to 1", 2),
        (np.ones(3) / 3, "2D", None),
        (np.zeros((0, 3)), "2D", None),
        ([["a", "b"]], "numbers", None),
        ([[1.0], [0.5, 0.5]], "rows of one length", None),
    ],
)
def test_bad_memberships_are_refused(F, says, row):
    with pytest.raises(ValueError, match=f"memberships: expected.*{says}") as caught:
        check_ssc(F)
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("eps", 1.0),
        ("eps", -0.1),
        ("eps", "a"),
        ("gap", 0.0),
        ("work_limit", 0),
        ("time_limit", -1),
        ("random_state", -1),
    ],
)
def test_bad_options_are_refused(option, value):
    with pytest.raises(ValueError, match=f"^{option}: expected"):
        check_ssc(np.eye(3), **{option: value})


def test_a_tampered_anchor_ratio_is_refused():
    for F in (np.random.default_rng(0).dirichlet([0.3] * 4, size=60), 0.7 * np.eye(3) + 0.1):
        found = check_ssc(F)
        found.verify()
        for other in (found.anchor_ratio + 0.01, found.anchor_ratio - 0.01, 1.5):
            with pytest.raises(CertificateError, match="anchor ratio"):
                dataclasses.replace(found, anchor_ratio=other).verify()
