"""methods x data x noise x trials -> tables anyone can re-run: ``pdcc bench PRESET -o DIR``."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from pdcc.datasets import PHOTOGRAPHS
from pdcc.experiments import tasks as known_tasks
from pdcc.experiments.bank import HALVES, bank_tasks
from pdcc.experiments.bank_summary import write_bank_report
from pdcc.experiments.cells import on_record, plan, run_bench
from pdcc.experiments.compare import Records
from pdcc.experiments.methods import (
    ABLATION,
    KMEANS_SCALINGS,
    METHODS,
    ORACLES,
    PAPER_VOLUMES,
    PCK_MEANS_SCALINGS,
    PREPARED,
    THREE_LAYERS,
)
from pdcc.experiments.paper.data import PAPER_TASKS, SHORT_TRAINED_TASKS, SUPERCLASS_TASKS
from pdcc.experiments.people import DAMAGES, people_tasks
from pdcc.experiments.people_summary import write_people_report
from pdcc.experiments.tables import write_report
from pdcc.select.sweep import VOLUMES

logger = logging.getLogger(__name__)

CLASSICAL = ("kmeans", "cop-kmeans", "pck-means")
DEEP = ("dc-gmm", "c-idec", "spherepair")
SPHERE = ("spherepair", "spherepair-paper")
OURS = ("volmax-paper", "vanilla", "volmax")
AS_IN_PAPER = (*CLASSICAL, *DEEP, "spherepair-paper", "vanilla-paper", "volmax-paper-oracle", *OURS)
PAPER_GRID = tuple(f"volmax-paper-v{v:g}" for v in PAPER_VOLUMES)
# Per cent of wrong answers: the paper's on CIFAR-10.
MACHINE_LEVELS = (0.0, 5.0, 8.7, 10.9)


@dataclass(frozen=True)
class Preset:
    """Which tasks and methods a benchmark runs, how often, what it is called, and what writes its report.

    skips: data sets that are not there are skipped.
    """

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    trials: int
    skips: bool = False
    report: Callable[[Records, Path, str], str] = write_report


def _bank(title: str, halves: Iterable[str]) -> Preset:
    tasks = bank_tasks(name for half in halves for name in HALVES[half])
    methods = (*KMEANS_SCALINGS, *PCK_MEANS_SCALINGS, *SPHERE, "vanilla", "volmax")
    return Preset(title, tasks, methods, 3, skips=True, report=write_bank_report)


PRESETS = {
    "quick": Preset(
        "Digits with machine annotators (section 6.1), M = N",
        tuple(f"digits-machine-{rate:02d}" for rate in (0, 5, 10, 15)),
        (*CLASSICAL, *DEEP, "spherepair-paper", *OURS),
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
        (*CLASSICAL, *DEEP, "spherepair-paper", *OURS, "volmax-shared", "volmax-per-annotator"),
        5,
    ),
    "people": Preset(
        "All sets of people's answers",
        people_tasks(),
        (*KMEANS_SCALINGS, *PCK_MEANS_SCALINGS, "gaussian-mixture", *OURS, "volmax-no-ids"),
        5,
        skips=True,
        report=write_people_report,
    ),
    "people-robust": Preset(
        "The default where sessions toss coins, or swap the two words",
        people_tasks(DAMAGES, PHOTOGRAPHS),
        ("volmax",),
        5,
        skips=True,
        report=write_people_report,
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
    "bank": _bank("The default on nine data sets and six kinds of answers", HALVES),
    "bank-a": _bank("The default on half A of the bank", "A"),
    "bank-b": _bank("The default on half B of the bank", "B"),
    "machine": Preset(
        "The paper's protocol on CIFAR-10N's features: one machine annotator, 10,000 answers",
        tuple(f"cifar10n-machine-{percent}" for percent in MACHINE_LEVELS),
        ("vanilla-paper", *PAPER_GRID, *PREPARED, "spherepair", "vanilla", "volmax"),
        5,
    ),
    "paper": Preset("The paper's tables", tuple(PAPER_TASKS), AS_IN_PAPER, 5),
    "paper-layers": Preset(
        "The paper's tables with three hidden layers (appendix)",
        tuple(task for task in PAPER_TASKS if task.startswith(("stl10", "cifar10"))),
        (*THREE_LAYERS, "volmax"),
        5,
    ),
    "paper-600": Preset("Features of 600 epochs (appendix)", tuple(SHORT_TRAINED_TASKS), AS_IN_PAPER, 5),
    "paper-volumes": Preset(
        "The paper's grid of volumes: the authors' choice by labels (oracle), and choices without",
        tuple(PAPER_TASKS),
        (*PAPER_GRID, "volmax-paper-selected", "volmax-paper-oracle", "volmax"),
        5,
    ),
    "paper-cifar100": Preset("The 20 superclasses of CIFAR-100, which the paper does not have", tuple(SUPERCLASS_TASKS), AS_IN_PAPER, 5),
}  # fmt: skip


def bench(
    preset: str,
    output: Path,
    *,
    tasks: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    trials: int | None = None,
    seed: int = 0,
    n_jobs: int = 1,
    dask: str | None = None,
    progress: bool = False,
    report_only: bool = False,
) -> str:
    """Run a preset, or a part of it, and write its report; returns the report as Markdown.

    ``only``: parts of task names, such as "wine" or "mind"; those of one place in the name are alternatives. An oracle
    among ``methods`` stands for what it is the best of. With ``report_only`` nothing is run: the report is of what is on record.
    """
    chosen = PRESETS[_one_of("preset", preset, PRESETS)]
    some = tuple(_one_of("task", t, chosen.tasks) for t in tasks) or chosen.tasks
    some = _having(some, only)
    known = (*METHODS, *ORACLES)
    asked = [_one_of("method", m, known, chosen.methods) for m in methods]
    compared = tuple(dict.fromkeys(part for m in asked for part in ORACLES.get(m, (m,)))) or chosen.methods
    if trials is not None and trials < 1:
        raise ValueError(f"trials: expected at least 1, found {trials}. Ask for more.")
    if chosen.skips and not report_only:
        some = _there(some)
    cells = plan(some, compared, chosen.trials if trials is None else trials, seed)
    records = (
        on_record(cells, output)
        if report_only
        else run_bench(cells, output, n_jobs=n_jobs, dask=dask, progress=progress)
    )
    return chosen.report(records, output, chosen.title)


def _having(tasks: tuple[str, ...], words: Sequence[str]) -> tuple[str, ...]:
    """Those of ``tasks`` whose names have these words between dashes: at each place that is asked for, one of its words."""
    names = {task: task.split("-") for task in tasks}
    known = dict.fromkeys(part for name in names.values() for part in name)
    wanted: dict[int, set[str]] = {}
    for word in words:
        _one_of("only", word, known)
        place = min(name.index(word) for name in names.values() if word in name)
        wanted.setdefault(place, set()).add(word)
    return tuple(task for task, name in names.items() if all(some & set(name) for some in wanted.values()))


def _there(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """Those tasks whose data are there; the data of the others are named in a warning."""
    absent = {}
    for name, task in {known_tasks.data_of(task): task for task in tasks}.items():
        try:
            known_tasks.load(task, 0)
        except FileNotFoundError as error:
            absent[name.partition("-")[2]] = str(error)
    left = tuple(task for task in tasks if known_tasks.data_of(task).partition("-")[2] not in absent)
    if absent and not left:
        raise FileNotFoundError(next(iter(absent.values())))
    if absent:
        logger.warning("skipped %s: %s", ", ".join(absent), next(iter(absent.values())))
    return left


def _one_of(name: str, value: str, known: Iterable[str], usual: Iterable[str] = ()) -> str:
    """``value``, if it is known; the error names what is ``usual``, or all that are known, and what may have been meant."""
    names = tuple(known)
    if value not in names:
        near = get_close_matches(value, names, 1)
        fix = f"Did you mean {near[0]}?" if near else "Choose one of them."
        raise ValueError(f"{name}: expected one of {', '.join(tuple(usual) or names)}, found {value!r}. {fix}")
    return value
