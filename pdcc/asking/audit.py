"""Which answers are wrong? Each judged by fits and answers other than itself."""

from typing import Any

import numpy as np
import pandas as pd

from pdcc.asking.crossfit import CrossFit, cross_fit
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted


def audit_answers(
    fitted: Fitted, data: PairData, *, random_state: int = 0, progress: bool = False, found: CrossFit | None = None
) -> pd.DataFrame:
    """One row per answer, in their order: i, j, similar, annotator (where known), expected, same, wrong, cluster_i, cluster_j, reason.

    expected: P(called similar), same: P(of one class), wrong: P(the answer is wrong), all by fits that did not see the answer and by the
    other answers about its items; nan for an answer of one half, which says neither. cluster_i, cluster_j: where they believe the items to be. ``found``: what ``cross_fit`` returned for the same fit and answers.
    """
    found = cross_fit(fitted, data, seed=random_state, progress=progress) if found is None else found
    same = (found.left * found.right).sum(axis=1)
    # P(of one class, and answered so), of all answered so.
    so = np.where(data.similar, found.together, same - found.together)
    every = np.where(data.similar, found.expected, 1 - found.expected)
    together = np.clip(so / np.maximum(every, 1e-300), 0.0, 1.0)
    names = np.arange(data.n_items) if data.item_ids is None else data.item_ids
    columns: dict[str, Any] = {"i": names[data.i], "j": names[data.j], "similar": data.similar}
    if data.annotator is not None:
        columns["annotator"] = np.array(data.annotator_names, dtype=object)[data.annotator]
    columns |= {"expected": found.expected, "same": same, "wrong": np.where(data.similar, 1 - together, together)}
    sides = np.nan_to_num(found.left), np.nan_to_num(found.right)
    columns |= {"cluster_i": sides[0].argmax(axis=1), "cluster_j": sides[1].argmax(axis=1)}
    return pd.DataFrame(columns | {"reason": _reasons(found, data)})


def _reasons(found: CrossFit, data: PairData) -> list[str]:
    """In words: what is believed of the two items."""
    parts = np.nan_to_num(found.left), np.nan_to_num(found.right)
    sides = [(part.argmax(axis=1).tolist(), part.max(axis=1).tolist()) for part in parts]
    said = np.where(data.similar, "similar", "different").tolist()
    words = []
    for a, p, b, q, word in zip(*sides[0], *sides[1], said, strict=True):
        where = (
            f"both in cluster {a} ({p:.0%} and {q:.0%})" if a == b else f"in clusters {a} ({p:.0%}) and {b} ({q:.0%})"
        )
        words.append(f"said {word}; believed to be {where}" if p else "says neither similar nor different")
    return words
