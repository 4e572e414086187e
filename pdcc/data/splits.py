"""Every hold-out and fold: which answers are kept from a fit, so that it can be judged by them."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from pdcc.arrays import Bools, Ints
from pdcc.data.pairs import PairData
from pdcc.errors import PairDataError

# Whole annotators are held out where there are at least so many of them.
FEWEST_ANNOTATORS = 10


class HeldOut(StrEnum):
    """What is held out together."""

    NOTHING = "nothing"
    PAIRS = "pairs"
    ANNOTATORS = "annotators"
    ITEMS = "items"


@dataclass(frozen=True)
class Split:
    """Which of M answers are held out, ``held`` (M,), and by what they were drawn."""

    held: Bools
    by: HeldOut

    def train(self, data: PairData) -> PairData:
        """The answers to fit to."""
        return data.subset(~self.held)

    def test(self, data: PairData) -> PairData | None:
        """The answers to judge by; None where nothing was held out."""
        return data.subset(self.held) if self.held.any() else None


def hold_out(data: PairData, fraction: float, seed: int) -> Split:
    """Hold out whole annotators where there are at least ten, else pairs.

    One or two held-out annotators would tell how *they* answer, with no way to see how much annotators differ.
    """
    if fraction == 0:
        return Split(np.zeros(len(data), dtype=bool), HeldOut.NOTHING)
    by = HeldOut.ANNOTATORS if data.n_annotators >= FEWEST_ANNOTATORS else HeldOut.PAIRS
    found = split(data, fraction, seed, by=by)
    # An unlucky draw of annotators may leave one kind of answer only, or too few pairs to learn from.
    if by is HeldOut.ANNOTATORS:
        kept = data.similar[~found.held]
        if len(np.unique(kept)) < 2 or len(kept) < len(data) / 2:
            found = split(data, fraction, seed, by=HeldOut.PAIRS)
    return found if found.held.any() else Split(found.held, HeldOut.NOTHING)


def extended(earlier: Split, data: PairData, fraction: float, seed: int) -> Split:
    """The split of answers whose first ones were split before, as they were: what was held out stays so, and what was seen is not held out.

    Of the answers added, those about held-out pairs, or by held-out annotators, are held out, those about pairs seen before are not, and
    of the others about a ``fraction`` is: pairs, or whole annotators who are new.
    """
    n = len(earlier.held)
    held = np.r_[earlier.held, np.zeros(len(data) - n, dtype=bool)]
    if fraction == 0 and not held.any():
        return Split(held, HeldOut.NOTHING)
    by_annotator = earlier.by is HeldOut.ANNOTATORS and data.annotator is not None
    group = data.annotator if by_annotator and data.annotator is not None else data.asked()
    held[n:] = np.isin(group[n:], group[:n][earlier.held])
    new = np.flatnonzero(~np.isin(group, group[:n]))
    enough = len(np.unique(group[new])) > 1
    if fraction > 0 and enough:
        part = split(data.subset(new), fraction, seed, by=HeldOut.ANNOTATORS if by_annotator else HeldOut.PAIRS)
        held[new] = part.held
    by = HeldOut.PAIRS if earlier.by is HeldOut.NOTHING else earlier.by
    return Split(held, by if held.any() else HeldOut.NOTHING)


def split(data: PairData, fraction: float, seed: int, *, by: HeldOut | str = HeldOut.PAIRS) -> Split:
    """Hold answers out, seeded. By pairs: about a ``fraction`` of each kind of answer; several about one pair stay together.

    By annotators: all pairs of enough annotators, drawn at random, to make about ``fraction`` of the pairs. One annotator's
    answers are consistent with each other, so their pairs leak; annotators do not. By items: half of them are all pairs that
    touch items drawn at random, half are single pairs, for answers whose annotators are not known; again several about one
    pair stay together.
    """
    rng = np.random.default_rng(seed)
    held = np.zeros(len(data), dtype=bool)
    if by == HeldOut.ANNOTATORS:
        held = _whole_annotators(data, fraction, rng)
    elif by == HeldOut.PAIRS:
        for kind in (False, True):
            members = np.flatnonzero(data.similar == kind)
            n_held = min(max(1, round(fraction * len(members))), len(members) - 1)
            held |= _about_first(data, rng.permutation(members), n_held)
        if any(held[data.similar == kind].all() for kind in np.unique(data.similar)):
            held[:] = False  # so few pairs that one kind of answer would be gone: hold nothing out
    elif by == HeldOut.ITEMS:
        # A pair touches one of a share s of the items with probability 1 - (1 - s)^2.
        share = 1 - np.sqrt(1 - fraction / 2)
        new = rng.permutation(data.n_items)[: max(1, round(share * data.n_items))]
        held = np.isin(data.i, new) | np.isin(data.j, new)
        rest = np.flatnonzero(~held)
        held |= _about_first(data, rng.permutation(rest), round(fraction / 2 * len(data)))
    else:
        raise PairDataError("by", "'pairs', 'annotators' or 'items'", repr(by), "Choose one of them.")
    return Split(held, HeldOut(by))


def _whole_annotators(data: PairData, fraction: float, rng: np.random.Generator) -> Bools:
    if data.annotator is None:
        raise PairDataError("by", "annotator ids to split by", "none", "Pass annotators, or split by='pairs'.")
    counts = np.bincount(data.annotator)
    order = rng.permutation(np.flatnonzero(counts))
    chosen: list[int] = []
    for annotator in order.tolist():
        short = fraction * len(data) - counts[chosen].sum()
        if abs(short - counts[annotator]) < abs(short):
            chosen.append(annotator)
    if not chosen:  # each overshoots: the annotator with the fewest pairs
        chosen = [int(order[counts[order].argmin()])]
    return np.asarray(np.isin(data.annotator, chosen[: len(order) - 1]))


def _about_first(data: PairData, order: Ints, n: int) -> NDArray[np.bool_]:
    """All answers about the pairs that come first in ``order`` (of rows), until they are at least ``n``, (M,)."""
    asked = data.asked()
    ids = asked[order]
    ids = ids[np.sort(np.unique(ids, return_index=True)[1])]
    sizes = np.bincount(asked)[ids]
    return np.asarray(np.isin(asked, ids[np.cumsum(sizes) - sizes < n]))


def item_folds(data: PairData, n: int, seed: int) -> list[tuple[PairData, PairData]]:
    """``n`` (train, test) splits by items: test has the answers between two items of a part, train those between two outside it.

    Whatever an annotator has in mind about the items of a training answer cannot help with two items that training never saw.
    Empty where a split would leave one kind of answer only to train on, or none to test.
    """
    part = np.random.default_rng(seed).permutation(np.arange(data.n_items) % n)
    ends = part[data.i], part[data.j]
    out = []
    for k in range(n):
        train = data.subset((ends[0] != k) & (ends[1] != k))
        test = data.subset((ends[0] == k) & (ends[1] == k))
        if not len(test) or len(np.unique(train.similar)) < 2:
            return []
        out.append((train, test))
    return out


def new_folds(data: PairData, n: int, seed: int) -> list[tuple[PairData, PairData]]:
    """``n`` (train, test) splits whose tests nothing learned by heart can help with: whole annotators where there are enough, else items."""
    return folds(data, n, seed) if data.n_annotators >= FEWEST_ANNOTATORS else item_folds(data, n, seed)


def folds(data: PairData, n: int, seed: int) -> list[tuple[PairData, PairData]]:
    """``n`` (train, test) splits by ``fold_numbers``. Empty where a split would have no answers on one side."""
    fold = fold_numbers(data, n, seed)
    parts = [(data.subset(fold != k), data.subset(fold == k)) for k in range(n)]
    return parts if all(len(train) and len(test) for train, test in parts) else []


def fold_numbers(data: PairData, n: int, seed: int) -> Ints:
    """The fold, of ``n``, that tests each answer, (M,): whole annotators where there are enough, else all answers about a pair."""
    rng = np.random.default_rng(seed)
    if data.annotator is not None and len(np.unique(data.annotator)) >= max(n, FEWEST_ANNOTATORS):
        annotators = rng.permutation(np.unique(data.annotator))
        # Deal annotators out largest first, each to the fold with the fewest pairs so far.
        counts = np.bincount(data.annotator)
        size, fold_of = np.zeros(n), np.zeros(len(counts), np.int64)
        for annotator in annotators[np.argsort(-counts[annotators], kind="stable")]:
            fold_of[annotator] = size.argmin()
            size[fold_of[annotator]] += counts[annotator]
        return np.asarray(fold_of[data.annotator], dtype=np.int64)
    asked = data.asked()
    first = np.unique(asked, return_index=True)[1]
    return np.asarray(rng.permutation(np.arange(len(data)) % n)[first[asked]], dtype=np.int64)
