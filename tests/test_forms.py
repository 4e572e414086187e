"""Which confusion a partition's answers need, and what it begins with."""

import numpy as np
import pytest
import torch

from pdcc import PairData
from pdcc.annotators import answer_with_flips, draw_pairs
from pdcc.select.blockmodel import block_counts
from pdcc.select.forms import INSIDE, confusion_start, fit_columns, screen

# Columns of A, as rows: what a member of each cluster is taken for. Cluster 0 is often taken for 1, never the other way.
COLUMNS = np.array([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 0.9]])
# Clusters that are rarely called "same" within and never across: no A of three rows makes such rates.
RARELY = np.array([[0.4, 0.02, 0.02], [0.02, 0.5, 0.02], [0.02, 0.02, 0.35]])
RATES = {"stochastic": COLUMNS @ COLUMNS.T, "pooled": RARELY}


def answers(form, seed, n_pairs=3000):
    rng = np.random.default_rng(seed)
    y, pairs = np.arange(120) % 3, draw_pairs(120, n_pairs, rng)
    if form == "none":
        similar = answer_with_flips(y, pairs, 0.15, rng).similar
    else:
        similar = rng.random(n_pairs) < RATES[form][y[pairs[:, 0]], y[pairs[:, 1]]]
    return y, PairData.from_arrays(np.arange(240.0).reshape(120, 2), pairs, similar)


@pytest.mark.parametrize("form", ["none", "stochastic", "pooled"])
def test_the_form_that_answers_were_drawn_from_is_found(form):
    """A richer form is within one standard error of a true one, or ahead by more, which chance makes one time in six at most."""
    found = []
    for seed in range(20):
        y, data = answers(form, seed)
        name, choice = screen((y[data.i], y[data.j]), 3, data)
        found.append(name)
        assert [row["setting"] for row in choice.table] == [
            "confusion none",
            "confusion stochastic",
            "confusion pooled",
        ]
        assert f"confusion {name}" in choice.reason
    assert found.count(form) >= 17


@pytest.mark.parametrize(("K", "n_pairs"), [(3, 30), (10, 300)])
def test_few_answers_get_the_simplest_form(K, n_pairs):
    """All wrong equally often: a richer form predicts answers that it was not fitted to no better, however few these are."""
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y, pairs = np.arange(120) % K, draw_pairs(120, n_pairs, rng)
        data = PairData.from_arrays(
            np.arange(120.0).reshape(120, 1), pairs, answer_with_flips(y, pairs, 0.15, rng).similar
        )
        found.append(screen((y[data.i], y[data.j]), K, data)[0])
    assert found.count("none") >= 7


@pytest.mark.parametrize("seed", range(5))
def test_columns_of_a_are_found_up_to_what_answers_can_tell(seed):
    """From exact rates: A'A is found again, as far as columns are kept off the border of the simplex."""
    columns = np.random.default_rng(seed).dirichlet(np.ones(4), 4) * 0.6 + 0.4 * np.eye(4)
    B = (columns @ columns.T)[np.triu_indices(4)]
    n = np.full(len(B), 1000.0)
    found = fit_columns(n * B, n, 4)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found.min() >= INSIDE / 4 - 1e-12
    np.testing.assert_allclose((found @ found.T)[np.triu_indices(4)], B, atol=3 * INSIDE + 1e-3)


def test_blocks_without_answers_leave_columns_finite():
    n = np.zeros(6)
    n[0] = 10.0
    found = fit_columns(n * 0.9, n, 3)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("form", ["stochastic", "pooled", "none"])
def test_a_confusion_begins_at_the_rates_of_the_partition(form):
    y, data = answers("stochastic", 0, n_pairs=6000)
    start = confusion_start(form, y, data, 3, torch.device("cpu")).double().numpy()
    B = start @ start.T if form == "stochastic" else start
    same, different = block_counts(y, 3, data)
    # Of 600 answers in a block, errors of a rate are at most .02.
    np.testing.assert_allclose(B, same / (same + different), atol=4 * 0.02)
