"""From a run or features, and what is shown of them, to a desk that hands out pairs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pdcc.arrays import Ints
from pdcc.asking.uniform import RandomPairs
from pdcc.data.io import read_features
from pdcc.errors import PairDataError
from pdcc.label.desk import Desk, answered_pairs
from pdcc.label.items import Items, as_cells, find_images, item_names, read_cells
from pdcc.label.queue import Queue
from pdcc.label.sources import NextPairs, SuggestedPairs
from pdcc.label.store import Store
from pdcc.storage.lock import claimed_file


@dataclass(frozen=True)
class Subject:
    """What pairs are of: a table or array of N rows, their ids, and what a fit knows of them already."""

    X: Any
    ids: Any
    id_column: str | None
    exclude: Ints | None = None
    source: NextPairs | None = None


def read_subject(data: Path, *, features: Path | None = None, id_column: str | None = None) -> Subject:
    """A run directory, the features of which may have moved to ``features``; or a file of features."""
    if not data.is_dir():
        if features is not None:
            raise PairDataError(
                "--features", "a run beside it", f"{data}", "It says where the features of a run are now."
            )
        X, ids = read_features(data, id_column=id_column)
        return Subject(X, ids, id_column)
    from pdcc.storage.model import read_description
    from pdcc.storage.run import features_of, read_data

    if id_column is not None:
        raise PairDataError("--id-column", "none beside a run", repr(id_column), "The run knows its own: leave it out.")
    fitted = read_data(data, features)
    path, id_column, _ = features_of(data, read_description(data))
    X, ids = read_features(features or path, id_column=id_column)
    source = SuggestedPairs(data, fitted.given())
    return Subject(X, ids, id_column, np.column_stack([fitted.i, fitted.j]), source)


def read_items(subject: Subject, *, items: Path | None = None, images: Path | None = None) -> Items:
    """What is shown of them: a table, images, or both; or the columns of the feature table itself."""
    names = item_names(subject.ids, subject.X.shape[0])
    cells = None if items is None else read_cells(items, names, subject.id_column)
    if items is None and images is None:
        if not isinstance(subject.X, pd.DataFrame):
            raise PairDataError(
                "items",
                "something to show of each item",
                "an array of numbers alone",
                "Pass --items TABLE, with a column item, or --images FOLDER.",
            )
        cells = as_cells(subject.X, "features")
    return Items(names, cells, images, None if images is None else find_images(images, names))


@contextmanager
def opened(subject: Subject, items: Items, store: Path, *, goal: int | None = None, overlap: int = 1) -> Iterator[Desk]:
    """A desk whose answers are in the file ``store``, which no other process serves meanwhile."""
    with claimed_file(store), Store(store) as answers:
        queue = Queue(
            len(items), subject.source, fallback=RandomPairs(len(items)), answered=answered_pairs(answers, items),
            exclude=subject.exclude, overlap=overlap,
        )  # fmt: skip
        try:
            yield Desk(answers, queue, items, goal=goal)
        finally:
            queue.close()
