"""What is measured before anything is decided: how well a partition or a constant rate predicts answers it was not made from."""

from collections.abc import Sequence

import numpy as np
from scipy.special import betaln

from pdcc.arrays import Bools, Float64, Ints
from pdcc.auto.calibration import SHRINK
from pdcc.data.degrees import counts as counts_of
from pdcc.data.degrees import degree, nats, weighed
from pdcc.data.pairs import PairData


def answer_counts(labels: Ints, n_labels: int, pairs: PairData) -> Float64:
    """How often two labels were called similar, and different: (2, L, L), symmetric, pairs within a label once.

    Answers count as much as they weigh, and soft ones for both, by degrees.
    """
    counts = np.zeros((2, n_labels, n_labels))
    y, weight = degree(pairs), counts_of(pairs)
    for said, how_far in enumerate((y, 1 - y)):
        np.add.at(counts[said], (labels[pairs.i], labels[pairs.j]), weight * how_far)
    both = counts + counts.transpose(0, 2, 1)
    k = np.arange(n_labels)
    both[:, k, k] /= 2
    return both


def partition_agreement(labels: Ints, n_labels: int, pairs: PairData) -> Float64:
    """B of a partition, (L, L): every rate shrunk, by ``SHRINK`` answers, to one rate within clusters and one across them."""
    similar, different = answer_counts(labels, n_labels, pairs)
    within = np.eye(n_labels, dtype=bool)
    upper = np.triu(np.ones_like(within))
    pooled = np.empty_like(similar)
    for block in (within, ~within):
        s, d = similar[block & upper].sum(), different[block & upper].sum()
        pooled[block] = (s + 0.5) / (s + d + 1.0)
    return np.asarray((similar + SHRINK * pooled) / (similar + different + SHRINK))


def partition_nll(labels: Ints, train: PairData, test: PairData) -> Float64:
    """Negative log-likelihood of each test answer (M,) under a partition and its B, learned on train, weighed."""
    p = partition_agreement(labels, int(labels.max()) + 1, train)[labels[test.i], labels[test.j]]
    return weighed(nats(p, test), test)


def cross_validated(made: Sequence[Ints], folds: Sequence[tuple[PairData, PairData]]) -> Float64:
    """``partition_nll`` of the answers of all folds, (M,), each under the labels (N,) made from the other folds."""
    return np.concatenate([partition_nll(labels, *fold) for labels, fold in zip(made, folds, strict=True)])


def two_rate_nll(labels: Ints, train: PairData, test: PairData) -> Float64:
    """The same where one rate within clusters and one across them are all there is: taking a cluster apart then costs."""
    together = [labels[part.i] == labels[part.j] for part in (train, test)]
    p = np.where(together[1], *said_similar(together[0], train))
    return weighed(nats(p, test), test)


def said_similar(together: Bools, pairs: PairData) -> list[float]:
    """How often answers say "similar" of pairs that are ``together`` (M,), and of the others; half an answer each way keeps both off 0 and 1."""
    y, weight = degree(pairs), counts_of(pairs)
    return [float(((weight * y)[m].sum() + 0.5) / (weight[m].sum() + 1.0)) for m in (together, ~together)]


def constant_nll(train: PairData, test: PairData) -> Float64:
    """The same under one rate for all pairs."""
    return partition_nll(np.zeros(test.n_items, np.int64), train, test)


def evidence(labels: Ints, pairs: PairData) -> float:
    """Log marginal likelihood of the answers if the partition is right: a uniform prior on the rate within clusters, and on that across."""
    together = labels[pairs.i] == labels[pairs.j]
    y, weight = degree(pairs), counts_of(pairs)
    sums = [[(weight * said)[m].sum() + 1.0 for said in (y, 1 - y)] for m in (together, ~together)]
    return float(sum(betaln(*both) for both in sums))


def standard_error(difference: Float64, groups: Ints | None) -> float:
    """Standard error of the mean of per-pair differences (M,); pairs of one annotator (``groups``) count as one."""
    centred = difference - difference.mean()
    alone = float(np.sqrt((centred**2).sum()) / len(centred))
    n_groups = 0 if groups is None else len(np.unique(groups))
    if groups is None or n_groups < 2:
        return alone
    together = float(np.sqrt((np.bincount(groups, weights=centred) ** 2).sum()) / len(centred))
    # Few groups understate their own spread: correct as for a variance, and never claim more than independence would.
    return max(alone, together * float(np.sqrt(n_groups / (n_groups - 1))))


def holm(p_values: list[float | None]) -> list[float | None]:
    """Holm-adjusted p-values; None stays None and does not count."""
    order = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    out: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, k) in enumerate(order):
        running = max(running, min(1.0, p * (len(order) - rank)))
        out[k] = running
    return out
