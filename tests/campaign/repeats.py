"""The same fit again and again, in threads and in other units: the same bits, nothing left behind."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from sklearn.datasets import load_wine
from threadpoolctl import threadpool_info

from campaign.inputs import QUICK
from campaign.odd import good
from campaign.tally import Tally
from pdcc import VolMaxDCC
from pdcc.annotators import answer_with_flips, draw_pairs

FITS, WARM = 200, 50
# What a fit may leave behind, in bytes: the allocator's own noise is a few pages a fit.
LEAK = 50_000


def state() -> list[Any]:
    """What Pyro, torch, BLAS and the system keep for the whole process."""
    settings = {name: value for name, value in pyro.settings.get().items() if not callable(value)}
    threads = sorted(str(p["num_threads"]) for p in threadpool_info())
    return [
        settings,
        torch.random.get_rng_state().tolist(),
        torch.get_num_threads(),
        threads,
        np.geterr(),
        len(pyro.get_param_store()),
    ]


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def outcome(seed: int) -> bytes:
    given = good(np.random.default_rng(seed))
    est = VolMaxDCC(3, **(QUICK | {"random_state": seed})).fit(*given)
    return bytes(est.memberships_.tobytes() + est.agreement_.tobytes())


def many(tally: Tally, count: int) -> None:
    """One fit after the other: bits, state, memory and open files."""
    first, before = outcome(0), state()
    files = memory = 0
    for k in range(count):
        if k == min(WARM, count // 2):
            files, memory = len(os.listdir("/proc/self/fd")), resident()
        tally.attempt("fits in one process", k, lambda: None if outcome(0) == first else "other bits")
    if state() != before:
        tally.fault("fits in one process", count, "global state was changed")
    if len(os.listdir("/proc/self/fd")) != files:
        tally.fault("fits in one process", count, f"{len(os.listdir('/proc/self/fd')) - files} files were left open")
    grown = (resident() - memory) / max(1, count - min(WARM, count // 2))
    if count >= FITS and grown > LEAK:
        tally.fault("fits in one process", count, f"memory grew by {grown:.0f} bytes a fit")


def threads(tally: Tally, count: int) -> None:
    alone, before = [outcome(k) for k in range(count)], state()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(outcome, range(count)))
    for k in range(count):
        tally.attempt("fits in threads", k, lambda: None if found[k] == alone[k] else "other bits")  # noqa: B023
    if state() != before:
        tally.fault("fits in threads", count, "global state was changed")


def units(tally: Tally, seed: int, count: int) -> None:
    """The default on wine in other units: by powers of two the same bits, by others the same choices and 99 % of the labels."""
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(seed)
    a = answer_with_flips(y, draw_pairs(len(y), 500, rng), 0.1, rng)

    def fitted(Z: Any) -> VolMaxDCC:
        return VolMaxDCC(3, random_state=0, progress=False).fit(Z, a.pairs, a.similar)

    plain = fitted(X)
    for k in range(count):
        exactly = k % 3 == 0
        factor = 2.0 ** rng.integers(-40, 41) if exactly else 10 ** rng.uniform(-12, 12)
        shift = 0.0 if exactly else rng.uniform(-1e6, 1e6) * X.std(axis=0) * (rng.random() < 0.5)
        one = int(rng.integers(X.shape[1])) if not exactly and rng.random() < 0.5 else None
        Z = X.copy()
        if one is None:
            Z = (Z + shift) * factor
        else:
            Z[:, one] = Z[:, one] * factor

        def same(Z: Any = Z, exactly: bool = exactly) -> str | None:
            est = fitted(Z)
            if exactly:
                return None if np.array_equal(est.memberships_, plain.memberships_) else "other bits"
            if (est.report_.start, est.report_.chosen) != (plain.report_.start, plain.report_.chosen):
                return f"other choices: {est.report_.start}, {est.report_.chosen}"
            agree = (est.labels_ == plain.labels_).mean()
            return None if agree >= 0.99 else f"{agree:.3f} of the labels equal"

        tally.attempt("other units", k, same)


def run(tally: Tally, seed: int, share: float, home: Path) -> None:
    """A ``share`` of all attempts."""
    many(tally, max(4, round(share * FITS)))
    threads(tally, max(4, round(share * 24)))
    units(tally, seed, max(2, round(share * 60)))
