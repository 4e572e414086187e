"""Settings with known truth, to test whether the diagnosis knows when memberships are recovered."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pdcc.annotators import answer_through, draw_pairs
from pdcc.arrays import Float64
from pdcc.estimator import VolMaxDCC
from pdcc.experiments.grid import run_study
from pdcc.identifiability.ssc import check_ssc
from pdcc.identifiability.verdict import Question
from pdcc.metrics import membership_mse
from pdcc.plots.experiments import plot_bank
from pdcc.storage.journal import write_figure, write_table

N_ITEMS = 600


@dataclass(frozen=True)
class Setting:
    """One cell of the bank: where the truth comes from, and how it is asked about.

    scatter: how far the memberships reach from the centre (1) towards it (0). confusion: "none" (A = I, fitted as such),
    "mild", "strong" (ill-conditioned) or "deficient" (two clusters the annotators cannot tell apart). form: what is fitted.
    noise: "independent" or "transitive" (every item is mistaken once, for all its pairs).
    twin: None, "squeezed" or "spread": two truths with the same probabilities of every answer.
    """

    n_clusters: int
    scatter: float
    n_pairs: int
    confusion: str
    form: str
    noise: str
    seed: int
    twin: str | None = None

    @property
    def name(self) -> str:
        """A short name, unique in a bank."""
        return "-".join(str(v) for v in asdict(self).values() if v is not None)


@dataclass(frozen=True)
class Simulated:
    """Data of a setting and its truth: X (N, d), memberships (N, K), A[observed, true], answers."""

    X: Float64
    memberships: Float64
    confusion: Float64
    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]


def simulate(setting: Setting) -> Simulated:
    """Draw the data of a setting."""
    rng = np.random.default_rng(setting.seed)
    K = setting.n_clusters
    F = _memberships(K, setting.scatter, rng)
    A = _confusion(setting.confusion, K, rng)
    if setting.twin is not None:
        # F squeezed by s with A, and F itself with A S where S = s I + (1 - s)/K 11', have the same A F'.
        S = squeeze(K, 0.6)
        if setting.twin == "squeezed":
            F_true, A_true = F @ S, A
        else:
            F_true, A_true = F, A @ S
    else:
        F_true, A_true = F, A
    X = _features(F, rng)  # the same features for both twins: nothing but the unseen truth differs
    pairs = draw_pairs(N_ITEMS, setting.n_pairs, rng)
    if setting.noise == "transitive":
        taken = (rng.random((N_ITEMS, 1)) > np.cumsum(F_true @ A_true.T, axis=1)).sum(axis=1)
        similar = taken[pairs[:, 0]] == taken[pairs[:, 1]]
    else:
        similar = answer_through(F_true, pairs, A_true, rng).similar
    return Simulated(X, F_true, A_true, pairs, similar)


def squeeze(K: int, s: float) -> Float64:
    """s I + (1 - s)/K 11'."""
    return np.asarray(s * np.eye(K) + (1 - s) / K)


def _memberships(K: int, scatter: float, rng: np.random.Generator) -> Float64:
    """Rows from pure to mixed, mostly in one cluster, shrunk towards the centre by ``scatter``."""
    concentration = np.full((N_ITEMS, K), 0.6 / K)
    concentration[np.arange(N_ITEMS), rng.integers(K, size=N_ITEMS)] = 2.0
    gammas = rng.gamma(concentration)
    return np.asarray(gammas / gammas.sum(axis=1, keepdims=True) @ squeeze(K, scatter))


def _confusion(kind: str, K: int, rng: np.random.Generator) -> Float64:
    """A[observed, true] of a kind."""
    right = {"none": 1.0, "mild": 0.85, "strong": 0.55, "deficient": 0.85}[kind]
    A = right * np.eye(K) + (1 - right) * rng.dirichlet(np.full(K, 0.5), size=K).T
    if kind == "deficient":
        A[:, 1] = A[:, 0]
    return np.asarray(A / A.sum(axis=0))


