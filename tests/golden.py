"""A record of what small fits come to, number by number and choice by choice: a change that moves code must not move it.

    python tests/golden.py            compare this source with tests/golden.json, bit for bit
    python tests/golden.py --write    make it anew, for a change that is meant to change results (say so in the commit)

Bits depend on the processor and on the versions of torch and numpy, so the suite compares choices exactly and numbers to a tolerance;
bits are compared by this command, before and after a change, on one machine.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdcc import VanillaDCC, VolMaxDCC
from pdcc.annotators import answer_through, draw_pairs, mixed_annotators
from pdcc.baselines import COPKMeans, KMeans, PCKMeans
from pdcc.baselines.cidec import CIDEC
from pdcc.baselines.dcgmm import DCGMM
from pdcc.select.sweep import select_volume

RECORD = Path(__file__).with_name("golden.json")
SEEDS = (0, 1, 2)
N, M, K = 120, 700, 3
SMALL: dict[str, Any] = {"hidden": (16,), "epochs": 8, "progress": False, "device": "cpu"}
SETTINGS: dict[str, Any] = {
    "auto": lambda s: VolMaxDCC(K, random_state=s, **SMALL),
    "stochastic": lambda s: VolMaxDCC(
        K,
        confusion="stochastic",
        volume=1e-2,
        partition_weight=0.5,
        init="kmeans",
        scale="standard",
        random_state=s,
        **SMALL,
    ),
    "sigmoid": lambda s: VolMaxDCC(
        K, confusion="sigmoid", volume=1e-3, dropout=0.2, scale=None, n_init=2, random_state=s, **SMALL
    ),
    "per-annotator": lambda s: VolMaxDCC(
        K, confusion="per-annotator", volume=3e-3, scale="standard", dropout=0.0, random_state=s, **SMALL
    ),
}
BASELINES: dict[str, Any] = {
    "vanilla": lambda s: VanillaDCC(K, random_state=s, **SMALL),
    "kmeans": lambda s: KMeans(K, scale="unit", random_state=s),
    "cop": lambda s: COPKMeans(K, scale=None, on_infeasible="relax", random_state=s),
    "pck": lambda s: PCKMeans(K, scale="standard", random_state=s),
    "dcgmm": lambda s: DCGMM(
        K, hidden=(20,), latent=3, pretrain_epochs=2, epochs=3, validation_fraction=0.1, init="pairs", random_state=s
    ),
    "cidec": lambda s: CIDEC(K, hidden=(20,), latent=3, pretrain_epochs=2, epochs=3, random_state=s),
}


def problem(seed: int, people: bool) -> tuple[Any, ...]:
    """Overlapping blobs in other units for each column, and answers a fifth of which are mistaken."""
    rng = np.random.default_rng([7, seed])
    y = np.arange(N) % K
    X = (rng.normal(scale=2.0, size=(K, 4))[y] + rng.normal(size=(N, 4))) * [1.0, 2.0, 5.0, 0.5]
    pairs = draw_pairs(N, M, rng)
    F = np.eye(K)[y]
    if not people:
        answers = answer_through(F, pairs, 0.2 / K + 0.8 * np.eye(K), rng)
        return X, answers.pairs, answers.similar, None
    wrong = 0.7 * np.eye(K) + 0.3 * rng.dirichlet(np.ones(K), size=(12, K)).transpose(0, 2, 1)
    answers = mixed_annotators(F, pairs, wrong, rng)
    return X, answers.pairs, answers.similar, answers.annotators


def bits(array: Any) -> dict[str, Any]:
    """An array's bytes, and its moments for machines that round differently."""
    a = np.ascontiguousarray(array)
    digest = hashlib.sha256(a.tobytes() + str((a.dtype, a.shape)).encode()).hexdigest()[:16]
    wide = a.astype(np.float64)
    if not wide.size:
        return {"sha": digest, "mean_square": 0.0, "largest": 0.0}
    return {"sha": digest, "mean_square": float((wide**2).mean()), "largest": float(wide.max())}


