"""Where answers stood: of each answer of a fit, the file that it came from and its row there."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from pdcc.arrays import Bools, Ints
from pdcc.data.reading import ReadAnswers

# What run.json calls them.
PLACES = "answer_places"


def places_of(file: Path, read: ReadAnswers, kept: Bools | None = None) -> list[dict[str, Any]]:
    """A file and the rows of those of its answers that a fit takes, in their order, as plain JSON: from each first row to the last one in a sequence, both included.

    A fit takes answers about two different items, with a weight above 0; ``kept``: which of these. Nothing of crowd-kit's labels: two of them are an answer.
    """
    if read.format == "crowdkit":
        return []
    taken: Bools = np.asarray(read.frame["i"].to_numpy() != read.frame["j"].to_numpy(), dtype=bool)
    if "weight" in read.frame:
        taken &= read.frame["weight"].to_numpy(dtype=np.float32) > 0
    rows: Ints = read.rows[taken]
    rows = rows if kept is None else rows[kept]
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
    return [{"file": str(file.resolve()), "rows": [[int(part[0]), int(part[-1])] for part in parts]}]


def rows_and_files(places: list[dict[str, Any]], n_answers: int) -> tuple[Ints, list[str]] | None:
    """The row of each of the answers, (M,), and its file, by as much of its path as tells it from the others; None where the places are not those of so many answers."""
    spans = [(place["file"], first, last) for place in places for first, last in place["rows"]]
    if not spans or sum(last - first + 1 for _, first, last in spans) != n_answers:
        return None
    rows = np.concatenate([np.arange(first, last + 1) for _, first, last in spans])
    shown = told_apart({file for file, _, _ in spans})
    return rows, [shown[file] for file, first, last in spans for _ in range(first, last + 1)]


def told_apart(files: Collection[str]) -> dict[str, str]:
    """For each path the shortest end of it that no other one has: of /a/c.csv, /b/c.csv and /b/d.csv these are a/c.csv, b/c.csv and d.csv."""
    parts = {file: Path(file).parts for file in files}
    ends = Counter(own[-n:] for own in parts.values() for n in range(1, len(own) + 1))
    lengths = {
        file: next((n for n in range(1, len(own)) if ends[own[-n:]] == 1), len(own)) for file, own in parts.items()
    }
    return {file: str(Path(*own[-lengths[file] :])) for file, own in parts.items()}
