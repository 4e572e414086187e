"""How pairs came to be asked about: drawn at random, or suggested because of what earlier answers said."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pdcc.arrays import Bools, as_array, first_row
from pdcc.errors import PairDataError

RANDOM, SUGGESTED = "random", "suggested"


def check_chosen_by(chosen_by: ArrayLike, n_pairs: int) -> Bools:
    """Whether each of the pairs was drawn at random, (M,), from the words "random" and "suggested"."""
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
            "Say of every pair how it was chosen, or of none.",
            row,
        )
    return np.array([str(word).strip().lower() == RANDOM for word in words.tolist()], dtype=bool)


def is_known(word: Any) -> bool:
    """Whether this is one of the two words."""
    return str(word).strip().lower() in (RANDOM, SUGGESTED)
