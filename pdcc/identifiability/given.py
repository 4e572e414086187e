"""What somebody to trust says, as people and files give it: classes of items, or answers about pairs."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pdcc.accuracy.trusted import Trusted, read_trusted
from pdcc.accuracy.trusted_pairs import TrustedPairs, read_trusted_pairs
from pdcc.data.reading import begun
from pdcc.data.words import Scale, counted, meanings, text_of
from pdcc.errors import PairDataError

logger = logging.getLogger(__name__)

Given = Mapping[Any, Any] | pd.DataFrame | pd.Series


def with_items(given: Any, own: Any) -> Any:
    """The same, and of a table whose items are in a column called ``own``, as in the features, that column called item."""
    if own is None or not isinstance(given, pd.DataFrame) or {"item", "i", "j"} & set(given.columns):
        return given
    return given.rename(columns={own: "item"})


def read_given(given: Given, names: Sequence[Any]) -> Trusted | TrustedPairs:
    """Classes of items called ``names`` (N,), or answers about pairs of them where a table has such columns."""
    columns = set(given.columns) if isinstance(given, pd.DataFrame) else set()
    if isinstance(given, pd.DataFrame) and {"i", "j", "similar"} & columns and not {"item", "label", "class"} & columns:
        return _pairs(given, names)
    return read_trusted(given, names)


def _pairs(given: pd.DataFrame, names: Sequence[Any]) -> TrustedPairs:
    """Pairs whose answers are read as all answers are; those without an opinion are left out."""
    if "similar" not in given.columns:
        return read_trusted_pairs(given, names)  # says what is missing
    texts = [text_of(cell) for cell in given["similar"].tolist()]
    said = meanings(texts, Scale.PLAIN, comma=False)
    for row, text in enumerate(texts):
        if said[text].trouble is not None:
            words = "words for an answer in the column similar, such as same and different, or 0 and 1, or -1 and 1"
            found = f"{text!r:.60}, {said[text].trouble}"
            raise PairDataError("trusted", words, found, "Write same, different or unsure.", row)
    for note in begun(texts, said):
        logger.info("trusted: %s", note)
    read = read_trusted_pairs(given.assign(similar=[said[text].degree == 1 for text in texts]), names)
    known = np.array([not said[text].unsure for text in texts])
    if not known.all():
        without = counted(text for text in texts if said[text].unsure)
        logger.warning("trusted: left out %d of %d pairs, without an opinion: %s.", (~known).sum(), len(known), without)
    return TrustedPairs(read.i[known], read.j[known], read.similar[known], read.probability[known])