def _features(F: Float64, rng: np.random.Generator) -> Float64:
    """A smooth invertible map of the memberships: mixed linearly, bent, and standardised."""
    K = F.shape[1]
    Z = (F - F.mean(axis=0)) / F.std(axis=0).mean()
    mixed = Z @ rng.normal(size=(K, K + 2)) / np.sqrt(K)
    bent = mixed + 0.3 * np.tanh(mixed[:, rng.permutation(K + 2)])
    return np.asarray((bent - bent.mean(axis=0)) / bent.std(axis=0))


# How every setting is fitted; the pairs' number sets the batch.
FITTED: dict[str, Any] = {
    "hidden": (32,), "dropout": 0.0, "scale": None, "init": "random", "partition_weight": 0.0, "epochs": 70, "patience": 8,
    "lr": 1e-2, "confusion_lr": 3e-2, "validation_fraction": 0.1, "progress": False, "device": "cpu",
}  # fmt: skip
FORMS = {"none": ("none", 0.0), "sigmoid": ("sigmoid", 1e-3), "stochastic": ("stochastic", 3e-3)}
PAIRS = {3: (1000, 3000, 8000, 16000), 5: (4000, 10000, 20000), 8: (8000, 20000, 35000)}
RECOVERED = 0.03


def bank(n: int, seed: int) -> list[Setting]:
    """``n`` settings: five sixths over all axes, and a sixth of easy ones, without which fewer than two fifths are recovered."""
    easy = n // 6
    return [*_over_all_axes(n - easy, seed), *_easy(easy, seed)]


def _easy(n: int, seed: int) -> list[Setting]:
    rng = np.random.default_rng([seed, 1])
    out = []
    for k in range(n):
        K, form = int(rng.choice([3, 5])), str(rng.choice(["none", "sigmoid", "stochastic"]))
        scatter = float(rng.choice([1.0, 0.97, 0.94]))
        confusion = "none" if form == "none" else "mild"
        out.append(
            Setting(K, scatter, PAIRS[K][-1 - k % 2], confusion, form, "independent", seed * 100_000 + 50_000 + k)
        )
    return out


def _over_all_axes(n: int, seed: int) -> list[Setting]:
    """Two fifths without confusion, a tenth twins, a fifth of the rest with transitive noise."""
    rng = np.random.default_rng(seed)
    out: list[Setting] = []
    while len(out) < n:
        K = int(rng.choice([3, 5, 8]))
        M = int(rng.choice(PAIRS[K]))
        own = int(seed * 100_000 + len(out))
        kind = rng.random()
        noise = "transitive" if rng.random() < 0.2 else "independent"
        if len(out) % 20 == 0 and len(out) + 2 <= n:
            form = str(rng.choice(["sigmoid", "stochastic"]))
            out += [Setting(K, 1.0, M, "mild", form, "independent", own, twin) for twin in ("squeezed", "spread")]
        elif kind < 0.45:
            scatter = float(rng.choice([1.0, 0.97, 0.94, 0.9, 0.85, 0.75, 0.6, 0.4]))
            out.append(Setting(K, scatter, M, "none", "none", noise, own))
        else:
            scatter = float(rng.choice([1.0, 1.0, 1.0, 0.9, 0.75, 0.6]))
            confusion = str(rng.choice(["mild", "mild", "mild", "strong", "deficient"]))
            out.append(Setting(K, scatter, M, confusion, str(rng.choice(["sigmoid", "stochastic"])), noise, own))
    return out


