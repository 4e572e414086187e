"""How often, how fast and how rightly `check_ssc` decides.

OMP_NUM_THREADS=1 python benchmarks/ssc.py --oracles      # closed forms, gap 1e-6
OMP_NUM_THREADS=1 python benchmarks/ssc.py --agreement    # exact hulls (qhull), 600 random instances, K <= 7
OMP_NUM_THREADS=1 python benchmarks/ssc.py --property     # 1000 hypothesis inputs: no crash, every certificate verifies
OMP_NUM_THREADS=1 python benchmarks/ssc.py --scip         # K <= 10, N = 1000: side by side with SCIP, interleaved
OMP_NUM_THREADS=1 python benchmarks/ssc.py --large        # K = 10, N = 10,000; K = 15 and 20: share decided within 5 s
OMP_NUM_THREADS=1 python benchmarks/ssc.py --draws        # 100 softmax memberships in a row, K = 10, N = 10,000
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from pdcc.identifiability.rays import hyperplane
from pdcc.identifiability.ssc import check_ssc

Array = NDArray[np.float64]


def oracles() -> Iterator[tuple[str, Array, float]]:
    """Memberships with a scatter ratio known in closed form."""
    for K in (2, 3, 5, 8, 12, 20):
        yield f"identity {K}", np.eye(K), 1.0
    for omega in (0.5, 0.55, 0.6, 2 / 3, 0.7, 0.9, 1.0):
        rows = np.array(list(itertools.permutations((omega, 1 - omega, 0.0))))
        yield f"hexagon {omega:.3f}", rows, min(1.0, 3 * omega - 1)
    for K in range(3, 11):
        for m in range(1, K):
            subsets = itertools.combinations(range(K), m)
            rows = np.array([np.isin(np.arange(K), chosen) / m for chosen in subsets])
            yield f"subsets {m} of {K}", rows, min(1.0, K / m - 1)
    for n in (3, 4, 5, 6, 8, 12, 24, 60):
        angle = 2 * np.pi * np.arange(n) / n + 0.1
        circle = np.column_stack([np.cos(angle), np.sin(angle)]) / np.sqrt(6.0)
        yield f"{n}-gon", 1 / 3 + circle @ hyperplane(3).T, float(np.cos(np.pi / n))
    for K in (3, 6, 10, 20):
        for s in (0.1, 0.5, 0.97):
            yield f"simplex {K} shrunk {s}", s * np.eye(K) + (1 - s) / K, s


def exact_ratio(F: Array) -> float:
    """rho by enumerating every facet of the hull."""
    K = F.shape[1]
    points = (F - 1 / K) @ hyperplane(K)
    if K == 2:
        return max(0.0, float(min(points.max(), -points.min())) * float(np.sqrt(2.0)))
    try:
        hull = ConvexHull(points)
    except QhullError:
        return 0.0
    return max(0.0, float(-hull.equations[:, -1].max()) * float(np.sqrt(K * (K - 1))))


def random_instance(rng: np.random.Generator) -> Array:
    """Dirichlet rows of some concentration, now and then shrunk, lopsided, rounded or repeated; K <= 7."""
    K = int(rng.integers(2, 8))
    N = int(rng.integers(K + 1, 120 if K < 7 else 60))
    alpha = np.full(K, np.exp(rng.uniform(np.log(0.05), np.log(3.0))))
    if rng.random() < 0.2:
        alpha[0] *= rng.uniform(2, 8)
    F = rng.dirichlet(alpha, N)
    if rng.random() < 0.5:
        F = np.vstack([F, rng.uniform(0.6, 1.0) * np.eye(K) + (1 - rng.uniform(0.6, 1.0)) / K])
        F /= F.sum(axis=1, keepdims=True)
    if rng.random() < 0.2:
        F = np.maximum(np.round(F, 1), 1e-300)
        F /= F.sum(axis=1, keepdims=True)
    return F


def run_oracles() -> None:
    worst = 0.0
    for name, F, rho in oracles():
        result = check_ssc(F, gap=1e-6, work_limit=20.0)
        result.verify()
        error = max(abs(result.rho_lb - rho), abs(result.rho_ub - rho))
        worst = max(worst, error)
        print(
            f"{name:24s} {rho:.7f} in [{result.rho_lb:.7f}, {result.rho_ub:.7f}] {result.verdict:10s} {result.seconds:6.2f} s  {result.exact}"
        )
    print(f"largest error {worst:.2e}")


def run_agreement(count: int, gap: float | None) -> None:
    rng = np.random.default_rng(0)
    verdicts: dict[str, int] = {}
    contradictions, widest, slowest = 0, 0.0, 0.0
    for _ in range(count):
        F = random_instance(rng)
        rho = exact_ratio(F)
        result = check_ssc(F, gap=gap, work_limit=20.0)
        result.verify()
        verdicts[result.verdict] = verdicts.get(result.verdict, 0) + 1
        widest, slowest = max(widest, result.rho_ub - result.rho_lb), max(slowest, result.seconds)
        inside = result.rho_lb - 1e-7 <= rho <= result.rho_ub + 1e-7
        said = {"satisfied": rho >= 0.95 - 2e-6, "violated": rho < 0.95, "undecided": True}[result.verdict]
        if not (inside and said):
            contradictions += 1
            print("contradiction", F.shape, rho, result)
    print(
        f"{count} instances: {verdicts}, {contradictions} contradictions, widest interval {widest:.2e}, slowest {slowest:.2f} s"
    )


def scip_verdict(F: Array, eps: float, limit: float) -> tuple[str, float, float]:
    """Is max |x|^2 s.t. F x >= eps/K, 1'x = 1 above 1? By SCIP, stopped as soon as it knows; seconds in all, and in the solver."""
    from pyscipopt import Model, quicksum

    started = time.perf_counter()
    K = F.shape[1]
    model = Model()
    model.hideOutput()
    model.setParam("limits/time", limit)
    model.setParam("limits/solutions", 1)
    model.setParam("parallel/maxnthreads", 1)
    x = [model.addVar(lb=-10.0, ub=10.0) for _ in range(K)]
    z = model.addVar(lb=0.0, ub=100.0 * K)
    model.addCons(quicksum(x) == 1)
    for row in F:
        model.addCons(quicksum(float(row[k]) * x[k] for k in range(K)) >= eps / K)
    model.addCons(z <= quicksum(v * v for v in x))
    model.setObjective(z, "maximize")
    began = time.perf_counter()
    # Nothing above 1 left in the tree: satisfied. The cut-off lets SCIP prune as our own search does.
    model.setObjlimit(1.0 + 1e-6)
    model.optimize()
    ended = time.perf_counter()
    verdict = "violated" if model.getNSols() > 0 else "undecided"
    return "satisfied" if model.getStatus() == "infeasible" else verdict, ended - started, ended - began


