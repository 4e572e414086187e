"""Simulation-based calibration of the posterior engines, and the coverage of their intervals for B.

    python benchmarks/sbc.py [--replicates 200] [--engines svi normal nuts ensemble] [--jobs 2] [-o results]

Truth comes from a prior one can draw from (pdcc.experiments.sbc_prior): Normal last layer on fixed features, Dirichlet columns of A,
no volume. Resumable. Prints coverage of 50, 80 and 90 % intervals, and writes rank histograms.
"""

import argparse
from functools import partial
from pathlib import Path

from pdcc.criticism.sbc import check_sbc, run_sbc
from pdcc.experiments.sbc_prior import Simulator, engine
from pdcc.plots import plot_sbc

OPTIONS = {
    "svi": {"draws": 200, "steps": 400},
    "normal": {"draws": 200, "steps": 1000},
    "ensemble": {},
    "nuts": {"draws": 100, "warmup": 80, "chains": 1},
}
THIN = {"svi": 1, "normal": 1, "ensemble": 1, "nuts": 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--engines", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.engines:
        run = partial(engine, method=name, **OPTIONS[name])
        path = args.output / f"sbc-{name}.jsonl"
        found = run_sbc(
            Simulator(), run, replicates=args.replicates, path=path, n_jobs=args.jobs, thin=THIN[name], progress=True
        )
        table = check_sbc(found)
        table.to_csv(args.output / f"sbc-{name}.csv", index=False)
        plot_sbc(found).savefig(args.output / f"sbc-{name}.png", dpi=100)
        columns = ["quantity", "replicates", "failures", "coverage_50", "coverage_80", "coverage_90", "p", "verdict"]
        print(f"{name}\n{table[columns].to_string(index=False)}")
        b = table[table["quantity"].str.startswith("B")]
        print(f"{name}: mean coverage of 90 % intervals for B {b['coverage_90'].mean():.3f}\n")


if __name__ == "__main__":
    main()
