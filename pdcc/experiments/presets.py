"""methods x data x noise x trials -> tables anyone can re-run: ``pdcc bench PRESET -o DIR``."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pdcc.auto.sweep import VOLUMES
from pdcc.experiments.cells import on_record, plan, run_bench
from pdcc.experiments.methods import ABLATION, METHODS
from pdcc.experiments.paper.data import PAPER_TASKS
from pdcc.experiments.tables import write_report

CLASSICAL = ("kmeans", "cop-kmeans", "pck-means")
DEEP = ("dc-gmm", "c-idec")
OURS = ("volmax-paper", "vanilla", "volmax")


@dataclass(frozen=True)
class Preset:
    """Which tasks and methods a benchmark runs, how often, and what it is called."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    trials: int


PRESETS = {
    "quick": Preset(
        "Digits with machine annotators (section 6.1), M = N",
        tuple(f"digits-machine-{rate:02d}" for rate in (0, 5, 10, 15)),
        (*CLASSICAL, *DEEP, *OURS),
        3,
    ),
    "synthetic": Preset(
        "The paper's synthetic data",
        tuple(f"synthetic-{kind}-{n}" for kind in ("clean", "noisy") for n in (1000, 4000, 10_000)),
        (*CLASSICAL, *DEEP, *OURS, "volmax-sigmoid"),
        5,
    ),
    "human-noise": Preset(
        "Real human noise",
        ("cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse", "cifar10n-three", "labelme", "dwug-bar", "dwug-plane"),
        (*CLASSICAL, *DEEP, *OURS, "volmax-shared", "volmax-per-annotator"),
        5,
    ),
    "ablation": Preset("The default less one part", ("cifar10n-worse", "labelme"), ("volmax", *ABLATION), 3),
    "volumes": Preset(
        "Volumes, to be chosen without labels",
        ("cifar10n-clean", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse", "labelme"),
        ("volmax", "volmax-selected", *(f"volmax-v{v:g}" for v in VOLUMES)),
        3,
    ),
    "volumes-raw": Preset(
        "Volumes on features as they come",
        ("labelme", "labelme-60000"),
        ("raw-selected", *(f"raw-v{v:g}" for v in VOLUMES)),
        3,
    ),
    "paper": Preset("The paper's tables", tuple(PAPER_TASKS), (*CLASSICAL, *DEEP, "vanilla-paper", *OURS), 5),
}  # fmt: skip


def bench(
    preset: str,
    output: Path,
    *,
    tasks: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    trials: int | None = None,
    seed: int = 0,
    n_jobs: int = 1,
    progress: bool = False,
    report_only: bool = False,
) -> str:
    """Run a preset, or a part of it, and write its report; returns the report as Markdown.

    With ``report_only`` nothing is run: the report is of what is on record.
    """
    chosen = PRESETS[_one_of("preset", preset, PRESETS)]
    some = tuple(_one_of("task", t, chosen.tasks) for t in tasks) or chosen.tasks
    compared = tuple(_one_of("method", m, METHODS, chosen.methods) for m in methods) or chosen.methods
    if trials is not None and trials < 1:
        raise ValueError(f"trials: expected at least 1, found {trials}. Ask for more.")
    cells = plan(some, compared, chosen.trials if trials is None else trials, seed)
    records = on_record(cells, output) if report_only else run_bench(cells, output, n_jobs=n_jobs, progress=progress)
    return write_report(records, output, chosen.title)


def _one_of(name: str, value: str, known: Iterable[str], usual: Iterable[str] = ()) -> str:
    """``value``, if it is known; the error names what is ``usual``, or all that are known, and what may have been meant."""
    names = tuple(known)
    if value not in names:
        near = get_close_matches(value, names, 1)
        fix = f"Did you mean {near[0]}?" if near else "Choose one of them."
        raise ValueError(f"{name}: expected one of {', '.join(tuple(usual) or names)}, found {value!r}. {fix}")
    return value
