"""Fits in threads: the same bits as one after the other, and the process left as it was."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyro
import pytest
import torch
from helpers import make_blobs
from threadpoolctl import threadpool_info

from pdcc import VolMaxDCC
from pdcc.baselines import PCKMeans

BLOBS = make_blobs(n=80, n_pairs=300, flip=0.05, seed=4)
GIVEN = BLOBS.X, BLOBS.answers.pairs, BLOBS.answers.similar


def state() -> list[object]:
    """What Pyro, torch and BLAS keep for the whole process."""
    settings = {name: value for name, value in pyro.settings.get().items() if not callable(value)}
    numbers = torch.random.get_rng_state().tolist()
    return [settings, numbers, torch.get_num_threads(), sorted(str(p["num_threads"]) for p in threadpool_info())]


def outcome(seed: int) -> list[np.ndarray]:
    """All that a fit, a posterior draw by its guide, and a baseline come to."""
    est = VolMaxDCC(3, hidden=(8,), epochs=3, random_state=seed, progress=False).fit(*GIVEN)
    return [
        est.memberships_,
        est.agreement_,
        est.predict_pairs(*GIVEN[:2]),
        PCKMeans(3, random_state=seed).fit(*GIVEN).labels_,
    ]


@pytest.mark.parametrize("workers", [4])
def test_threads_change_no_bit_and_leave_nothing_behind(workers):
    before = state()
    alone = [outcome(seed) for seed in range(6)]
    assert state() == before
    with ThreadPoolExecutor(workers) as pool:
        together = list(pool.map(outcome, range(6)))
    assert state() == before
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_loading_in_threads_is_loading(tmp_path):
    est = VolMaxDCC(3, hidden=(8,), epochs=2, confusion="stochastic", random_state=0, progress=False).fit(*GIVEN)
    est.save(tmp_path / "run")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: VolMaxDCC.load(tmp_path / "run").predict_proba(BLOBS.X), range(8)))
    for F in found:
        np.testing.assert_array_equal(F, est.memberships_)
