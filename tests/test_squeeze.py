"""The squeeze family: closed ends, equal probabilities, the same labels."""

import numpy as np
import pytest

from pdcc.posterior.squeeze import identified_set


@pytest.mark.parametrize("K", [3, 10])
def test_the_ends_are_those_of_the_closed_form(K):
    """A = .8 I + .2/K 11': s from .8, where the annotators make no mistakes, to where a membership would be negative."""
    rng = np.random.default_rng(0)
    F = 0.9 * rng.dirichlet(np.full(K, 0.3), size=200) + 0.1 / K
    A = 0.8 * np.eye(K) + 0.2 / K
    found = identified_set(F, A.T @ A, free=True)
    assert found.low == pytest.approx(0.8, rel=1e-6)
    assert found.high == pytest.approx(1 / (1 - K * F.min()), rel=1e-6)
    top = F.max(axis=1).mean()
    assert found.top[0] == pytest.approx(0.8 * top + 0.2 / K, rel=1e-6)
    assert f"{found.top[0]:.2f}" in str(found)


def test_all_of_it_gives_every_answer_the_same_probability_and_label():
    rng = np.random.default_rng(1)
    K = 4
    F = 0.8 * rng.dirichlet(np.full(K, 0.3), size=50) + 0.2 / K
    B = np.full((K, K), 0.15) + 0.7 * np.eye(K)
    found = identified_set(F, B, free=True)
    assert found.low < 1 < found.high
    for s in np.linspace(found.low, found.high, 5):
        T = s * np.eye(K) + (1 - s) / K
        inverse = np.linalg.inv(T)
        F_s, B_s = F @ T, inverse @ B @ inverse
        assert F_s.min() >= -1e-9
        assert B_s.min() >= -1e-6
        assert B_s.max() <= 1 + 1e-6
        np.testing.assert_allclose(F_s @ B_s @ F_s.T, F @ B @ F.T, atol=1e-12)
        np.testing.assert_array_equal(F_s.argmax(axis=1), F.argmax(axis=1))


def test_without_a_free_confusion_and_with_an_exact_annotator_there_is_one_point():
    F = np.eye(3)[[0, 1, 2, 0]] * 0.7 + 0.1
    assert identified_set(F, np.eye(3), free=False).width == 0
    blurred = 0.7 * np.eye(3) + 0.15
    wide = identified_set(F, blurred, free=True)
    both = identified_set(F, np.stack([blurred, np.eye(3)]), free=True)  # all annotators must allow it
    assert both.low == 1.0 > wide.low
    assert "no squeezing" in str(identified_set(F, np.eye(3), free=False))
