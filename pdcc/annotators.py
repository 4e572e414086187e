"""Simulated annotators: pairs to ask about, and the ways people (and machines) get them wrong.

Every simulator returns ``Answers`` with the flip rate it realised: the share of answers that differ from
whether the two items' true classes (largest memberships) agree.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression


@dataclass(frozen=True)
class Answers:
    """pairs (M, 2) row numbers, similar (M,) bool, annotators (M,) numbers or None, and the realised flip rate."""

    pairs: NDArray[np.int64]
    similar: NDArray[np.bool_]
    flip_rate: float
    annotators: NDArray[np.int64] | None = None


def draw_pairs(n_items: int, n_pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Uniform pairs of two different items, (M, 2); pairs may repeat."""
    if n_items < 2:
        raise ValueError(f"n_items: expected at least 2, found {n_items}.")
    i = rng.integers(n_items, size=n_pairs)
    j = (i + rng.integers(1, n_items, size=n_pairs)) % n_items
    return np.column_stack([i, j])


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
    return Answers(pairs, similar, flip_rate(truth, pairs, similar))


def machine_annotator(
    X: ArrayLike, classes: ArrayLike, pairs: NDArray[np.int64], *, n_labels: int, seed: int = 0
) -> Answers:
    """The paper's section 6.1: a classifier trained on ``n_labels`` true labels answers by its predictions."""
    X, truth = np.asarray(X), np.asarray(classes)
    order = np.random.default_rng(seed).permutation(len(X))
    # One item of every class first, so that the classifier knows them all.
    firsts = np.array([order[truth[order] == k][0] for k in np.unique(truth)])
    if n_labels < len(firsts):
        raise ValueError(f"n_labels: expected at least one a class ({len(firsts)}), found {n_labels}.")
    shown = np.concatenate([firsts, order[~np.isin(order, firsts)]])[:n_labels]
    labels = LogisticRegression(max_iter=2000).fit(X[shown], truth[shown]).predict(X)
    return answer_by_labels(truth, labels, pairs)


def mixed_annotators(
    memberships: ArrayLike, pairs: NDArray[np.int64], confusions: ArrayLike, rng: np.random.Generator
) -> Answers:
    """R annotators, each with a confusion of their own, (R, K, K); every pair goes to one of them at random."""
    F, A = np.asarray(memberships, dtype=np.float64), np.asarray(confusions, dtype=np.float64)
    who = rng.integers(len(A), size=len(pairs))
    similar = np.zeros(len(pairs), dtype=bool)
    for r, matrix in enumerate(A):
        mine = who == r
        similar[mine] = answer_through(F, pairs[mine], matrix, rng).similar if mine.any() else similar[mine]
    return Answers(pairs, similar, flip_rate(F.argmax(axis=1), pairs, similar), who)


def worker_pairs(classes: ArrayLike, answers: NDArray[np.int64], n_pairs: int, rng: np.random.Generator) -> Answers:
    """Pairs of items that one worker has labelled both of, from a table of labels (N, R), -1 where there is none."""
    truth = np.asarray(classes)
    every, who = [], []
    for worker in range(answers.shape[1]):
        items = np.flatnonzero(answers[:, worker] >= 0)
        a, b = np.triu_indices(len(items), k=1)
        every.append(np.column_stack([items[a], items[b]]))
        who.append(np.full(len(a), worker))
    all_pairs, all_who = np.concatenate(every), np.concatenate(who)
    chosen = rng.permutation(len(all_pairs))[:n_pairs]
    pairs, workers = all_pairs[chosen], all_who[chosen]
    similar = answers[pairs[:, 0], workers] == answers[pairs[:, 1], workers]
    return Answers(pairs, similar, flip_rate(truth, pairs, similar), workers)
