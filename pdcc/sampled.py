"""A fit and a part of what it was fitted to: what is looked at where all items and answers would not fit in memory, and how much that is."""

import copy
import logging
import math
from dataclasses import dataclass, replace

import numpy as np

from pdcc.arrays import Ints
from pdcc.data.pairs import PairData
from pdcc.data.sampling import among, renumbered
from pdcc.data.splits import Split
from pdcc.fitted import Fitted
from pdcc.rows import FeatureRows, drawn_rows

logger = logging.getLogger(__name__)

# Up to so many items and answers, in features that fit in memory, all of them are looked at.
ALL_ITEMS, ALL_ANSWERS = 100_000, 200_000
# Items that have many columns are fewer: a gigabyte in float32, but for these few.
MOST_NUMBERS, FEWEST_ITEMS = 2**28, 1000
# Fits to a part of the answers make about as many steps as the fit did, but no more than so many epochs.
MOST_EPOCHS = 20


@dataclass(frozen=True)
class Sample:
    """How many of the items and of the answers were looked at, drawn at random."""

    n_items: int
    of_items: int
    n_answers: int
    of_answers: int

    def __str__(self) -> str:
        return f"a random sample of {self.n_items:,} of {self.of_items:,} items and the {self.n_answers:,} of {self.of_answers:,} answers among them"


def sampled(
    fitted: Fitted, data: PairData, n_items: int, seed: int, also: Ints | None = None
) -> tuple[Fitted, PairData, Sample | None]:
    """The fit and the data it was fitted to, as they are; or, where these are large, about ``n_items`` of the items, in memory, and the answers among them.

    The items ``also`` (n,) are among them. The fit returned is the same program with the parts that are about single items or answers cut to the
    sample; fits to parts of these answers know less than it does.
    """
    small = data.n_items <= ALL_ITEMS and len(data) <= ALL_ANSWERS and not isinstance(data.features, FeatureRows)
    if small:
        return fitted, data, None
    n_items = min(n_items, max(FEWEST_ITEMS, MOST_NUMBERS // math.prod(data.features.shape[1:])))
    if data.n_items <= n_items and len(data) <= ALL_ANSWERS:
        return fitted, replace(data, features=data.features[:]), None
    drawn = np.ones(len(data), dtype=bool)
    if len(data) > ALL_ANSWERS:
        drawn = np.isin(np.arange(len(data)), drawn_rows(len(data), ALL_ANSWERS, seed))
    few = data.subset(drawn)
    rows = among(few, n_items, seed)[0]
    rows = rows if also is None else np.union1d(rows, also)
    part, kept = renumbered(few, rows)
    names = rows if data.item_ids is None else data.item_ids[rows]
    part = replace(part, features=data.features[rows], item_ids=names)
    model = fitted.model
    if len(model.partition):
        model = copy.deepcopy(model)
        model.partition = model.partition[rows]
    split = Split(fitted.split.held[drawn][kept], fitted.split.by)
    epochs = fitted.report.epochs
    longer = min(math.ceil(epochs * len(data) / max(1, len(part))), MOST_EPOCHS)
    report = replace(fitted.report, epochs=max(epochs, longer))
    found = Sample(len(rows), data.n_items, len(part), len(data))
    logger.info("Looks at %s.", found)
    return replace(fitted, model=model, split=split, answers=part.fingerprint(), report=report), part, found
