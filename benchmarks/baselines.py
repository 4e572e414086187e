"""How long the other methods take: COP-KMeans and PCK-Means at N = 2000, K = 10, d = 64, one thread, interleaved medians.

    OMP_NUM_THREADS=1 python benchmarks/baselines.py [--rounds 5]

Answers are clean, or one in ten is flipped on its own. COP-KMeans may break answers (on_infeasible="relax"); at M = 2000
these flips still let it keep all, so M = 4000, where they contradict each other, is timed as well.
"""

import argparse
import statistics
import time

import numpy as np

from pdcc import metrics
from pdcc.annotators import draw_pairs
from pdcc.baselines import COPKMeans, KMeans, PCKMeans

N = 2000
K, D = 10, 64
WORLDS = ((2000, 0.0), (2000, 0.1), (4000, 0.1))  # M, share of answers flipped


def world(n_pairs, flip):
    """Blobs that overlap a little: features (N, d), classes (N,), pairs (M, 2), answers (M,)."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % K
    X = (0.45 * rng.normal(size=(K, D))[y] + rng.normal(size=(N, D))).astype(np.float32)
    pairs = draw_pairs(N, n_pairs, rng)
    return X, y, pairs, (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(n_pairs) < flip)


def others():
    for n_init in (1, 10):
        yield f"COPKMeans, n_init={n_init}", COPKMeans(K, n_init=n_init, on_infeasible="relax", random_state=0)
        yield f"PCKMeans, n_init={n_init}", PCKMeans(K, n_init=n_init, random_state=0)
    yield "KMeans, n_init=10", KMeans(K, random_state=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"N = {N}, K = {K}, d = {D}; median of {args.rounds} interleaved rounds")
    print(
        "public packages for COP-KMeans and PCK-Means: 3-21 s per fit at M = 2000 (stated, not measured here)",
        flush=True,
    )
    for n_pairs, flip in WORLDS:
        X, y, pairs, similar = world(n_pairs, flip)
        seconds, fitted = {}, {}
        for _ in range(args.rounds):
            for name, est in others():
                began = time.perf_counter()
                fitted[name] = est.fit(X, pairs, similar)
                seconds.setdefault(name, []).append(time.perf_counter() - began)
        print(f"\nM = {n_pairs}, answers flipped: {flip:.0%}")
        for name, est in fitted.items():
            broken = f", broken answers {est.violations_}" if hasattr(est, "violations_") else ""
            print(
                f"  {name:22} {statistics.median(seconds[name]):6.3f} s   ACC {metrics.acc(y, est.labels_):.3f}{broken}",
                flush=True,
            )


if __name__ == "__main__":
    main()
