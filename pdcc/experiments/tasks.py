"""What the benchmark is run on: items, answers and, to score with, truth or held-out answers."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcc import datasets
from pdcc.annotators import Answers, answer_by_labels, draw_pairs, machine_annotators, worker_pairs
from pdcc.datasets import Judgments, Labelled
from pdcc.experiments import people
from pdcc.experiments.bank import bank_problem, parts
from pdcc.experiments.paper.data import FILE_TASKS, paper_trial

HUMAN_PAIRS = 10_000
# DWUG: shares of the unordered pairs, and of the answers (by whole annotators), that are held out.
HELD_PAIRS, HELD_ANNOTATORS = 0.25, 0.25
FEWEST_USES = 10


@dataclass(frozen=True)
class Held:
    """Answers that no method saw: pairs (H, 2), similar (H,), annotators (H,)."""

    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]
    annotators: NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """One trial of a task. What methods are given: X, pairs, similar, annotators, n_clusters.

    What they are scored by: classes of seen and unseen items (``truth``), memberships of both (``memberships``), or held-out
    answers, by the name of what is new about them (``held``). Labelled items (X, classes) that oracles choose by, and no
    method sees: ``valid``. What the one annotator took the seen items for: ``given``.
    """

    n_clusters: int
    X: NDArray[Any]
    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]
    annotators: NDArray[Any] | None = None
    flip_rate: float | None = None
    X_unseen: NDArray[Any] | None = None
    truth: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    memberships: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    held: dict[str, Held] | None = None
    valid: tuple[NDArray[Any], NDArray[np.int64]] | None = None
    given: NDArray[np.int64] | None = None


def rng_of(task: str, trial: int, seed: int) -> np.random.Generator:
    """The random stream of one trial of one task: the same for every method."""
    return np.random.default_rng([seed, trial, zlib.crc32(task.encode())])


def _problem(data: Labelled, answers: Answers, n_clusters: int) -> Problem:
    return Problem(
        n_clusters, data.X, answers.pairs, answers.similar, answers.annotators, answers.flip_rate,
        X_unseen=data.X_unseen if len(data.X_unseen) else None, truth=(data.y, data.y_unseen),
    )  # fmt: skip


def _cifar10n(task: str, trial: int, seed: int) -> Problem:
    """Uniform pairs, similar where the two human labels agree; "cifar10n-NOISE-3n" has three pairs per item."""
    rng = rng_of("cifar10n", trial, seed)  # the same pairs under every noise
    noise, _, size = task.removeprefix("cifar10n-").partition("-")
    data, labels = datasets.cifar10n(noise)
    return _problem(data, answer_by_labels(data.y, labels, draw_pairs(len(data.y), _n_pairs(size, data.y), rng)), 10)


def _n_pairs(size: str, items: NDArray[Any]) -> int:
    """How many pairs to draw: 10,000 ("all" or nothing), so many per item ("n", "3n"), or a number."""
    if size in people.RATIOS:
        return people.RATIOS[size] * len(items)
    return HUMAN_PAIRS if size in ("", "all") else int(size)


def _cifar10n_machine(task: str, trial: int, seed: int) -> Problem:
    """Section 6.1 on these features, as ``paper_task`` has it: new pairs in every trial, the same annotator and items.

    A fifth of the unseen items, with their classes, is what oracles choose by.
    """
    data = datasets.cifar10n("clean")[0]
    pairs = draw_pairs(len(data.y), HUMAN_PAIRS, np.random.default_rng([seed, trial]))
    rate = round(float(task.removeprefix("cifar10n-machine-")) / 100, 4)
    answers = machine_annotators(data.X, data.y, pairs, flip_rate=rate, seed=seed)
    cut = len(data.y_unseen) // 5
    rest = Labelled(data.X, data.y, data.X_unseen[cut:], data.y_unseen[cut:])
    valid = data.X_unseen[:cut], data.y_unseen[:cut]
    return replace(_problem(rest, answers, 10), valid=valid, given=answers.labels)


def _three_columns(task: str, trial: int, seed: int) -> Problem:
    """The same pairs, each answered by one of the three label columns at random: three annotators with ids."""
    rng = rng_of("cifar10n", trial, seed)
    columns = [datasets.cifar10n(f"random{c}")[1] for c in (1, 2, 3)]
    data = datasets.cifar10n("random1")[0]
    pairs = draw_pairs(len(data.y), HUMAN_PAIRS, rng)
    annotators = rng.integers(3, size=len(pairs))
    each = [answer_by_labels(data.y, labels, pairs).similar for labels in columns]
    similar = np.choose(annotators, each)
    truth = data.y[pairs[:, 0]] == data.y[pairs[:, 1]]
    return _problem(data, Answers(pairs, similar, float((similar != truth).mean()), annotators), 10)


def _labelme(task: str, trial: int, seed: int) -> Problem:
    """Pairs that one worker labelled both items of; "labelme-M" has M of them, "labelme-3n" three per item."""
    data, given = datasets.labelme()
    n_pairs = _n_pairs(task.removeprefix("labelme").removeprefix("-"), data.y)
    return _problem(data, worker_pairs(data.y, given, n_pairs, rng_of("labelme", trial, seed)), 8)


def split_judgments(judged: Judgments, rng: np.random.Generator) -> tuple[NDArray[np.bool_], dict[str, Held]]:
    """(which answers train, what is held out): "new pairs" of known annotators, and "new people", which are new pairs of new annotators.

    Unordered pairs and whole annotators are drawn; nothing held out shares its pair with a training answer, and answers of
    held-out annotators about training pairs are left out altogether.
    """
    low, high = judged.pairs.min(axis=1), judged.pairs.max(axis=1)
    key = low * len(judged.X) + high
    asked = np.unique(key)
    new_pair = np.isin(key, rng.permutation(asked)[: round(HELD_PAIRS * len(asked))])
    annotators, counts = np.unique(judged.annotators, return_counts=True)
    order = rng.permutation(len(annotators))
    total, chosen = 0, []
    for a in order:  # those that fit under the share; the most prolific may hold half of all answers
        if total + counts[a] <= HELD_ANNOTATORS * len(key):
            chosen.append(annotators[a])
            total += counts[a]
    new_annotator = np.isin(judged.annotators, chosen)

    def held(rows: NDArray[np.bool_]) -> Held:
        return Held(judged.pairs[rows], judged.similar[rows], judged.annotators[rows])

    return ~new_pair & ~new_annotator, {
        "new pairs": held(new_pair & ~new_annotator),
        "new people": held(new_pair & new_annotator),
    }


def _dwug(task: str, trial: int, seed: int) -> Problem:
    judged = datasets.dwug(task.removeprefix("dwug-") + "_nn")
    train, held = split_judgments(judged, rng_of(task, trial, seed))
    sizes = np.bincount(judged.clusters[judged.clusters >= 0])
    n_clusters = max(int((sizes >= FEWEST_USES).sum()), 2)
    return Problem(
        n_clusters, judged.X, judged.pairs[train], judged.similar[train], judged.annotators[train], held=held
    )  # fmt: skip


def _digits(task: str, trial: int, seed: int) -> Problem:
    """Section 6.1: a classifier trained on few labels answers by its predictions; as many pairs as items."""
    rng = rng_of("digits", trial, seed)
    data = datasets.digits(seed=trial + 1000 * seed)
    pairs = draw_pairs(len(data.y), len(data.y), rng)
    target = int(task.removeprefix("digits-machine-")) / 100
    return _problem(
        data, machine_annotators(data.X, data.y, pairs, flip_rate=target, seed=int(rng.integers(2**31))), 10
    )


def _synthetic(task: str, trial: int, seed: int) -> Problem:
    kind, n_pairs = task.removeprefix("synthetic-").split("-")
    data = datasets.synthetic(confusion="paper" if kind == "noisy" else None, seed=trial + 1000 * seed)
    answers = data.answers(int(n_pairs), seed=trial + 1000 * seed)
    F, n = data.memberships, data.n_seen
    return Problem(
        3, data.X[:n], answers.pairs, answers.similar, flip_rate=answers.flip_rate, X_unseen=data.X[n:],
        truth=(F[:n].argmax(1), F[n:].argmax(1)), memberships=(F[:n], F[n:]),
    )  # fmt: skip


def _paper(task: str, trial: int, seed: int) -> Problem:
    found = paper_trial(task, trial, seed)
    return replace(_problem(found.data, found.answers, found.n_clusters), valid=found.valid, given=found.answers.labels)


def _bank(task: str, trial: int, seed: int) -> Problem:
    """The same items and pairs under every kind of answers, and the same annotators at every number of pairs."""
    name, kind, _ = parts(task)
    streams = (rng_of(stream, trial, seed) for stream in (f"bank-{name}", f"bank-{name}-{kind}"))
    return _problem(*bank_problem(task, *streams))


def _people(task: str, trial: int, seed: int) -> Problem:
    """A draw of a task that ``experiments.people`` names. Smaller sizes of DWUG have some of the training answers."""
    study, part, size = people.parts(task)
    if study in datasets.PHOTOGRAPHS:  # the same answers with all features
        return _problem(*people.photograph_problem(task, trial, rng_of(f"people-{study}", trial, seed)))
    if study == "labelme":
        return _labelme(f"labelme-{size}", trial, seed)
    if study == "cifar10n":
        return _cifar10n(f"cifar10n-{part}-{size}", trial, seed)
    whole = _dwug(f"dwug-{part}", trial, seed)
    if size not in people.RATIOS or whole.annotators is None:
        return whole
    order = rng_of(f"people-{study}-{part}", trial, seed).permutation(len(whole.pairs))
    rows = order[: people.RATIOS[size] * len(whole.X)]
    return replace(whole, pairs=whole.pairs[rows], similar=whole.similar[rows], annotators=whole.annotators[rows])


_FAMILIES: dict[str, Callable[[str, int, int], Problem]] = {
    "cifar10n-machine-": _cifar10n_machine,
    "cifar10n-three": _three_columns,
    "cifar10n-": _cifar10n,
    "labelme": _labelme,
    "dwug-": _dwug,
    "digits-machine-": _digits,
    "synthetic-": _synthetic,
    "bank-": _bank,
    "people-": _people,
}


def has_annotators(task: str) -> bool:
    """Whether the answers of a task come with the ids of several annotators."""
    if task.startswith("people-"):
        return people.parts(task)[0] not in people.WITHOUT_IDS
    return task.startswith(("labelme", "dwug-", "cifar10n-three")) or (
        task.startswith("bank-") and parts(task)[1] == "eight"
    )


def data_of(task: str) -> str:
    """What a task's data go by: tasks of one such name read the same files."""
    shared = {"bank": 2, "people": 3}.get(task.split("-")[0])
    return "-".join(task.split("-")[:shared])


def load(task: str, trial: int, seed: int = 0) -> Problem:
    """The data of one trial of a task, by its name."""
    if task in FILE_TASKS:
        return _paper(task, trial, seed)
    return next(make for prefix, make in _FAMILIES.items() if task.startswith(prefix))(task, trial, seed)
