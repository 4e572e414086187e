"""How pairs came to be asked about: drawn at random, or suggested because of what earlier answers said."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pdcc.arrays import Bools, as_array, first_row
from pdcc.data.words import text_of
from pdcc.errors import PairDataError

RANDOM, SUGGESTED = "random", "suggested"


def check_chosen_by(chosen_by: ArrayLike, n_pairs: int) -> Bools:
    """Whether each of the pairs was drawn at random, (M,), from the words "random" and "suggested"; nothing at all means random, too."""
    words = as_array("chosen_by", chosen_by)
    if words.shape != (n_pairs,):
        raise PairDataError(
            "chosen_by", f"a word for each of the {n_pairs} pairs", f"shape {words.shape}", "Pass one of shape (M,)."
        )
    known = np.array([is_known(word) for word in words.tolist()], dtype=bool)
    if not known.all():
        row = first_row(~known)
        raise PairDataError(
            "chosen_by",
            f"{RANDOM!r} or {SUGGESTED!r}",
            f"{words[row]!r:.60}",
            "Write one of them, or nothing for a pair that was drawn at random.",
            row,
        )
    return np.array([word_of(word) == RANDOM for word in words.tolist()], dtype=bool)


def is_known(word: Any) -> bool:
    """Whether this is one of the two words, or nothing."""
    return word_of(word) in (RANDOM, SUGGESTED)


def word_of(cell: Any) -> str:
    """The word of a cell. An empty one means what an answer without that column means: drawn at random."""
    return text_of(cell).lower() or RANDOM
