"""Do 90 % intervals of B and of memberships cover the truth, end to end: simulate, fit as a user does, draw, compare?"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.annotators import answer_through, draw_pairs
from pdcc.arrays import Bools, Float64
from pdcc.estimator import VolMaxDCC
from pdcc.experiments.grid import run_study
from pdcc.metrics import align
from pdcc.posterior.arviz_calls import array
from pdcc.storage.journal import write_table

K, WIDTH = 3, 4
# Distance of the clusters' centres from the origin, from overlapping to apart, and the weight of a Dirichlet on A's diagonal besides 1 for every entry.
RADIUS, RIGHT = (1.5, 3.0), 6.0
# How each engine is asked for draws.
ENGINES: dict[str, dict[str, Any]] = {
    "hmc": {"method": "hmc"},
    "svi": {"method": "svi", "draws": 400},
    "svi, normal guide": {"method": "svi", "guide": "normal", "draws": 400},
    "nuts": {"method": "nuts", "draws": 150, "warmup": 150, "chains": 2},
    "ensemble": {"method": "ensemble", "chains": 4, "draws": 5},
    "hmc, regularised": {"method": "hmc", "regularised": True},
}


@dataclass(frozen=True)
class Setting:
    """One repetition: an engine, confusion and volume of the fit, the width of its hidden layer, and a seed."""

    engine: str
    confusion: str
    volume: float
    hidden: int
    seed: int
    n_items: int = 200
    n_pairs: int = 3000

    @property
    def name(self) -> str:
        """Unique among settings."""
        return "-".join(map(str, asdict(self).values()))


def simulate(n_items: int, n_pairs: int, seed: int) -> tuple[Float64, Float64, Float64, Any]:
    """(X (N, d), F (N, K), A[observed, true], answers): Normal clusters with their own posteriors as memberships, columns of A from a
    Dirichlet, independent answers."""
    rng = np.random.default_rng([seed, n_items, n_pairs])
    # Directions at right angles: of two centres that chance put side by side nothing could tell memberships from confusion.
    centres = rng.uniform(*RADIUS) * np.linalg.qr(rng.normal(size=(WIDTH, K)))[0].T
    X = centres[rng.integers(K, size=n_items)] + rng.normal(size=(n_items, WIDTH))
    F = np.exp(X @ centres.T)  # centres are equally far from the origin
    F /= F.sum(axis=1, keepdims=True)
    A = np.stack([rng.dirichlet(np.ones(K) + RIGHT * np.eye(K)[k]) for k in range(K)], axis=1)
    return X, F, A, answer_through(F, draw_pairs(n_items, n_pairs, rng), A, rng)


def fit(setting: Setting) -> tuple[VolMaxDCC, Float64, Float64, Any]:
    """(estimator, true memberships, true B, what it was fitted to)."""
    X, F, A, answers = simulate(setting.n_items, setting.n_pairs, setting.seed)
    est = VolMaxDCC(
        K, confusion=setting.confusion, volume=setting.volume, hidden=(setting.hidden,), scale=None, random_state=setting.seed,
        progress=False, device="cpu",
    )  # fmt: skip
    given = X, answers.pairs, answers.similar
    return est.fit(*given), F, A.T @ A, given


def covered(draws: Float64, truth: Float64, level: float = 0.9) -> Bools:
    """Whether central intervals of draws (S, ...) hold the truth (...)."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray((low <= truth) & (truth <= high))


def run_cell(setting: Setting) -> dict[str, Any]:
    """Fit, draw, and count what intervals cover; clusters are named after the truth in the end."""
    est, F, B, given = fit(setting)
    idata = est.posterior(*given, random_state=setting.seed, **ENGINES[setting.engine])
    drawn_F = array(idata, "posterior", "memberships").reshape(-1, *F.shape).astype(np.float64)
    drawn_B = array(idata, "posterior", "agreement").reshape(-1, K, K)
    order = align(F, drawn_F.mean(axis=0))
    drawn_F, drawn_B = drawn_F[:, :, order], drawn_B[:, order][:, :, order]
    upper = np.triu_indices(K)
    return asdict(setting) | {
        "name": setting.name, "status": str(idata.attrs["status"]), "latents": (setting.hidden + 1) * K + K * K,
        "B": float(covered(drawn_B[:, *upper], B[upper]).mean()), "memberships": float(covered(drawn_F, F).mean()),
        "B_error": float(np.abs(drawn_B.mean(axis=0) - B).mean()), "memberships_error": float(np.abs(drawn_F.mean(axis=0) - F).mean()),
    }  # fmt: skip


# (engine, confusion and volume of the fit, hidden width, share of the repetitions): the model's own form in full, the others to a part.
STUDY = (
    ("hmc", "stochastic", 0.0, 32, 1.0),
    ("hmc", "pooled", 1e-2, 32, 0.5),  # what "auto" takes most often
    ("hmc", "stochastic", 0.0, 512, 0.15),
    ("hmc", "stochastic", 1e-2, 32, 0.15),
    ("hmc, regularised", "stochastic", 3e-3, 32, 0.15),
    ("hmc, regularised", "stochastic", 1e-2, 32, 0.15),
    ("svi", "stochastic", 0.0, 32, 0.3),
    ("svi", "stochastic", 0.0, 512, 0.15),
    ("svi, normal guide", "stochastic", 0.0, 32, 0.15),
    ("nuts", "stochastic", 0.0, 32, 0.15),
    ("ensemble", "stochastic", 0.0, 32, 0.15),
)


def summarise(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per engine, confusion, volume and width: coverage of B and memberships, with standard errors over repetitions."""
    table = pd.DataFrame([r for r in rows if "error" not in r])
    out = []
    for (engine, form, volume, hidden), t in table.groupby(["engine", "confusion", "volume", "hidden"], sort=False):
        row: dict[str, Any] = {
            "engine": engine, "confusion": form, "volume": volume, "hidden": hidden, "repetitions": len(t),
        }  # fmt: skip
        for what in ("B", "memberships"):
            row |= {what: t[what].mean(), f"{what}, SE": t[what].std() / np.sqrt(len(t))}
        row |= {"B_error": t["B_error"].mean(), "memberships_error": t["memberships_error"].mean()}
        out.append(row | {"converged": (t["status"] == "converged").mean()})
    return pd.DataFrame(out)


def simulate_coverage(
    output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool, dask: str | None = None
) -> str:
    """Run the study into ``output``: coverage.jsonl, coverage.csv. Returns the summary as text."""
    path, n = output / "coverage.jsonl", 200 if size is None else size
    asked = [
        Setting(engine, form, volume, hidden, 1000 * seed + r)
        for engine, form, volume, hidden, share in STUDY
        for r in range(max(1, round(share * n)))
    ]
    rows = run_study(asked, run_cell, path, n_jobs=n_jobs, dask=dask, progress=progress, label="coverage")
    failed = sum("error" in r for r in rows)
    if failed == len(rows):
        return f"{len(rows)} repetitions, none finished: see {path}."
    table = summarise(rows)
    write_table(output / "coverage.csv", table)
    return f"{len(rows)} repetitions, {failed} failed.\n{table.round(3).to_string(index=False)}"