def run_cell(setting: Setting) -> dict[str, Any]:
    """Generate, fit, diagnose (which never sees the truth), and only then score against the truth."""
    data = simulate(setting)
    form, volume = FORMS[setting.form]
    est = VolMaxDCC(
        setting.n_clusters,
        confusion=form,
        volume=volume,
        random_state=setting.seed,
        batch_size=max(100, setting.n_pairs // 40),
        **FITTED,
    ).fit(data.X, data.pairs, data.similar)
    diagnosis = est.diagnose(data.X, data.pairs, data.similar, work=6.0)
    truth = check_ssc(data.memberships, gap=0.01, work_limit=3.0)
    mse = membership_mse(data.memberships, est.memberships_)
    return asdict(setting) | {
        "name": setting.name, "true_rho": (truth.rho_lb + truth.rho_ub) / 2, "mse": mse, "recovered": mse <= RECOVERED,
        "overall": str(diagnosis.verdicts[Question.MEMBERSHIPS]), "conditional": diagnosis.conditional, "score": diagnosis.score, "status": str(est.status_),
        "diagnosis": {k: v for k, v in diagnosis.to_dict().items() if k != "items"},
    }  # fmt: skip


def run_bank(
    settings: list[Setting], path: Path, *, n_jobs: int = 1, dask: str | None = None, progress: bool = False
) -> list[dict[str, Any]]:
    """Run every setting that ``path`` (JSON lines) does not hold yet; a killed run goes on where it was."""
    return run_study(settings, run_cell, path, n_jobs=n_jobs, dask=dask, progress=progress, label="bank")


GROUPS: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "all": lambda t: t["seed"] >= 0,
    "no confusion": lambda t: t["form"] == "none",
    "confusion, true rho >= .95": lambda t: (t["form"] != "none") & (t["true_rho"] >= 0.95),
    "confusion, true rho < .95": lambda t: (t["form"] != "none") & (t["true_rho"] < 0.95),
    "transitive noise": lambda t: t["noise"] == "transitive",
    "independent noise": lambda t: t["noise"] == "independent",
    "twins": lambda t: t["twin"].notna(),
}


def summarise(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per group: share recovered, AUC of the score, recovered among "supported", share of "cannot tell".

    unconditional: verdicts "supported" that did not say that they rest on a condition no data can show, though a confusion was free.
    """
    from sklearn.metrics import roc_auc_score

    table = pd.DataFrame([r for r in rows if "error" not in r])
    out = []
    for name, pick in GROUPS.items():
        t = table[pick(table)]
        supported, denied = t[t["overall"] == "supported"], t[t["overall"] == "not supported"]
        both = t["recovered"].nunique() == 2
        out.append(
            {
                "group": name, "settings": len(t), "recovered": t["recovered"].mean() if len(t) else None,
                "AUC": roc_auc_score(t["recovered"], t["score"]) if both else None,
                "supported": len(supported), "of which recovered": supported["recovered"].mean() if len(supported) else None,
                "not supported": len(denied), "of which not recovered": 1 - denied["recovered"].mean() if len(denied) else None,
                "cannot tell": (t["overall"] == "cannot tell").mean() if len(t) else None,
                "unconditional": int(((supported["form"] != "none") & ~supported["conditional"]).sum()),
            }
        )  # fmt: skip
    return pd.DataFrame(out)


def simulate_bank(
    output: Path, *, size: int | None, seed: int, n_jobs: int, progress: bool, dask: str | None = None
) -> str:
    """Run the bank into ``output``: bank.jsonl, bank.csv, bank-summary.csv, bank.png. Returns the summary as text."""
    rows = run_bank(
        bank(204 if size is None else size, seed), output / "bank.jsonl", n_jobs=n_jobs, dask=dask, progress=progress
    )
    table = pd.DataFrame([{k: v for k, v in r.items() if k != "diagnosis"} for r in rows])
    write_table(output / "bank.csv", table)
    if all("error" in r for r in rows):
        return f"{len(rows)} settings, none finished: see {output / 'bank.csv'}."
    summary = summarise(rows)
    write_table(output / "bank-summary.csv", summary)
    write_figure(output / "bank.png", plot_bank(rows, RECOVERED).figure)
    failed = sum("error" in r for r in rows)
    return f"{len(rows)} settings, {failed} failed.\n{summary.round(3).to_string(index=False)}"