def numbers(evidence: dict[str, Any]) -> list[float]:
    return [float(v) for v in evidence.values() if isinstance(v, int | float) and np.isfinite(v)]


def one(name: str, seed: int) -> dict[str, Any]:
    """A fit, its posterior by three engines, and its diagnosis."""
    data = problem(seed, people=name in ("auto", "per-annotator"))
    est = SETTINGS[name](seed).fit(*data)
    svi = est.posterior(*data, method="svi", draws=4, steps=30, random_state=seed)
    hmc = est.posterior(*data, chains=3, draws=2, warmup=3, random_state=seed)
    refits = est.posterior(*data, method="ensemble", chains=2, draws=2, random_state=seed)
    found = est.diagnose(*data, draws=6, n_restarts=2, work=1.0, random_state=seed)
    chosen = est.report_.chosen
    return {
        "chosen": [
            chosen.confusion,
            chosen.volume,
            chosen.partition_weight,
            est.fitted_.scaler.kind,
            est.report_.n_held_out,
        ],
        "memberships": bits(est.memberships_),
        "agreement": bits(est.agreement_),
        "objective": est.objective(*data),
        "history": bits([list(h.values()) for h in est.history_]),
        "pairs": bits(est.predict_pairs(data[0], data[1], data[3])),
        "hmc": bits(hmc.posterior["memberships"].values),
        "svi": bits(svi.posterior["memberships"].values),
        "svi_b": bits(svi.posterior["agreement"].values),
        "refits": bits(refits.posterior["memberships"].values),
        "refits_b": bits(refits.posterior["agreement"].values),
        "overall": [list(found.verdicts.values()), found.conditional, [c.verdict for c in found.conditions]],
        "accuracy": [found.accuracy.low, found.accuracy.estimate, found.accuracy.high, found.agreement.estimate],
        "items": bits(found.items["probability"]),
        "score": found.score,
        "figures": [[*(c.probability or ()), *(c.prior or ()), *numbers(c.evidence)] for c in found.conditions],
    }


def record() -> dict[str, Any]:
    """Everything, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        out: dict[str, Any] = {f"{name}, seed {seed}": one(name, seed) for name in SETTINGS for seed in SEEDS}
        data = problem(0, people=False)
        for name, make in BASELINES.items():
            out[name] = {"labels": bits(make(0).fit(*data).labels_)}
        select = VolMaxDCC(K, confusion="sigmoid", init="kmeans", scale="standard", **SMALL | {"epochs": 3})
        chosen = select_volume(*data, estimator=select, volumes=(0.0, 1e-2), n_restarts=2)
        out["select_volume"] = {"chosen": chosen.value, "table": chosen.table.iloc[:, :5].to_numpy(float).tolist()}
        return json.loads(json.dumps(out))
    finally:
        torch.set_num_threads(before)


def differences(found: Any, expected: Any, tolerance: float | None, where: str = "") -> list[str]:
    """Where two records differ: bit for bit, or with a tolerance in choices and numbers alone."""
    if isinstance(expected, dict):
        keys = [k for k in expected if k in found and not (k == "sha" and tolerance is not None)]
        missing = [f"{where}/{k} is missing" for k in expected if k not in found]
        return missing + [d for k in keys for d in differences(found[k], expected[k], tolerance, f"{where}/{k}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        return [d for k, (a, b) in pairs for d in differences(a, b, tolerance, f"{where}[{k}]")]
    if tolerance is not None and isinstance(expected, float) and isinstance(found, float | int):
        same = abs(found - expected) <= tolerance * max(1.0, abs(expected))
    else:
        same = found == expected
    return [] if same else [f"{where}: {found} now, {expected} on record"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the record anew")
    write, now = parser.parse_args().write, record()
    if write:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
        return
    found = differences(now, json.loads(RECORD.read_text()), None)
    if found:
        raise SystemExit("\n".join([f"{len(found)} differences:", *found[:40]]))
    print("The same, bit for bit.")


if __name__ == "__main__":
    main()
