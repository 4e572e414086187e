"""Simulated annotators: pairs to ask about, and the ways people (and machines) get them wrong.

Every simulator returns ``Answers`` with the flip rate it realised: the share of answers that differ from
whether the two items' true classes (largest memberships) agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

ORDERS = 8  # in digits, one order skips a rate within .005 about one time in ten


@dataclass(frozen=True)
class Answers:
    """pairs (M, 2) row numbers, similar (M,) bool, annotators (M,) numbers or None, and the realised flip rate.

    labels (N,): what the one annotator took all items for, where answers come of that; else None.
    """

    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]
    flip_rate: float
    annotators: NDArray[np.int64] | None = None
    labels: NDArray[Any] | None = None


def draw_pairs(n_items: int, n_pairs: int, rng: np.random.Generator, *, distinct: bool = False) -> NDArray[np.int64]:
    """Uniform pairs of two different items, (M, 2); pairs may repeat, in either order, unless they are to be ``distinct``."""
    if n_items < 2:
        raise ValueError(f"n_items: expected at least 2, found {n_items}. A pair takes two items.")
    if distinct:
        return _distinct_pairs(n_items, n_pairs, rng)
    i = rng.integers(n_items, size=n_pairs)
    j = (i + rng.integers(1, n_items, size=n_pairs)) % n_items
    return np.column_stack([i, j])


def _distinct_pairs(n_items: int, n_pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Uniform without replacement over unordered pairs, numbered 0 = (0, 1), 1 = (0, 2), 2 = (1, 2), 3 = (0, 3), ..."""
    there_are = n_items * (n_items - 1) // 2
    if n_pairs > there_are:
        raise ValueError(
            f"n_pairs: expected at most {there_are} distinct pairs of {n_items} items, found {n_pairs}. Ask for fewer, or let pairs repeat."
        )
    number = rng.choice(there_are, size=n_pairs, replace=False)
    # The root of (2 high - 1)^2 is exact, and those below it fall short, up to tens of millions of items.
    high = np.floor((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    return rng.permuted(np.column_stack([number - high * (high - 1) // 2, high]), axis=1)


def flip_rate(classes: NDArray[np.int64], pairs: NDArray[np.int64], similar: NDArray[np.bool_]) -> float:
    """Share of answers that are wrong about whether two classes agree."""
    return float(np.mean((classes[pairs[:, 0]] == classes[pairs[:, 1]]) != similar))


def check_confusion(confusion: ArrayLike, n_clusters: int) -> NDArray[np.float64]:
    """A[observed, true]: (K, K), non-negative, every column summing to 1."""
    A = np.asarray(confusion, dtype=np.float64)
    if A.shape != (n_clusters, n_clusters) or (A < 0).any() or not np.allclose(A.sum(axis=0), 1.0):
        raise ValueError(
            f"confusion: expected a non-negative {n_clusters}x{n_clusters} matrix A[observed, true] whose columns sum to 1, found shape {A.shape} with column sums {A.sum(axis=0).round(3).tolist()}. Normalise its columns."
        )
    return A


def uniform_confusion(n_clusters: int, rate: float) -> NDArray[np.float64]:
    """A[observed, true] (K, K): a label is taken for another with probability ``rate``, each of the others alike."""
    other = rate / (n_clusters - 1)
    return np.asarray((1 - rate - other) * np.eye(n_clusters) + other)


def answer_through(
    memberships: ArrayLike, pairs: NDArray[np.int64], confusion: ArrayLike, rng: np.random.Generator
) -> Answers:
    """y ~ Bernoulli(<A m_i, A m_j>), each answer drawn on its own: independent errors, the model's own story."""
    F = np.asarray(memberships, dtype=np.float64)
    seen_as = F @ check_confusion(confusion, F.shape[1]).T
    p = (seen_as[pairs[:, 0]] * seen_as[pairs[:, 1]]).sum(axis=1)
    similar = rng.random(len(pairs)) < p
    return Answers(pairs, similar, flip_rate(F.argmax(axis=1), pairs, similar))


def answer_by_labels(classes: ArrayLike, labels: ArrayLike, pairs: NDArray[np.int64]) -> Answers:
    """One annotator who has labelled every item: similar iff the two labels agree. Errors are transitively consistent."""
    truth, given = np.asarray(classes), np.asarray(labels)
    similar = given[pairs[:, 0]] == given[pairs[:, 1]]
    return Answers(pairs, similar, flip_rate(truth, pairs, similar), labels=given)


def answer_with_flips(classes: ArrayLike, pairs: NDArray[np.int64], rate: float, rng: np.random.Generator) -> Answers:
    """The truth, each answer turned round on its own with probability ``rate``, whatever the classes."""
    right = answer_by_labels(classes, classes, pairs)
    similar = right.similar ^ (rng.random(len(pairs)) < rate)
    return Answers(pairs, similar, flip_rate(np.asarray(classes), pairs, similar))


def mistaken_labels(classes: ArrayLike, rate: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Classes (N,) of which a share ``rate`` is replaced by another class, each of the others alike: what someone takes items for."""
    names, given = np.unique(np.asarray(classes), return_inverse=True)
    wrong = rng.permutation(len(given))[: round(rate * len(given))]
    given[wrong] = (given[wrong] + rng.integers(1, len(names), size=len(wrong))) % len(names)
    return np.asarray(names[given])


def machine_annotator(
    X: ArrayLike, classes: ArrayLike, pairs: NDArray[np.int64], *, n_labels: int, seed: int = 0
) -> Answers:
    """The paper's section 6.1: a classifier trained on ``n_labels`` true labels answers by its predictions."""
    X, truth = np.asarray(X), np.asarray(classes)
    shown, n_classes = _learning_order(truth, seed)
    if n_labels < n_classes:
        raise ValueError(
            f"n_labels: expected at least one per class ({n_classes}), found {n_labels}. Reveal more labels."
        )
    return answer_by_labels(truth, _learn(X, truth, shown[:n_labels]), pairs)


def machine_annotators(
    X: ArrayLike,
    classes: ArrayLike,
    pairs: NDArray[np.int64],
    *,
    flip_rate: float,
    seed: int = 0,
    n_annotators: int = 1,
    tolerance: float = 0.005,
) -> Answers:
    """Classifiers that know just so few true labels that a share ``flip_rate`` of their answers is wrong (section 6.1).

    X (N, d), classes (N,), pairs (M, 2). The paper names no classifier; its code has one linear softmax on the features
    answer all pairs, so one logistic regression is the default. Each of several gets pairs of its own at random, learns
    labels in an order of its own, and hits the rate on its own pairs. At rate 0 the true labels answer.

    How the rate is hit: labels are revealed in one seeded order, one item of every class first; their number is doubled,
    then bisected, then tried within K of the crossing, until the rate on ``pairs`` is within ``tolerance``. A rate that K
    labels undercut is reached by an annotator to whom some classes are unknown; one that an order skips, by another order.
    """
    X, truth, pairs = np.asarray(X), np.asarray(classes), np.asarray(pairs)
    if not 0.0 <= flip_rate < 1.0:
        raise ValueError(
            f"flip_rate: expected a share from 0 to below 1, found {flip_rate!r}. Pass 0.1 for one wrong answer in ten."
        )
    if n_annotators < 1:
        raise ValueError(f"n_annotators: expected at least 1, found {n_annotators}. Raise it.")
    if n_annotators == 1:
        return _hit(X, truth, pairs, flip_rate, tolerance, [seed, 0])
    annotators = np.random.default_rng([seed, n_annotators]).integers(n_annotators, size=len(pairs))
    similar = np.zeros(len(pairs), dtype=bool)
    for r in np.unique(annotators):
        mine = annotators == r
        similar[mine] = _hit(X, truth, pairs[mine], flip_rate, tolerance, [seed, int(r)]).similar
    wrong = (truth[pairs[:, 0]] == truth[pairs[:, 1]]) != similar
    return Answers(pairs, similar, float(wrong.mean()), annotators)


def _learning_order(truth: NDArray[Any], seed: int | list[int]) -> tuple[NDArray[np.int64], int]:
    """All items (N,) in the order their labels are revealed, one item of every class first, and the number of classes."""
    order = np.random.default_rng(seed).permutation(len(truth))
    firsts = np.sort(np.unique(truth[order], return_index=True)[1])
    return np.concatenate([order[firsts], np.delete(order, firsts)]), len(firsts)


def _learn(X: NDArray[Any], truth: NDArray[Any], shown: NDArray[np.int64]) -> NDArray[Any]:
    """What a linear classifier trained on the items ``shown`` takes all items for, (N,)."""
    labels: NDArray[Any] = LogisticRegression(max_iter=2000).fit(X[shown], truth[shown]).predict(X)
    return labels


def _hit(
    X: NDArray[Any], truth: NDArray[Any], pairs: NDArray[np.int64], target: float, tolerance: float, seed: list[int]
) -> Answers:
    """The answers of one machine annotator whose flip rate is within ``tolerance`` of ``target``."""
    if target == 0.0:
        return answer_by_labels(truth, truth, pairs)
    found: list[tuple[int, Answers]] = []
    for attempt in range(ORDERS):
        shown, n_classes = _learning_order(truth, [*seed, attempt])
        found.append(_nearest(X, truth, pairs, target, tolerance, shown, n_classes))
        n_labels, answers = found[-1]
        if _near(answers.flip_rate, target, tolerance):
            return answers
    n_labels, answers = min(found, key=lambda pair: abs(pair[1].flip_rate - target))
    raise _unreached(target, tolerance, n_labels, answers.flip_rate)


def _near(rate: float, target: float, tolerance: float) -> bool:
    return abs(rate - target) <= tolerance + 1e-9  # .255 is within .005 of .25


def _unreached(target: float, tolerance: float, n_labels: int, nearest: float) -> ValueError:
    return ValueError(
        f"flip_rate: expected a rate that some number of labels gives to within {tolerance}, found {target}; {n_labels} labels give {nearest:.4f}. Ask for that, allow more tolerance, or give more pairs."
    )


def _nearest(
    X: NDArray[Any],
    truth: NDArray[Any],
    pairs: NDArray[np.int64],
    target: float,
    tolerance: float,
    shown: NDArray[np.int64],
    n_classes: int,
) -> tuple[int, Answers]:
    """The first number of labels that gives the rate, or else the nearest one tried, and its answers."""
    tried: dict[int, Answers] = {}

    def rate(n_labels: int) -> float:
        if n_labels not in tried:
            tried[n_labels] = answer_by_labels(truth, _learn(X, truth, shown[:n_labels]), pairs)
        return tried[n_labels].flip_rate

    def search() -> Iterator[int]:
        low, high = n_classes, min(2 * n_classes, len(shown))
        while rate(high) > target and high < len(shown):
            yield high
            low, high = high, min(2 * high, len(shown))
        if rate(high) > target + tolerance:  # with all labels: no order can do better
            raise _unreached(target, tolerance, high, rate(high))
        while high - low > 1:
            middle = (low + high) // 2
            yield middle
            low, high = (middle, high) if rate(middle) > target else (low, middle)
        # The rate is no smooth function of the labels: its neighbours may be nearer.
        yield from range(max(n_classes, high - n_classes), min(high + n_classes, len(shown)) + 1)
        if high <= 2 * n_classes:
            yield from range(n_classes - 1, 1, -1)

    for n_labels in search():
        if _near(rate(n_labels), target, tolerance):
            return n_labels, tried[n_labels]
    n_labels = min(tried, key=lambda n: abs(tried[n].flip_rate - target))
    return n_labels, tried[n_labels]


def mixed_annotators(
    memberships: ArrayLike, pairs: NDArray[np.int64], confusions: ArrayLike, rng: np.random.Generator
) -> Answers:
    """R annotators, each with a confusion of their own, (R, K, K); every pair goes to one of them at random."""
    F, A = np.asarray(memberships, dtype=np.float64), np.asarray(confusions, dtype=np.float64)
    annotators = rng.integers(len(A), size=len(pairs))
    similar = np.zeros(len(pairs), dtype=bool)
    for r, matrix in enumerate(A):
        mine = annotators == r
        similar[mine] = answer_through(F, pairs[mine], matrix, rng).similar if mine.any() else similar[mine]
    return Answers(pairs, similar, flip_rate(F.argmax(axis=1), pairs, similar), annotators)


def worker_pairs(classes: ArrayLike, answers: NDArray[np.int64], n_pairs: int, rng: np.random.Generator) -> Answers:
    """Pairs of items that one worker has labelled both of, from a table of labels (N, R), -1 where there is none."""
    truth = np.asarray(classes)
    every, labelled_by = [], []
    for worker in range(answers.shape[1]):
        items = np.flatnonzero(answers[:, worker] >= 0)
        a, b = np.triu_indices(len(items), k=1)
        every.append(np.column_stack([items[a], items[b]]))
        labelled_by.append(np.full(len(a), worker))
    all_pairs, all_workers = np.concatenate(every), np.concatenate(labelled_by)
    chosen = rng.permutation(len(all_pairs))[:n_pairs]
    pairs, workers = all_pairs[chosen], all_workers[chosen]
    similar = answers[pairs[:, 0], workers] == answers[pairs[:, 1], workers]
    return Answers(pairs, similar, flip_rate(truth, pairs, similar), workers)
