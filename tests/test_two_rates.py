"""Answers predicted from memberships by two rates, one within clusters and one across them."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pdcc.annotators import draw_pairs
from pdcc.baselines.rates import together, two_rate_nll, two_rates
from pdcc.data.pairs import PairData


def test_two_rates_are_the_optimum_and_recover_the_truth():
    rng = np.random.default_rng(0)
    F = rng.dirichlet(np.full(3, 0.3), size=400)
    pairs = draw_pairs(400, 20_000, rng)
    s = (F[pairs[:, 0]] * F[pairs[:, 1]]).sum(axis=1)
    data = PairData.from_arrays(F, pairs, rng.random(20_000) < 0.1 + 0.7 * s)
    a, b = two_rates(F, data)
    # Standard errors at the truth are .007 and .004, from the curvature below; four of them.
    assert a == pytest.approx(0.8, abs=0.028)
    assert b == pytest.approx(0.1, abs=0.016)

    def loss(rates):
        p = rates[1] + (rates[0] - rates[1]) * together(F, data)
        prior = 0.5 * (np.log(rates).sum() + np.log1p(-np.asarray(rates)).sum())
        return -np.where(data.similar, np.log(p), np.log1p(-p)).sum() - prior

    best = minimize(loss, (0.5, 0.4), bounds=[(1e-3, 1 - 1e-3)] * 2)
    assert (a, b) == pytest.approx(tuple(best.x), abs=1e-3)
    assert loss((a, b)) <= best.fun + 1e-6


def test_two_rates_of_a_partition_are_shares_and_stay_off_the_edges(blobs):
    data = PairData.from_arrays(blobs.X, blobs.answers.pairs, blobs.answers.similar)
    F = np.eye(3)[blobs.y]
    inside = blobs.y[data.i] == blobs.y[data.j]
    a, b = two_rates(F, data)
    assert a == pytest.approx((inside.sum() + 0.5) / (inside.sum() + 1))  # every answer is right
    assert b == pytest.approx(0.5 / ((~inside).sum() + 1))
    nll = two_rate_nll(F, data.subset(np.arange(300)), data.subset(np.arange(300, 600)))
    assert nll.shape == (300,)
    assert 0 < nll.mean() < 0.02
    shuffled = np.random.default_rng(0).permutation(F)
    assert two_rate_nll(shuffled, data.subset(np.arange(300)), data.subset(np.arange(300, 600))).mean() > 0.5
