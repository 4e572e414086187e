"""The model of answers given a partition: its rates, its annotators, and what it says of answers that were left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from pdcc import PairData
from pdcc.annotators import draw_pairs
from pdcc.select.blockmodel import AnswerModel, Ends, block_counts, block_number, fit_answers, left_out_nll

B = np.array([[0.9, 0.3, 0.05], [0.3, 0.8, 0.1], [0.05, 0.1, 0.7]])


def answered(seed, n_pairs, agreement=B, *, n_items=90, slopes=None, biases=None):
    """Labels (N,) and answers drawn from the model itself; one annotator, or as many as there are slopes, in turn."""
    rng = np.random.default_rng(seed)
    K = len(agreement)
    y, pairs = np.arange(n_items) % K, draw_pairs(n_items, n_pairs, rng)
    L, names = logit(agreement)[y[pairs[:, 0]], y[pairs[:, 1]]], None
    if slopes is not None:
        names = np.arange(n_pairs) % len(slopes)
        L = np.asarray(slopes)[names] * L + (0 if biases is None else np.asarray(biases)[names])
    return y, PairData.from_arrays(
        np.arange(2.0 * n_items).reshape(n_items, 2), pairs, rng.random(n_pairs) < expit(L), names
    )


def ends_of(y, data, n_clusters=3):
    return Ends.of_labels(y[data.i], y[data.j], n_clusters)


def test_rates_are_recovered_within_their_standard_errors():
    """Squares of (estimate - rate) / binomial error: their mean over 6 blocks of 10 data sets is 1, give or take sqrt(2 / 60)."""
    squares = []
    for seed in range(10):
        y, data = answered(seed, 3000)
        found = fit_answers(ends_of(y, data), data).agreement
        n = block_counts(y, 3, data).sum(axis=0)
        upper = np.triu_indices(3)
        squares.append((found - B)[upper] ** 2 * n[upper] / (B * (1 - B))[upper])
    assert np.mean(squares) < 1 + 4 * np.sqrt(2 / 60)
    assert np.max(squares) < 4**2


def test_one_who_exchanges_the_words_and_one_who_tosses_a_coin_are_known_by_their_slopes():
    """Of 20 annotators with 200 answers each. The error of a slope at 0 is 1 / sqrt(sum of L^2 / 4)."""
    slopes = np.r_[-1.0, 0.0, np.ones(18)]
    for seed in range(3):
        y, data = answered(seed, 4000, slopes=slopes)
        found = fit_answers(ends_of(y, data), data)
        L = logit(B)[y[data.i], y[data.j]]
        error = 2 / np.sqrt((L[data.annotator == 1] ** 2).sum())
        assert abs(found.slope[1]) < 4 * error
        assert found.slope[0] < -0.5
        assert found.slope[2:].min() > 0.5
        np.testing.assert_allclose(found.agreement, B, atol=0.1)  # neither of the two moves the others' rates


def test_annotators_who_say_same_more_often_are_known_by_their_biases():
    biases = np.r_[1.5, -1.5, np.zeros(10)]
    y, data = answered(0, 4800, slopes=np.ones(12), biases=biases)
    found = fit_answers(ends_of(y, data), data)
    # 400 answers each: the curvature of a bias is at least 400 * .05, an error of .22 at most.
    assert found.bias[0] > 1.5 - 4 * 0.22
    assert found.bias[1] < -1.5 + 4 * 0.22
    assert np.abs(found.bias[2:]).max() < 4 * 0.22


@pytest.mark.parametrize("annotators", [None, 6])
@pytest.mark.parametrize(("n_pairs", "share", "close"), [(600, 0.85, 0.03), (150, 0.6, None)])
def test_left_out_answers_are_scored_as_by_fits_without_them(annotators, n_pairs, share, close):
    """One Newton step against fits without the answer, which also learn their priors again.

    The step sees at least this ``share`` of what leaving an answer out costs (.69 to 1.0 in these four), and with 600 answers
    every single one costs the same to within 3 % (1.7 % here).
    """
    slopes = None if annotators is None else np.linspace(0.4, 1.4, annotators)
    y, data = answered(1, n_pairs, n_items=30, slopes=slopes)
    some = np.random.default_rng(0).permutation(n_pairs)[:150]
    r = np.zeros(n_pairs, int) if data.annotator is None else data.annotator

    def cost(found, m):
        eta = found.bias[r[m]] + found.slope[r[m]] * found.logits[y[data.i[m]], y[data.j[m]]]
        return np.logaddexp(0, np.where(data.similar[m], -eta, eta))

    quick = left_out_nll(ends_of(y, data), data)[some]
    seen = cost(fit_answers(ends_of(y, data), data), some)
    slow = np.empty(len(some))
    for n, m in enumerate(some):
        rest = data.subset(np.arange(n_pairs) != m)
        slow[n] = cost(fit_answers(ends_of(y, rest), rest), m)
    assert share < (quick - seen).mean() / (slow - seen).mean() < 1.1
    if close is not None:
        np.testing.assert_allclose(quick, slow, rtol=close, atol=0.002)


def test_certain_memberships_are_labels():
    y, data = answered(2, 400, slopes=np.linspace(0.5, 1.5, 5))
    F = np.eye(3)[y]
    soft, hard = Ends.of_memberships(F[data.i], F[data.j]), ends_of(y, data)
    np.testing.assert_array_equal(soft.block, hard.block)
    np.testing.assert_allclose(fit_answers(soft, data).logits, fit_answers(hard, data).logits)
    np.testing.assert_allclose(left_out_nll(soft, data), left_out_nll(hard, data))


def test_soft_memberships_are_mixtures_of_rates():
    """Items that are in two clusters at once: an answer's probability is that of the mixture, whose rates are found again."""
    rng = np.random.default_rng(0)
    F = rng.dirichlet(np.full(3, 0.15), 200)
    pairs = draw_pairs(200, 8000, rng)
    p = np.einsum("mk,kl,ml->m", F[pairs[:, 0]], B, F[pairs[:, 1]])
    data = PairData.from_arrays(np.arange(400.0).reshape(200, 2), pairs, rng.random(8000) < p)
    ends = Ends.of_memberships(F[data.i], F[data.j])
    np.testing.assert_allclose(np.bincount(ends.answer, ends.weight), 1, atol=1e-4)
    # Binomial errors of a block of 700 answers are at most .02; soft ends cost less than half of the information.
    np.testing.assert_allclose(fit_answers(ends, data).agreement, B, atol=4 * 0.02 * np.sqrt(2))
    labels = F.argmax(axis=1)
    hard = left_out_nll(Ends.of_labels(labels[data.i], labels[data.j], 3), data)
    assert left_out_nll(ends, data).mean() < hard.mean()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 80), st.booleans())
