"""From beliefs to what people ask: how many labels are right, which items and clusters are settled, and what more answers would do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq, linear_sum_assignment
from scipy.stats import binom

from pdcc.accuracy.beliefs import DRAWS, Calibration, Judged, Read, read
from pdcc.accuracy.dependence import Dependence, dependence
from pdcc.accuracy.folds import fold_fits
from pdcc.accuracy.merged import Cut, Mixed, cut_classes, mixed_clusters
from pdcc.accuracy.outlook import Outlook, look_ahead
from pdcc.arrays import Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.fitted import LEAST_SIMILAR, Fitted
from pdcc.inference.rows import scaled_items
from pdcc.select.score import similar_rates

# Fits to four fifths of the answers are nearest to the fit; those to fewer tell what answers are worth, and leave more of them to judge by.
SHARES, QUICK = (0.8, 0.5, 0.25), (0.5,)
# Of the table of items, which is known by them where it is a file.
ITEM_COLUMNS = ("item", "label", "probability", "settled", "set")
LEVEL = 0.9
DEPENDENT = 0.05
TOGETHER = "Answers about one item go wrong together, as when it is labelled once and labels are compared: they show how far the labels agree with what annotators have in mind, not whether that is right."
# Annotators who call two items of one class similar more often than this contradict themselves less than people do.
CLEANEST = 0.96
NOTHING = "Pairs within clusters are called similar no more often than pairs across them, by answers that fits did not see: the answers say nothing about these clusters."
CLEAN = "The answers hardly contradict each other, as when one annotator has labelled every item: they are right or wrong together, and only trusted labels can tell."
SUGGESTED = "There are too few answers of one kind about pairs drawn at random: suggested ones alone cannot show whether they go wrong together."
DOUBT = "This holds only if people call as few as {rate:.0%} of the pairs of one class similar; they usually call {least:.0%} or more. Else clusters hold several classes each: compare with more clusters, or check a few items (trusted labels)."
# A set of more labels than this leaves a label open.
MOST_LABELS = 3
PUREST = 3


@dataclass(frozen=True)
class Estimate:
    """A share and its 90 % interval; None where no claim is made."""

    low: float | None = None
    estimate: float | None = None
    high: float | None = None

    def __bool__(self) -> bool:
        return self.estimate is not None

    def __str__(self) -> str:
        if self.low is None or self.estimate is None or self.high is None:
            return "no claim"
        return f"{100 * self.estimate:.0f} % ({100 * self.low:.0f}-{100 * self.high:.0f})"

    @classmethod
    def of(cls, value: float, draws: Sequence[float], step: float = 0.0) -> "Estimate":
        """The value, and the middle 90 % of the draws, widened to hold it; of a share that comes in steps, out to the next one."""
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return cls(float(max(0.0, min(low, value) - step)), float(value), float(min(1.0, max(high, value) + step)))


@dataclass(frozen=True)
class LabelReport:
    """How far the labels can be trusted.

    accuracy: the share of items whose label is right, up to renaming; None where answers depend on each other, and then reason says
    why. agreement: there, the share of items labelled as annotators themselves would, whatever the truth is. precision, recall: of pairs in
    one cluster. items, clusters: one row each. beliefs: (N, K), of every item's class, or, where no
    claim is made, of what annotators have in mind. doubt: what the claim rests on, where that is unusual, or None. folds: (V, N, K), memberships of fits to most of
    the answers. mixed: clusters that may hold two classes. cut: pairs of clusters that may be one.
    """

    accuracy: Estimate
    reason: str | None
    agreement: Estimate
    precision: Estimate
    recall: Estimate
    items: pd.DataFrame
    clusters: pd.DataFrame
    dependence: Dependence | None
    outlook: Outlook | None
    beliefs: Float64
    folds: Float64
    mixed: tuple[Mixed, ...] = ()
    cut: tuple[Cut, ...] = ()
    doubt: str | None = None


def judge_labels(
    fitted: Fitted,
    data: PairData,
    *,
    level: float = 0.95,
    target: float = 0.8,
    quick: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> LabelReport:
    """Fit again to parts of the answers, and let the rest say how right labels are.

    level: how sure a set of labels must be; target: the accuracy that would do. quick: two more fits instead of nine.

    Suggested pairs were chosen for what earlier answers said. Given an item's class, and how sure the fits are of it, that changes no answer's
    probability, so all answers calibrate. But rates over pairs are then no longer those of all pairs, and items whose answers
    contradict each other are asked about again: whether answers say anything, or go wrong together, only random pairs show.
    """
    labels = fitted.memberships(data.features).argmax(axis=1)
    if data.soft is not None:  # answers are judged as plain ones here, and what is neither cannot be
        data = data.subset(data.soft != 0.5)
    if min(np.bincount(data.similar.astype(int), minlength=2)) < 2 * len(SHARES):
        return _no_claim(labels, data, fitted.config.n_clusters, "There are too few answers of one kind to judge by.")
    by_chance = data.at_random()
    if min(np.bincount(data.similar[by_chance].astype(int), minlength=2)) < 2 * len(SHARES):
        return _no_claim(labels, data, fitted.config.n_clusters, SUGGESTED)
    fits = fold_fits(fitted, data, QUICK if quick else SHARES, seed=seed, progress=progress)
    sets = [Judged(each, data) for each in fits]
    uniform = sets if by_chance.all() else [Judged(f.among(by_chance), data.subset(by_chance)) for f in fits]
    if not _told(uniform[0]):
        return _no_claim(labels, data, fitted.config.n_clusters, NOTHING, fits[0].memberships)
    annotator = None if data.annotator is None else data.annotator[by_chance]
    depends = dependence(Calibration(uniform, apart=True), min(1, len(sets) - 1), annotator, seed)
    found, reason = Calibration(sets), None
    if depends.p is not None and depends.p < DEPENDENT:
        reason = TOGETHER
    elif float(found.agreement(found.mode).diag().mean()) > CLEANEST:
        reason = CLEAN
    if reason is not None:
        found = Calibration(sets, exact=True)
    at = _read(found, labels, seed)
    items = scaled_items(data.features, fitted.scaler, torch.device("cpu"))
    mixed = mixed_clusters(items, labels, data, fitted.config.n_clusters, seed)
    apart = similar_rates(labels[data.i] == labels[data.j], data)[1]
    rng = np.random.default_rng(seed)
    drawn = [
        doubted(sharpened(one.beliefs, labels, a), labels, mixed, apart, rng if k else None)
        for k, (one, a) in enumerate(at)
    ]
    right = np.array([np.take_along_axis(each, labels[:, None], 1).mean() for each in drawn])
    share, beliefs = Estimate.of(right[0], right[1:].tolist(), step=1 / len(labels)), drawn[0]
    cut = cut_classes(labels, data.subset(by_chance), fitted.config.n_clusters)
    share = _if_one_class(share, cut, labels)
    accuracy, agreement = (share, Estimate()) if reason is None else (Estimate(), share)
    shares = [each.share for each in fits]
    # Fits to fewer answers hold the same classes together: what is doubted of all answers' fit is doubted of theirs.
    kept = right / np.array([a for _, a in at])
    losses = np.array([1 - by * one.right for by, (one, _) in zip(kept, at, strict=True)])
    outlook = None if quick else look_ahead(len(data), shares, losses, 1 - right, target)
    rates = [_pairs(each, labels) for each in drawn]
    precision, recall = (Estimate.of(rates[0][k], [r[k] for r in rates[1:]]) for k in (0, 1))
    return LabelReport(
        accuracy, reason, agreement, precision, recall,
        _items(beliefs, labels, data, level), _clusters(drawn, labels, data, target),
        depends, outlook, beliefs, fits[0].memberships, mixed, cut,
        _doubt(labels, data.subset(by_chance)) if reason is None else None,
    )  # fmt: skip


def in_line(
    report: LabelReport, labels: Ints, data: PairData, accuracy: Estimate, *, level: float, target: float
) -> LabelReport:
    """The report with pairs, items and clusters believed in as far as ``accuracy``, which trusted labels tell, allows.

    Where answers tell nothing of single items, neither do these few labels: then only the whole is known.
    """
    if not (report.accuracy or report.agreement):
        return report
    shares = [a for a in (accuracy.estimate, accuracy.low, accuracy.high) if a is not None]
    estimate, *ends = (sharpened(report.beliefs, labels, a) for a in shares)
    drawn = [estimate, *(end for end in ends for _ in range(DRAWS))]  # ends of an interval, not draws to take ends of
    rates = [_pairs(each, labels) for each in drawn]
    precision, recall = (Estimate.of(rates[0][k], [r[k] for r in rates[1:]]) for k in (0, 1))
    items, clusters = _items(drawn[0], labels, data, level), _clusters(drawn, labels, data, target)
    return replace(report, precision=precision, recall=recall, items=items, clusters=clusters, beliefs=drawn[0])


def _if_one_class(share: Estimate, cut: Sequence[Cut], labels: Ints) -> Estimate:
    """The share of right labels, whose lower end is that where clusters that may be one class are one: labels in the smaller are then wrong."""
    wrong: dict[int, float] = {}
    for one in cut:
        wrong[one.smaller] = max(wrong.get(one.smaller, 0.0), one.together)
    off = sum(part * float((labels == k).mean()) for k, part in wrong.items())
    return replace(share, low=None if share.low is None else max(0.0, share.low - off))


def _doubt(labels: Ints, data: PairData) -> str | None:
    """A sentence where fewer answers about pairs within clusters say similar than people usually say of one class, beyond chance."""
    within = labels[data.i] == labels[data.j]
    similar, n = int(data.similar[within].sum()), int(within.sum())
    if binom.cdf(similar, n, LEAST_SIMILAR) >= DEPENDENT:
        return None
    return DOUBT.format(rate=similar / n, least=LEAST_SIMILAR)


def _told(at: Judged) -> bool:
    """Whether answers bear on the clusters of fits that did not see them: similar is said more often within, by three standard errors."""
    label, y = at.label.flatten(), at.similar.numpy()
    same = (label[at.left] == label[at.right]).numpy()
    if same.all() or not same.any():
        return False
    rates = [y[part].mean() for part in (same, ~same)]
    deviation = np.sqrt(
        sum(max(r * (1 - r), 1 / len(y)) / part.sum() for r, part in zip(rates, (same, ~same), strict=True))
    )
    return bool(rates[0] - rates[1] > 3 * deviation)


def _read(found: Calibration, labels: Ints, seed: int) -> list[tuple[Read, float]]:
    """What is believed, and the share of right labels, for the mode and every draw."""
    rng, N = np.random.default_rng(seed), len(labels)
    at = []
    for k, theta in enumerate([found.mode, *found.draws(DRAWS, seed)]):
        one = read(found, theta)
        gained = rng.random() if k else 0.0  # the cautious end is the estimate, and the interval holds all of it
        expected = float(np.clip(one.of(labels, gained), 1 / one.beliefs.shape[1], 1.0))
        # One fit is luckier than another, and N items are right as often as they are likely to be, give or take.
        luck = _by_fit(one.others, rng) + np.sqrt(expected * (1 - expected) / N) * rng.normal()
        at.append((one, float(np.clip(expected + (luck if k else 0.0), 1 / one.beliefs.shape[1], 1.0))))
    return at


def _by_fit(others: Float64, rng: np.random.Generator) -> float:
    """How much luckier a fit is than others, drawn; others: (V,), the belief of the other fits in each one's labels.

    How much they differ is known from a few of them only: Student's t. Two believe in each other's labels alike, whichever is right: they
    differ in the share of items that they do not agree on, at most, one way or the other.
    """
    if len(others) == 2:
        return float((1 - others.mean()) / 2 * rng.uniform(-1, 1))
    return float(others.std(ddof=1) * rng.standard_t(len(others) - 1))


def sharpened(beliefs: Float64, labels: Ints, accuracy: float) -> Float64:
    """Beliefs (N, K) whose log odds for the labels are shifted alike, so that these are right as often as ``accuracy`` says.

    A mean over fits is less sure of a label than each of them is, and the fit saw more answers than they did.
    """
    p = np.take_along_axis(beliefs, labels[:, None], 1)[:, 0].clip(1e-9, 1 - 1e-9)
    odds = np.log(p) - np.log1p(-p)
    goal = float(np.clip(accuracy, 1e-4, 1 - 1e-4))

    def mean(shift: float) -> float:
        return float((1 / (1 + np.exp(-odds - shift))).mean())

    shift = brentq(lambda s: mean(s) - goal, -40.0, 40.0)
    q = 1 / (1 + np.exp(-odds - shift))
    others = beliefs + 1e-12  # where nothing is left for them, all alike
    np.put_along_axis(others, labels[:, None], 0.0, axis=1)
    out = others * ((1 - q) / others.sum(axis=1))[:, None]
    np.put_along_axis(out, labels[:, None], q[:, None], axis=1)
    return np.asarray(out)


def doubted(
    beliefs: Float64, labels: Ints, mixed: Sequence[Mixed], apart: float, rng: np.random.Generator | None
) -> Float64:
    """Beliefs (N, K) less sure of the ``labels`` (N,) in one part of each cluster that holds two classes: fits to other answers hold the same two.

    In the smaller part, or in the larger where they mostly hold that to be of another cluster; as many are doubted as the smaller part
    has, less those of the part that are doubted anyway. Of the pairs across two parts as many are of one class as they are called similar beyond pairs across
    clusters, ``apart``, beside those within the parts. rng: draw these rates, rather than taking the likeliest.
    """
    out, K = beliefs.copy(), beliefs.shape[1]
    for one in mixed:
        within, across = (
            said[0] / said.sum() if rng is None else rng.beta(*(said + 0.5)) for said in (one.within, one.across)
        )
        together = float(np.clip((across - apart) / max(within - apart, 1e-9), 0.0, 1.0))
        others = np.setdiff1d(np.flatnonzero(labels == one.cluster), one.rows)
        rows = one.rows if out[others, one.cluster].mean() >= 0.5 else others
        believed, wanted = out[rows, one.cluster].sum(), len(rows) - (1 - together) * len(one.rows)
        taken = out[rows, one.cluster] * max(0.0, 1 - wanted / max(believed, 1e-12))
        out[rows] += (taken / (K - 1))[:, None]
        out[rows, one.cluster] -= taken * (1 + 1 / (K - 1))
    return out


def _pairs(beliefs: Float64, labels: Ints) -> tuple[float, float]:
    """How many pairs in one cluster are of one class, and how many of one class are in one cluster."""
    alone = np.square(beliefs).sum(axis=1)
    sums = np.zeros((beliefs.shape[1], beliefs.shape[1]))
    np.add.at(sums, labels, beliefs)
    size = np.bincount(labels)
    together = float(np.square(sums).sum() - alone.sum())
    asked = float((size * (size - 1)).sum())
    alike = float(np.square(beliefs.sum(axis=0)).sum() - alone.sum())
    return min(1.0, together / max(asked, 1.0)), min(1.0, together / max(alike, 1e-9))


def label_sets(beliefs: Float64, level: float) -> list[list[int]]:
    """For every item the smallest set of labels whose beliefs add up to ``level``, most likely first."""
    order = np.argsort(-beliefs, axis=1, kind="stable")
    held = np.cumsum(np.take_along_axis(beliefs, order, 1), axis=1)
    sizes = 1 + (held < level - 1e-12).sum(axis=1)
    return [row[:n].tolist() for row, n in zip(order, np.minimum(sizes, beliefs.shape[1]), strict=True)]


def _names(data: PairData) -> list[Any]:
    return list(range(data.n_items)) if data.item_ids is None else data.item_ids.tolist()


def _items(beliefs: Float64, labels: Ints, data: PairData, level: float) -> pd.DataFrame:
    """One row per item: item, label, probability, settled, set."""
    K = beliefs.shape[1]
    sets = label_sets(beliefs, level)
    words = ["open" if len(s) > min(MOST_LABELS, K - 1) else "{" + ", ".join(map(str, sorted(s))) + "}" for s in sets]
    settled = [s == [k] for s, k in zip(sets, labels.tolist(), strict=True)]
    probability = np.take_along_axis(beliefs, labels[:, None], 1)[:, 0]
    columns = (_names(data), labels, probability, settled, words)
    return pd.DataFrame(dict(zip(ITEM_COLUMNS, columns, strict=True)))


def _clusters(drawn: list[Float64], labels: Ints, data: PairData, target: float) -> pd.DataFrame:
    """One row per cluster: how pure, with what it is confounded, its purest items, and how many answers bear on it.

    drawn: beliefs (N, K), first the estimate, then draws around it.
    """
    beliefs, names = drawn[0], _names(data)
    K = beliefs.shape[1]
    size = np.bincount(labels, minlength=K)
    own = [np.take_along_axis(each, labels[:, None], 1)[:, 0] for each in drawn]
    purity = np.array([np.bincount(labels, one, minlength=K) / np.maximum(size, 1) for one in own])
    rows = []
    for k in range(K):
        mine = np.flatnonzero(labels == k)
        row: dict[str, Any] = {
            "cluster": k,
            "items": len(mine),
            "purity_low": None,
            "purity": None,
            "purity_high": None,
        }
        row |= {"settled": False, "confounded_with": None, "confounded_share": None, "purest": [], "answers": 0}
        if len(mine):
            found = Estimate.of(purity[0, k], purity[1:, k].tolist())
            row |= {"purity_low": found.low, "purity": found.estimate, "purity_high": found.high}
            others = beliefs[mine].mean(axis=0)
            others[k] = 0.0
            touched = (labels[data.i] == k) | (labels[data.j] == k)
            best = mine[np.argsort(-beliefs[mine, k], kind="stable")[:PUREST]]
            row |= {
                "settled": bool(found.low is not None and found.low >= target),
                "confounded_with": int(others.argmax()),
                "confounded_share": float(others.max()),
                "purest": [names[n] for n in best],
                "answers": int(touched.sum()),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def believed(beliefs: Float64, labels: Ints) -> float:
    """The share of any ``labels`` (N,) that is right by beliefs (N, K) about the items' classes, under the best renaming."""
    together = np.zeros((int(labels.max()) + 1, beliefs.shape[1]))
    np.add.at(together, labels, beliefs)
    rows, columns = linear_sum_assignment(together, maximize=True)
    return float(together[rows, columns].sum() / len(labels))


def _no_claim(labels: Ints, data: PairData, K: int, reason: str, folds: Float64 | None = None) -> LabelReport:
    even = np.full((len(labels), K), 1 / K)
    folds = np.zeros((0, *even.shape)) if folds is None else folds
    items, clusters = _items(even, labels, data, 1.0), _clusters([even, even], labels, data, 1.0)
    empty = Estimate()
    return LabelReport(empty, reason, empty, empty, empty, items, clusters, None, None, even, folds)
