"""pdcc simulate, bench and demo."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pdcc.cli.app import Run, Seed, app, say

Jobs = Annotated[int, typer.Option(help="Processes.")]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on the workers of this Dask scheduler, such as tcp://host:8786, instead of processes here. Trust it: it runs code (extra scale).",
    ),
]


@app.command()
def simulate(
    study: Annotated[
        str,
        typer.Argument(
            help="synthetic (the paper's two figures), bank (does the diagnosis know how right labels are?), memberships (and whether soft ones are determined?), posterior (do intervals cover?), asking (what does choosing pairs save?) or nulls (what do tests say where nothing is wrong?)."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for tables and figures; a killed run goes on.")
    ],
    size: Annotated[
        int | None,
        typer.Option(
            help="Trials of the study (synthetic: 5 clean and 10 noisy; asking: 5), or settings (bank: 324, memberships: 204, posterior and nulls: 200 repetitions)."
        ),
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    dask: Dask = None,
) -> None:
    """Run a simulation study with known truth: CSV, a summary and a figure in a directory.

    Example: pdcc simulate bank -o results --jobs 2
    """
    from pdcc.experiments.asking_curves import simulate_asking
    from pdcc.experiments.coverage import simulate_coverage
    from pdcc.experiments.identifiability_bank import simulate_bank
    from pdcc.experiments.labels_bank import simulate_labels
    from pdcc.experiments.nulls import simulate_nulls
    from pdcc.experiments.synthetic import simulate_synthetic
    from pdcc.storage.lock import claimed

    known = {
        "synthetic": simulate_synthetic,
        "bank": simulate_labels,
        "memberships": simulate_bank,
        "posterior": simulate_coverage,
        "asking": simulate_asking,
        "nulls": simulate_nulls,
    }
    if study not in known:
        raise ValueError(f"study: expected one of {', '.join(known)}, found {study!r}. Choose one of them.")
    with claimed(output):
        say(known[study](output, size=size, seed=seed, n_jobs=jobs, dask=dask, progress=sys.stderr.isatty()))


@app.command()
def bench(
    preset: Annotated[
        str,
        typer.Argument(
            help="quick (digits), synthetic; bank, bank-a, bank-b (parts of these need PDCC_DATA); "
            "people, people-robust, human-noise, machine, ablation, volumes, volumes-raw; "
            "paper, paper-layers, paper-600, paper-volumes or paper-cifar100 (these need PDCC_DATA)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for tables; a killed run goes on.")],
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task of the preset (docs/benchmark.md); repeat for several.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only tasks with this part in their name, such as wine, mind or 2; repeat for alternatives, or to combine data with kinds."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "--methods", help="Only this method; repeat for several."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials; the preset has its own number.")] = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    dask: Dask = None,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; report what is on record.")] = False,
) -> None:
    """Compare methods over data, noise and trials: CSV, Markdown, JSON and a figure in a directory.

    Example: pdcc bench quick -o results/quick --jobs 2
    """
    from pdcc.experiments.presets import bench as run
    from pdcc.storage.lock import claimed

    with claimed(output):
        found = run(
            preset, output, tasks=tuple(task or ()), only=tuple(only or ()), methods=tuple(method or ()), trials=trials, seed=seed,
            n_jobs=jobs, dask=dask, progress=sys.stderr.isatty(), report_only=report,
        )  # fmt: skip
    say(found)
    say(f"Tables, records and a figure are in {output}.")


@app.command()
def demo(
    output: Run = Path("demo-run"),
    seed: Seed = 0,
) -> None:
    """Handwritten digits and noisy annotators: K-means, VanillaDCC and VolMaxDCC side by side. No downloads."""
    from threadpoolctl import threadpool_limits

    from pdcc.experiments.demo import run_demo
    from pdcc.inference.isolation import one_thread
    from pdcc.storage.lock import claimed

    # Steps are too short to be shared by threads, which on a busy machine wait for each other most of the time.
    with claimed(output), one_thread(), threadpool_limits(1):
        for line in run_demo(output, seed):
            say(line)
