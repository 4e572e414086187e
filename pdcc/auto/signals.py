"""What is measured before anything is decided: how well a partition or a constant rate predicts answers it was not made from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from pdcc.arrays import Bools, Float64, Ints
from pdcc.auto.calibration import SHRINK
from pdcc.data.degrees import counts as counts_of
from pdcc.data.degrees import degree, nats, weighed
from pdcc.data.pairs import PairData
from pdcc.fitted import MOST_WRONG


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


@dataclass(frozen=True)
class Mixed:
    """A cluster that answers contradict: how often they say similar within it, of how many, and within the others; partner: the cluster most
    often called similar to it, or None."""

    cluster: int
    within: float
    n_answers: int
    others: float
    partner: int | None

    def __str__(self) -> str:
        found = f"Cluster {self.cluster} may hold two classes: of {self.n_answers:,} answers about pairs within it {self.within:.0%} say similar, within the others {self.others:.0%}"
        return found + (
            "." if self.partner is None else f"; or it and cluster {self.partner} are cut in the wrong place."
        )


def mixed_clusters(labels: Ints, pairs: PairData, n_clusters: int) -> tuple[Mixed, ...]:
    """Clusters within which fewer answers say similar than people who take at most ``MOST_WRONG`` of the items for others would say, and
    fewer than within the others, by three standard errors; labels (N,)."""
    K, y = n_clusters, degree(pairs)
    a, b = labels[pairs.i], labels[pairs.j]
    said, n = (np.bincount(a * K + b, part, minlength=K * K).reshape(K, K) for part in (y, np.ones(len(y))))
    said, n = said + said.T, n + n.T  # the diagonal twice, which leaves its rates as they are
    own, asked = said.diagonal() / 2, n.diagonal() / 2
    found = []
    for k in np.flatnonzero(asked > 0):
        rest = asked.sum() - asked[k]
        if rest == 0:
            continue
        rate, others = own[k] / asked[k], (own.sum() - own[k]) / rest
        error = np.sqrt(max(others * (1 - others), 1 / rest) * (1 / asked[k] + 1 / rest))
        if rate < (1 - MOST_WRONG) ** 2 and others - rate > 3 * error:
            to = np.where(n[k] > 0, said[k] / np.maximum(n[k], 1), 0.0)
            to[k] = 0.0
            partner = int(to.argmax()) if to.max() > rate / 2 else None
            found.append(Mixed(int(k), float(rate), int(asked[k]), float(others), partner))
    return tuple(found)


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
