"""What a machine is called among annotators: "family:name", or the family alone for those who answered little."""

from collections import Counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdcc.errors import PairDataError
from pdcc.validation import check_count

# Stands between a family and a name.
JOINED = ":"


def annotator_id(name: str, family: str | None = None) -> str:
    """The annotator id of a machine: its name, after that of its family where it has one."""
    for argument, text in (("annotator", name), ("family", family)):
        odd = text is not None and (not isinstance(text, str) or not text.strip())
        if odd or (argument == "family" and text is not None and JOINED in text):
            fix = f"Pass a name, without {JOINED!r} in a family." if argument == "family" else "Pass a name."
            raise PairDataError(argument, "a name that is not empty", repr(text), fix)
    return name if family is None else f"{family}{JOINED}{name}"


def share_families(annotators: ArrayLike, *, fewest: int) -> NDArray[np.object_]:
    """Annotator ids (M,) in which "family:name" with fewer than ``fewest`` answers is "family": those share one confusion.

    Ids without a family, such as people's names, stay as they are.

    Examples:
        >>> from pdcc.oracles import share_families
        >>> share_families(["llm:a", "llm:a", "llm:b", "llm:c", "ann"], fewest=2).tolist()
        ['llm:a', 'llm:a', 'llm', 'llm', 'ann']
    """
    check_count("fewest", fewest)
    names = np.asarray(annotators, dtype=object)
    if names.ndim != 1:
        raise PairDataError(
            "annotators", "one for each answer, (M,)", f"shape {names.shape}", "Pass one id per answer."
        )
    counts = Counter(names.tolist())
    shared = [
        name.split(JOINED, 1)[0] if isinstance(name, str) and JOINED in name and counts[name] < fewest else name
        for name in names.tolist()
    ]
    out = np.empty(len(shared), dtype=object)
    out[:] = shared
    return out
