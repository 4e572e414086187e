"""Some of many answers and items, drawn at random: what is too large to be looked at as a whole is looked at in parts that are stated."""

from dataclasses import replace

import numpy as np

from pdcc.arrays import Bools, Ints
from pdcc.data.pairs import PairData
from pdcc.rows import drawn_rows


def drawn_answers(data: PairData, most: int, seed: int) -> PairData:
    """The same items with at most ``most`` of the answers, drawn at random, in their order."""
    return data if len(data) <= most else data.subset(drawn_rows(len(data), most, seed))


def among(data: PairData, n_items: int, seed: int) -> tuple[Ints, PairData]:
    """Row numbers (n,) of about ``n_items`` items, increasing, and the answers among them, about the items as numbered there.

    Answers are drawn first, as many as items allow, and then further items: both ends of an answer are needed to learn from it.
    The features of the data returned are as they were: it is for who calls to take those of the rows.
    """
    if data.n_items <= n_items:
        return np.arange(data.n_items), data
    few = drawn_answers(data, n_items // 2, seed)
    rows = np.unique(np.concatenate([few.i, few.j]))
    rest = np.setdiff1d(drawn_rows(data.n_items, n_items, seed), rows)
    rows = np.union1d(rows, np.random.default_rng(seed).permutation(rest)[: n_items - len(rows)])
    return rows, renumbered(data, rows)[0]


def renumbered(data: PairData, rows: Ints) -> tuple[PairData, Bools]:
    """The answers among the items ``rows`` (n,), increasing, whose numbers become places in ``rows``, and which of the M they are, (M,).

    Other fields are as they were.
    """
    place = np.full(data.n_items, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    i, j = place[data.i], place[data.j]
    kept = (i >= 0) & (j >= 0)
    return replace(data.subset(kept), i=i[kept], j=j[kept]), kept