def run_scip(limit: float) -> None:
    print("5 seeds, N = 1000, interleaved; medians in seconds; SCIP with and without building its model")
    print("  K alpha | ours | SCIP | ratio | SCIP, solver alone | ratio | verdicts ours / SCIP")
    for K, alpha in itertools.product((6, 8, 10), (0.1, 0.3, 1.0)):
        ours, theirs, alone, said = [], [], [], []
        for seed in range(5):
            F = np.random.default_rng(seed).dirichlet(np.full(K, alpha), 1000)
            result = check_ssc(F)
            verdict, total, solver = scip_verdict(F, 0.05, limit)
            ours.append(result.seconds)
            theirs.append(total)
            alone.append(solver)
            said.append(f"{result.verdict[0]}{verdict[0]}")
        a, b, c = (float(np.median(times)) for times in (ours, theirs, alone))
        print(
            f"{K:3d} {alpha:5.1f} | {a:.3f} | {b:.2f} | {b / a:.0f} | {c:.2f} | {c / a:.0f} | {' '.join(said)}",
            flush=True,
        )


def run_large(seeds: int) -> None:
    print("  K     N alpha | decided | median s | slowest s | verdicts")
    cases = [
        *itertools.product((5, 8, 10), (10_000,), (0.1, 0.3, 1.0)),
        *itertools.product((15, 20), (200, 1000), (0.1, 0.3, 1.0)),
    ]
    for K, N, alpha in cases:
        found = [check_ssc(np.random.default_rng(seed).dirichlet(np.full(K, alpha), N)) for seed in range(seeds)]
        for result in found:
            result.verify()
        seconds = [result.seconds for result in found]
        decided = sum(result.verdict != "undecided" for result in found)
        kinds = " ".join(result.verdict[0] for result in found)
        print(
            f"{K:3d} {N:5d} {alpha:5.1f} | {decided:3d}/{seeds} | {np.median(seconds):8.3f} | {max(seconds):9.3f} | {kinds}",
            flush=True,
        )


def run_draws() -> None:
    for sharpness in (2.0, 6.0, 12.0):
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(10_000, 10))
        seconds, kinds = [], set()
        for _ in range(100):
            z = sharpness * (logits + 0.1 * rng.normal(size=logits.shape))
            F = np.exp(z - z.max(axis=1, keepdims=True)).astype(np.float32)
            result = check_ssc(F / F.sum(axis=1, keepdims=True))
            seconds.append(result.seconds)
            kinds.add(f"{result.verdict} by {result.stage}")
        print(
            f"softmax x{sharpness:g}: {sum(seconds):.2f} s for 100 draws, median {np.median(seconds) * 1e3:.0f} ms; {sorted(kinds)}"
        )


def run_property() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "tests/test_ssc.py", "-k", "hypothesis"]
    subprocess.run(command, check=True, env={**os.environ, "PDCC_SSC_EXAMPLES": "1000"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("oracles", "agreement", "property", "scip", "large", "draws"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--count", type=int, default=600, help="instances for --agreement")
    parser.add_argument("--gap", type=float, default=None, help="gap for --agreement")
    parser.add_argument("--seeds", type=int, default=5, help="seeds for --large")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for SCIP")
    chosen = parser.parse_args()
    if chosen.oracles:
        run_oracles()
    if chosen.agreement:
        run_agreement(chosen.count, chosen.gap)
    if chosen.property:
        run_property()
    if chosen.scip:
        run_scip(chosen.limit)
    if chosen.large:
        run_large(chosen.seeds)
    if chosen.draws:
        run_draws()