def test_clusters_are_called_same_across_at_most_as_often_as_within(seed, K, n_pairs, named):
    """Whatever the answers, and with clusters and blocks that nobody asked about."""
    rng = np.random.default_rng(seed)
    pairs = draw_pairs(12, n_pairs, rng)
    names = rng.integers(3, size=n_pairs) if named else None
    similar = rng.random(n_pairs) < rng.random()
    similar[:2] = True, False
    data = PairData.from_arrays(np.arange(24.0).reshape(12, 2), pairs, similar, names)
    labels = rng.integers(K, size=12)
    found = fit_answers(ends_of(labels, data, K), data)
    own = np.diag(found.agreement)
    assert (found.agreement <= np.sqrt(np.outer(own, own)) + 1e-9).all()
    assert np.isfinite(found.logits).all()
    nll = left_out_nll(ends_of(labels, data, K), data)
    assert nll.shape == (len(data),)
    assert np.isfinite(nll).all()
    assert (nll > 0).all()


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 1000))
def test_cluster_numbers_and_the_order_of_answers_do_not_matter(numbers, seed):
    _, data = answered(seed, 200, n_items=40, slopes=[1.0, 0.5, 1.5])
    labels = np.random.default_rng(seed).integers(4, size=40)
    order = np.array(numbers)
    rows = np.random.default_rng(seed).permutation(len(data))
    one = fit_answers(ends_of(labels, data, 4), data)
    other = fit_answers(ends_of(order[labels], data.subset(rows), 4), data.subset(rows))
    np.testing.assert_allclose(other.logits[np.ix_(order, order)], one.logits, atol=1e-6)
    np.testing.assert_allclose(other.slope, one.slope, atol=1e-6)


