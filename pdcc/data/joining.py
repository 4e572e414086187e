"""More answers about the same items: those that were there, then the new ones, annotators known by one name."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pdcc.arrays import Bools, Ints
from pdcc.data.answers import PairAnswers
from pdcc.data.degrees import Judged, counts, degree
from pdcc.data.pairs import PairData
from pdcc.data.words import text_of

# Who gave the answers that nobody is named for, where others are.
UNNAMED = "unnamed"


@dataclass(frozen=True)
class Joined:
    """The answers together. n_known: how many of those added are the earlier ones again, and count once; n_repeated: how many say the same as an earlier one by the same annotator, and count twice. kept: which of those added are in it, (M,)."""

    data: PairData
    n_known: int
    n_repeated: int
    kept: Bools


def joined(earlier: PairData, added: PairAnswers) -> Joined:
    """The earlier answers, in their order, and the added ones.

    Where those hold all of the earlier ones too, as an export of everything so far does, these are not added again.
    """
    codes, names = _annotators(earlier, added)
    n = len(earlier)
    old, new = _keys(earlier, None if codes is None else codes[:n]), _keys(added, None if codes is None else codes[n:])
    have, found = Counter(old), Counter(new)
    again = have <= found
    left, keep = have.copy(), np.ones(len(new), dtype=bool)
    repeated = 0
    for k, key in enumerate(new):
        if left[key] > 0:
            left[key] -= 1
            keep[k] = not again
            repeated += not again and codes is not None
    soft = weight = None
    if earlier.soft is not None or added.soft is not None:
        soft = np.r_[degree(earlier), degree(added)[keep]].astype(np.float32)
    if earlier.weight is not None or added.weight is not None:
        weight = np.r_[counts(earlier), counts(added)[keep]].astype(np.float32)
    random = None
    if earlier.random is not None or added.random is not None:
        drawn = np.ones(len(new), dtype=bool) if added.random is None else added.random
        random = np.r_[earlier.at_random(), drawn[keep]]
    data = replace(
        earlier,
        i=np.r_[earlier.i, added.i[keep]],
        j=np.r_[earlier.j, added.j[keep]],
        similar=np.r_[earlier.similar, added.similar[keep]],
        annotator=None if codes is None else codes[np.r_[np.ones(n, dtype=bool), keep]],
        annotator_names=names,
        soft=soft,
        weight=weight,
        random=random,
        self_pairs=earlier.self_pairs + added.self_pairs,
        weightless=earlier.weightless + added.weightless,
    )
    return Joined(data.plain(), int((~keep).sum()), repeated, keep)


def _annotators(earlier: PairData, added: PairAnswers) -> tuple[Ints | None, tuple[Any, ...]]:
    """Numbers (M,) of the annotators of both, and their names: the earlier ones' first, and the same where they are written alike."""
    if earlier.annotator is None and added.annotator is None:
        return None, ()
    names: list[Any] = []
    codes = []
    for part, n in ((earlier, len(earlier)), (added, added.n_answers)):
        of_part = (UNNAMED,) if part.annotator is None else part.annotator_names
        places = {text_of(name): place for place, name in enumerate(names)}
        names += [name for name in of_part if text_of(name) not in places]
        places = {text_of(name): place for place, name in enumerate(names)}
        own = np.array([places[text_of(name)] for name in of_part], dtype=np.int64)
        codes.append(own[np.zeros(n, dtype=np.int64) if part.annotator is None else part.annotator])
    return np.concatenate(codes), tuple(names)


def _keys(part: PairData | PairAnswers, codes: Ints | None) -> list[tuple[Any, ...]]:
    """What tells answers apart: the unordered pair, what was said of it, how much it counts, and who said it."""
    judged: Judged = part
    ends = np.sort(np.column_stack([part.i, part.j]), axis=1).tolist()
    who: list[Any] = [None] * len(ends) if codes is None else codes.tolist()
    return list(zip(map(tuple, ends), degree(judged).tolist(), counts(judged).tolist(), who, strict=True))
