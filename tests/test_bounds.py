"""The theorems' numbers against independent arithmetic, and the honesty of their infinities."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcc.identifiability.bounds import (
    bounds_table,
    lemma_3_3,
    pairs_needed,
    theorem_3_4,
    theorem_3_5,
    theorem_3_7,
    theorem_4_1,
)
from pdcc.identifiability.complexity import in_words, net_weights, observed_alpha, r_net, sigma_max_v
from pdcc.identifiability.setting import Setting
from pdcc.models import Membership

SMALL = Setting(n_items=50, n_pairs=400, n_clusters=3, alpha=0.1, complexity=2.0, row_norm=1.5, sigma_v=4.0)
# So many pairs and so simple a net that Theorem 3.4 applies.
AMPLE = Setting(n_items=20, n_pairs=1e40, n_clusters=2, alpha=0.2, complexity=0.5, row_norm=1.0, sigma_v=2.0)
CALCULATORS = [lemma_3_3, theorem_3_4, theorem_3_5]


def epsilon_squared(s, delta):
    """Equation 8 typed again from the paper, with S_X an explicit matrix."""
    S_X = np.full((int(min(2 * s.n_pairs, 800)), 1), s.row_norm)
    scale = math.sqrt(2 * s.n_pairs / len(S_X))
    return (
        64 * np.log(1 / s.alpha) / s.n_pairs
        + 96 * 2**0.5 * np.log2(s.n_pairs) / (s.alpha * s.n_pairs) * np.linalg.norm(S_X) * scale * s.complexity**0.5
        + 64 * np.log(1 / s.alpha) * np.sqrt(2 * np.log(4 / delta) / s.n_pairs)
        + 16 * s.nu / s.alpha
    )


def test_lemma_3_3_is_equation_8():
    for s in (SMALL, replace(SMALL, nu=0.01, delta=0.2), AMPLE):
        bound = lemma_3_3(s)
        assert bound.value == pytest.approx(epsilon_squared(s, s.delta), rel=1e-12)
        assert sum(bound.terms.values()) == pytest.approx(bound.value)
        assert bound.conditions["probability"] == 1 - s.delta
    # By hand: log(1/alpha) = log 10, M = 400, |S_X|_F = 1.5 sqrt(800), R = 2.
    terms = lemma_3_3(SMALL).terms
    assert terms["loss range"] == pytest.approx(0.36841362, rel=1e-6)
    assert terms["net complexity"] == pytest.approx(96 * 8.64385619 * 2 * 1.5 * math.sqrt(800) / 40, rel=1e-8)
    assert terms["confidence"] == pytest.approx(64 * 2.30258509 * math.sqrt(2 * 4.38202663) / 20, rel=1e-8)
    assert terms["misfit"] == 0.0


def test_theorem_3_4_and_3_5_by_other_arithmetic():
    s = AMPLE
    prime = math.sqrt(s.n_pairs**0.25 * epsilon_squared(s, 1 / math.sqrt(s.n_pairs)) + s.n_pairs**-0.25)
    # |Pi M* - M|_F^2 <= 4 N^2 eps^2 + 2 K^2 (1 + 8 sigma^2) eps', the last line of the proof, over NK.
    total = 4 * 400 * epsilon_squared(s, 0.05) + 2 * 4 * (1 + 8 * 4.0) * prime
    bound = theorem_3_4(s)
    assert bound.value == pytest.approx(total / 40, rel=1e-12)
    assert bound.conditions["epsilon_prime"] == pytest.approx(prime)
    assert bound.conditions["probability"] == pytest.approx(1 - 0.05 - 4 / 1e10)
    assert not bound.vacuous
    assert bound.reason is None
    X = np.full((20, 1), s.row_norm)
    extra = 8 / 40 + 12 * math.sqrt(2 * 0.5) * np.linalg.norm(X) * math.log2(20) / 40
    extra += 8 * math.sqrt(2 * math.log(80) / (20 * 4))
    unseen = theorem_3_5(s)
    assert unseen.value == pytest.approx(total / 40 + extra, rel=1e-12)
    assert unseen.terms["new items: loss range"] == 8 / (20 * 2)  # and not the 4/(NK) of the statement
    assert unseen.conditions["probability"] == pytest.approx(1 - 2 * 0.05 - 4 / 1e10)


def test_the_condition_is_the_proof_s_not_the_printed_one():
    # epsilon'^2 <= 1/(8 K^2) holds here and 8 K^2 epsilon' <= 1 does not.
    needed = pairs_needed(math.inf, AMPLE).n_pairs
    s = replace(AMPLE, n_pairs=needed / 100)
    prime = theorem_3_4(s).conditions["epsilon_prime"]
    assert 1 / (8 * 4) < prime <= math.sqrt(1 / (8 * 4))
    assert math.isinf(theorem_3_4(s).value)
    assert "M_0" in theorem_3_4(s).reason


@settings(max_examples=60, deadline=None)
@given(
    st.floats(2, 100),
    st.floats(1.001, 1e6),
    st.floats(0.001, 0.4),
    st.floats(0, 1e6),
    st.sampled_from(CALCULATORS),
)
def test_bounds_fall_with_pairs(log_pairs, factor, alpha, complexity, calculator):
    few = replace(SMALL, alpha=alpha, complexity=complexity, n_pairs=max(55.0, math.exp(log_pairs)))
    more = calculator(replace(few, n_pairs=few.n_pairs * factor))
    less = calculator(few)
    assert more.value <= less.value * (1 + 1e-12)
    assert more.conditions["probability"] >= less.conditions["probability"]


def test_bounds_grow_with_what_makes_the_problem_hard():
    for calculator in CALCULATORS:
        base = calculator(AMPLE).value
        for change in ({"alpha": 0.1}, {"complexity": 1.0}, {"row_norm": 2.0}, {"delta": 0.01}):
            assert calculator(replace(AMPLE, **change)).value > base, (calculator, change)
    assert theorem_3_4(replace(AMPLE, sigma_v=3.0)).value > theorem_3_4(AMPLE).value


def test_misfit_leaves_no_m_0():
    s = replace(AMPLE, nu=1e-6)
    for calculator in (theorem_3_4, theorem_3_5):
        assert math.isinf(calculator(s).value)
        assert "no M_0" in calculator(s).reason
        assert math.isinf(pairs_needed(math.inf, s, calculator).n_pairs)
    assert lemma_3_3(s).terms["misfit"] == pytest.approx(16e-6 / 0.2)
    assert lemma_3_3(replace(s, n_pairs=math.inf)).value == pytest.approx(8e-5)


def test_alpha_of_zero_is_infinite_and_said():
    s = replace(AMPLE, alpha=0.0)
    for calculator in [*CALCULATORS, theorem_3_7, theorem_4_1]:
        assert math.isinf(calculator(s).value)
        assert "alpha = 0" in calculator(s).reason
        assert calculator(s).vacuous


def test_vacuous_bounds_say_so():
    bound = lemma_3_3(SMALL)
    assert bound.value > bound.maximum == 1.0
    assert bound.vacuous
    assert bound.reason.startswith("Vacuous")
    assert "net complexity" in bound.reason
    bound = theorem_3_4(SMALL)
    assert math.isinf(bound.value)
    assert bound.conditions["probability"] == 0.0
    assert "probability" in bound.reason


def test_no_clustering_is_worse_than_the_maximum():
    rng = np.random.default_rng(0)
    from itertools import permutations

    for K in (2, 3, 4):
        worst = theorem_3_4(replace(SMALL, n_clusters=K)).maximum
        for _ in range(20):
            F, G = np.eye(K)[rng.integers(K, size=12)], np.eye(K)[rng.integers(K, size=12)]
            assert min(np.sum((F[:, list(p)] - G) ** 2) for p in permutations(range(K))) / (12 * K) <= worst + 1e-12


def test_asymptotic_theorems_promise_the_limit_only():
    for finite in (theorem_3_7(SMALL, scattered=True), theorem_3_7(SMALL, scattered=True, unseen=True)):
        assert math.isinf(finite.value)
        assert "no rate" in finite.reason
    limit = replace(SMALL, n_pairs=math.inf)
    assert theorem_3_7(limit, scattered=True).value == 0.0
    assert theorem_3_7(limit, scattered=True).reason is None
    assert math.isinf(theorem_3_7(limit).value)
    assert "Not known" in theorem_3_7(limit).reason
    assert "fails" in theorem_3_7(limit, scattered=False).reason
    new = theorem_3_7(limit, scattered=True, unseen=True)
    extra = 8 / 150 + 12 * math.sqrt(4.0) * 1.5 * math.sqrt(50) * math.log2(50) / 150
    assert new.value == pytest.approx(extra + 8 * math.sqrt(2 * math.log(80) / 450))
    assert "function class" in theorem_3_7(replace(limit, nu=0.1), scattered=True).reason
    every = {"scattered": True, "full_rank": True, "largest_volume": True}
    assert theorem_4_1(limit, **every).value == 0.0
    for name in every:
        assert math.isinf(theorem_4_1(limit, **(every | {name: None})).value)
        assert math.isinf(theorem_4_1(limit, **(every | {name: False})).value)


@pytest.mark.parametrize("target", [None, 0.05, 1e-3])
def test_pairs_needed_is_the_threshold(target):
    for calculator in (lemma_3_3, theorem_3_4):
        answer = pairs_needed(target, AMPLE, calculator)
        assert calculator(replace(AMPLE, n_pairs=answer.n_pairs * 1.0001)).value <= answer.target
        assert not calculator(replace(AMPLE, n_pairs=answer.n_pairs * 0.999)).value <= answer.target


def test_pairs_needed_speaks():
    answer = pairs_needed(None, SMALL)
    assert str(answer).startswith(f"about {in_words(answer.n_pairs)} pairs; you have 400")
    assert "2,500 ordered pairs" in str(answer)
    # Terms in N stay: no number of pairs helps with new items.
    answer = pairs_needed(None, SMALL, theorem_3_5)
    assert math.isinf(answer.n_pairs)
    assert "new items: net complexity" in str(answer)
    assert "no rate" in str(pairs_needed(None, SMALL, lambda s: theorem_3_7(s, scattered=True)))
    assert math.isinf(pairs_needed(1e-3, replace(SMALL, nu=0.01), lemma_3_3).n_pairs)
    assert pairs_needed(1e12, SMALL, lemma_3_3).n_pairs == 55  # where the search begins
    assert [in_words(x) for x in (10_000, 3e21, 1.26e7, math.inf)] == ["10,000", "3e21", "1.3e7", "infinitely many"]


def test_r_net_of_one_layer_by_hand():
    # Rows (3, 4) and (0, 0): spectral norm 5, (2,1) norm 5, D = 2: log(8) 25 (1)^3.
    assert r_net([[[3.0, 4.0], [0.0, 0.0]]]) == pytest.approx(25 * math.log(8))
    # 2 I_3: spectral 2, (2,1) norm 6: log(18) 4 ((6/2)^(2/3))^3 = 36 log 18; against itself as reference: 0.
    assert r_net([2 * np.eye(3)]) == pytest.approx(36 * math.log(18))
    assert r_net([2 * np.eye(3)], references=[2 * np.eye(3)]) == 0.0
    # The (2,1) norm sums over output units: a single unit with four inputs has 2, four units with one input have 4.
    assert r_net([np.ones((1, 4))]) == pytest.approx(4 * math.log(32))
    assert r_net([np.ones((4, 1))]) == pytest.approx(4 * (4 / 2) ** 2 * math.log(32))
    assert r_net([np.zeros((2, 2))]) == 0.0


def test_r_net_of_two_layers_by_singular_values():
    rng = np.random.default_rng(3)
    W, U = rng.normal(size=(5, 4)), rng.normal(size=(3, 5))
    s = [np.sqrt(np.linalg.eigvalsh(w @ w.T).max()) for w in (W, U)]
    b = [sum(math.sqrt(sum(v * v for v in row)) for row in w) for w in (W, U)]
    expected = math.log(50) * (s[0] * s[1]) ** 2 * sum((x / y) ** (2 / 3) for x, y in zip(b, s, strict=True)) ** 3
    assert r_net([W, U]) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_r_net_invariances(seed, c):
    rng = np.random.default_rng(seed)
    W, U = rng.normal(size=(5, 4)), rng.normal(size=(3, 5))
    base = r_net([W, U])
    order = rng.permutation(5)
    assert r_net([W[order], U[:, order]]) == pytest.approx(base)  # hidden units have no names
    assert r_net([c * W, U / c]) == pytest.approx(base)  # ReLU nets do not see this rescaling
    assert r_net([c * W, U]) == pytest.approx(c**2 * base)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert r_net([W @ rotation, U]) == pytest.approx(base)  # nor a rotation of the features


def test_net_weights_are_the_linear_layers_with_their_biases():
    """A 1 is appended to the features and handed on from layer to layer: the biases are its weights."""
    torch.manual_seed(0)
    net = Membership(4, 3, hidden=(6, 5), dropout=0.1)
    weights = net_weights(net)
    assert [w.shape for w in weights] == [(7, 5), (6, 7), (3, 6)]
    assert all(w.dtype == np.float64 for w in weights)
    x = torch.randn(7, 4)
    by_hand = np.column_stack([x.double().numpy(), np.ones(7)])
    for w in weights[:-1]:
        by_hand = np.maximum(by_hand @ w.T, 0)
    with torch.no_grad():
        np.testing.assert_allclose(by_hand @ weights[-1].T, net.eval().logits(x).numpy(), atol=1e-5)


def test_sigma_max_v_leaves_out_one_anchor_per_cluster():
    V = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    F = np.vstack([V[:10], np.eye(3), V[10:]])
    assert sigma_max_v(F) == pytest.approx(math.sqrt(np.linalg.eigvalsh(V.T @ V).max()))
    assert sigma_max_v(F[::-1, [2, 0, 1]]) == pytest.approx(sigma_max_v(F))
    assert sigma_max_v(np.eye(3)) == 0.0


def test_observed_alpha():
    F = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0]])
    assert observed_alpha(F, [[0, 1]]) == pytest.approx(0.26)
    assert observed_alpha(F, [[0, 1], [0, 2]]) == pytest.approx(0.1)
    assert observed_alpha(F, [[2, 2]]) == 0.0
    assert observed_alpha(F, [[2, 2]], agreement=[[0.7, 0.2], [0.2, 0.7]]) == pytest.approx(0.3)
    assert observed_alpha([[0.5, 0.5], [0.5, 0.5]], [[0, 1]]) < 0.5


def test_table_of_one_fit():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X, pairs = rng.normal(size=(60, 4)), rng.integers(60, size=(200, 2))
    F = rng.dirichlet(np.ones(3), 60)
    weights = net_weights(Membership(4, 3, hidden=(8,)))
    x_norm = np.linalg.norm(X[pairs.ravel()])
    s = Setting.from_fit(weights, F, x_norm=x_norm, n_pairs=200, alpha=observed_alpha(F, pairs))
    assert (s.n_items, s.n_clusters, s.complexity) == (60, 3, r_net(weights))
    assert s.row_norm * math.sqrt(400) == pytest.approx(x_norm)
    table = bounds_table(s)
    assert list(table["theorem"]) == [
        "Lemma 3.3",
        "Theorem 3.4",
        "Theorem 3.5",
        "Theorem 3.7 (i)",
        "Theorem 3.7 (ii)",
        "Theorem 4.1 (i)",
        "Theorem 4.1 (ii)",
    ]
    assert table["vacuous"].all()
    assert table["reason"].notna().all()
    assert table.loc[0, "value"] == lemma_3_3(s).value
    limit = bounds_table(replace(s, n_pairs=math.inf), scattered=True, full_rank=True, largest_volume=True)
    assert list(limit["value"].iloc[[0, 1, 3, 5]]) == [0.0] * 4
    assert not limit["vacuous"].iloc[[0, 1, 3, 5]].any()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"n_items": 1}, "n_items"),
        ({"n_pairs": 1}, "n_pairs"),
        ({"n_clusters": 1}, "n_clusters"),
        ({"alpha": 0.5}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"nu": -0.1}, "nu"),
        ({"delta": 0.0}, "delta"),
        ({"complexity": math.inf}, "complexity"),
        ({"row_norm": -1.0}, "row_norm"),
    ],
)
def test_bad_settings(change, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        replace(SMALL, **change)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"^weights: expected at least one"):
        r_net([])
    with pytest.raises(ValueError, match=r"^weights: expected"):
        r_net([np.ones((4, 5)), np.ones((4, 5))])
    with pytest.raises(ValueError, match="references"):
        r_net([np.ones((4, 5))], references=[np.ones((5, 4))])
    with pytest.raises(ValueError, match="memberships: expected"):
        sigma_max_v(np.ones((5, 3)))
    with pytest.raises(ValueError, match="pairs: expected"):
        observed_alpha(np.eye(3), [[0.0, 1.0]])
    with pytest.raises(ValueError, match="target: expected"):
        pairs_needed(0.0, SMALL)