def test_blocks_that_nobody_asked_about_are_like_the_others():
    """Cluster 2 is in no answer: its rates are drawn to those of the other blocks of its kind, and predict nothing."""
    y, data = answered(3, 2000)
    kept = data.subset((y[data.i] < 2) & (y[data.j] < 2))
    found = fit_answers(ends_of(y, kept), kept).agreement
    assert found[:2, :2] == pytest.approx(B[:2, :2], abs=0.12)
    assert 0.6 < found[2, 2] < 0.95
    assert found[2, :2].max() < 0.5
    np.testing.assert_allclose(
        left_out_nll(ends_of(y, kept, 2), kept).mean(), left_out_nll(ends_of(y, kept, 3), kept).mean(), atol=0.002
    )


def test_one_cluster_is_one_rate():
    y, data = answered(4, 500)
    ends = ends_of(np.zeros_like(y), data, 1)
    rate, M = data.similar.mean(), len(data)
    assert fit_answers(ends, data).agreement == pytest.approx(np.array([[rate]]), abs=0.5 / M + 1e-3)
    # Without answer m, and up to the prior, the rate is (M rate - y) / (M - 1).
    without = (M * rate - data.similar) / (M - 1)
    expected = -np.log(np.where(data.similar, without, 1 - without))
    np.testing.assert_allclose(left_out_nll(ends, data), expected, atol=0.01)


def test_an_answer_of_weight_two_is_the_answer_twice():
    y, data = answered(5, 300, slopes=np.linspace(0.5, 1.5, 4))
    times = 1 + np.arange(len(data)) % 3
    rows = np.repeat(np.arange(len(data)), times)
    X, names = data.features, data.annotator
    once = PairData.from_arrays(X, np.column_stack([data.i, data.j]), data.similar, names, times)
    often = PairData.from_arrays(X, np.column_stack([data.i, data.j])[rows], data.similar[rows], names[rows])
    one, other = fit_answers(ends_of(y, once), once), fit_answers(ends_of(y, often), often)
    for part in ("logits", "bias", "slope"):
        np.testing.assert_allclose(getattr(one, part), getattr(other, part), atol=1e-8)
    F = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    soft = [fit_answers(Ends.of_memberships(F[d.i], F[d.j]), d).logits for d in (once, often)]
    np.testing.assert_allclose(*soft, atol=1e-8)


def test_fits_go_on_from_an_earlier_one():
    y, data = answered(6, 600, slopes=np.linspace(0.5, 1.5, 4))
    first = fit_answers(ends_of(y, data), data)
    again = fit_answers(ends_of(y, data), data, first)
    np.testing.assert_allclose(again.agreement, first.agreement, atol=1e-2)


@given(st.integers(1, 30))
def test_blocks_are_numbered_as_the_upper_triangle(K):
    row, column = np.triu_indices(K)
    np.testing.assert_array_equal(block_number(row, column, K), np.arange(len(row)))
    np.testing.assert_array_equal(block_number(column, row, K), np.arange(len(row)))
    L = AnswerModel(np.arange(float(len(row))), np.zeros(1), np.ones(1), K).logits
    np.testing.assert_array_equal(L[row, column], np.arange(len(row)))
    np.testing.assert_array_equal(L, L.T)
