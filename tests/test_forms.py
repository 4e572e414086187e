"""Which confusion a partition's answers need, and what it begins with."""

import numpy as np
import pytest
import torch

from pdcc import PairData
from pdcc.annotators import answer_with_flips, draw_pairs
from pdcc.data.degrees import nats
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
    similar = rng.random(n_pairs) < RATES[form][y[pairs[:, 0]], y[pairs[:, 1]]]
    return y, PairData.from_arrays(np.arange(240.0).reshape(120, 2), pairs, similar)


@pytest.mark.parametrize("form", ["stochastic", "pooled"])
def test_the_form_that_answers_were_drawn_from_is_found(form):
    """A richer form is within one standard error of a true one, or ahead by more, which chance makes one time in six at most."""
    found = []
    for seed in range(20):
        y, data = answers(form, seed)
        name, choice = screen((y[data.i], y[data.j]), 3, data)
        found.append(name)
        assert [row["setting"] for row in choice.table] == ["confusion stochastic", "confusion pooled"]
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
    assert found.count("stochastic") >= 7


@pytest.mark.parametrize("seed", range(5))
def test_columns_of_a_are_found_up_to_what_answers_can_tell(seed):
    """From exact rates: A'A is found again, as far as columns are kept off the border of the simplex."""
    columns = np.random.default_rng(seed).dirichlet(np.ones(4), 4) * 0.6 + 0.4 * np.eye(4)
    B = columns @ columns.T
    found = fit_columns(B, np.full(10, 1000.0))
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found.min() >= INSIDE / 4 - 1e-12
    np.testing.assert_allclose(found @ found.T, B, atol=3 * INSIDE + 1e-3)


def test_many_clusters_with_few_answers_do_not_overfit_the_shared_a():
    """40 clusters have 820 blocks, and 1,500 answers: A must not take single answers for rates."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 40
    parts = []
    for _ in range(2):
        pairs = draw_pairs(400, 1500, rng)
        similar = (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(1500) < 0.05)
        parts.append(PairData.from_arrays(np.arange(400.0).reshape(400, 1), pairs, similar))
    known, new = parts
    columns = confusion_start("stochastic", y, known, 40, torch.device("cpu")).double().numpy()
    p = (columns @ columns.T)[y[new.i], y[new.j]].clip(1e-6, 1 - 1e-6)
    truth = np.where(y[new.i] == y[new.j], 0.95, 0.05)
    lost = nats(p, new).mean() - nats(truth, new).mean()
    assert lost < 0.03


@pytest.mark.parametrize("form", ["stochastic", "pooled"])
def test_a_confusion_begins_at_the_rates_of_the_partition(form):
    y, data = answers("stochastic", 0, n_pairs=6000)
    start = confusion_start(form, y, data, 3, torch.device("cpu")).double().numpy()
    B = start @ start.T if form == "stochastic" else start
    same, different = block_counts(y, 3, data)
    # B is drawn to two rates, by a strength learned from it. Of 600 answers in a block, errors of a rate are at most .02.
    np.testing.assert_allclose(B, same / (same + different), atol=4 * 0.02)
