"""How many clusters, from answers and features: nothing is trained.

Ward's trees give partitions into every number of clusters at once, by features alone and in directions that answers
point out. Too few clusters put items together that are called different. Too many take apart what is called similar,
which costs little: of those that predict left-out answers as well as any, the fewest are taken.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import cut_tree, ward

from pdcc.arrays import Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.data.sampling import among
from pdcc.data.scaling import Scaler
from pdcc.errors import PairDataError
from pdcc.exclusive import one_core
from pdcc.metrics import align
from pdcc.notebook import as_paragraphs, as_table
from pdcc.select import numbers
from pdcc.select.blockmodel import Ends, left_out_nll
from pdcc.select.rule import Evidence, choose_simplest
from pdcc.select.search import scalings
from pdcc.select.starts import Partitioner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The chosen value, the sentence that says why, and what was compared.

    table: one row per value: held_out_nll (nats per answer), behind_best, standard_error, stability (mean adjusted Rand
    index between restarts, where there are any), eligible, chosen. held_out: what the answers were left out by.

    Examples:
        >>> import numpy as np
        >>> from pdcc import select_n_clusters
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> found = select_n_clusters(X, pairs, pairs[:, 0] // 20 == pairs[:, 1] // 20, candidates=(2, 3, 4))
        >>> found.parameter, found.value, found.table["chosen"].tolist()
        ('n_clusters', 3, [False, True, False])
    """

    parameter: str
    value: Any
    reason: str
    table: pd.DataFrame
    held_out: str

    def _repr_html_(self) -> str:
        """The reason and the table, for notebooks."""
        return as_paragraphs(self.reason) + as_table(self.table)


def candidates_for(n_items: int) -> tuple[int, ...]:
    """2, 3, ..., ``EVERY_K``, and from there on by steps of a fifth up to half of the items."""
    found = list(range(2, min(numbers.EVERY_K, n_items // 2) + 1)) or [2]
    while (larger := round(found[-1] * numbers.STEP_OF_K)) <= n_items // 2 and found[-1] >= numbers.EVERY_K:
        found.append(larger)
    return tuple(found)


def choose_n_clusters(
    data: PairData, candidates: Sequence[int] | None = None, *, scale: str | None = "auto", seed: int = 0
) -> Selection:
    """The fewest of ``candidates`` clusters that predict answers within one standard error of the best."""
    rows, answers = among(data, numbers.GRAPH_ITEMS, seed)
    answers = replace(answers, features=data.features[rows], item_ids=None)
    values = sorted(candidates_for(len(rows)) if candidates is None else candidates)
    values = [k for k in values if k <= len(rows)]
    fold_of = np.random.default_rng(seed).permutation(np.arange(len(rows)) % numbers.FOLDS)
    parts = [answers.subset((fold_of[answers.i] != f) & (fold_of[answers.j] != f)) for f in range(numbers.FOLDS)]
    if any(len(np.unique(part.similar)) < 2 for part in parts):
        raise PairDataError(
            "pairs", "enough answers of both kinds to count clusters by", f"{len(data)}", "Ask more pairs, or give n_clusters."
        )  # fmt: skip
    found: dict[int, Evidence] = {}
    for kind in scalings(np.asarray(answers.features), scale):
        X = Scaler.fit(answers.features, kind, numbers.LEADING)(np.asarray(answers.features))
        way = Partitioner(X, min(max(values), numbers.EVERY_K), seed)
        for k, evidence in _judged(way, values, answers, parts, fold_of):
            if k not in found or evidence.nll.mean() < found[k].nll.mean():
                found[k] = evidence
    choice = choose_simplest([found[k] for k in values], answers)
    value = values[choice.index]
    table = pd.DataFrame(
        {
            "n_clusters": values,
            "held_out_nll": [row["nll"] for row in choice.table],
            "behind_best": [row["behind_best"] for row in choice.table],
            "standard_error": [row["standard_error"] for row in choice.table],
            "eligible": [row["near"] for row in choice.table],
            "chosen": [k == value for k in values],
        }
    )
    able = table.loc[table["eligible"], "n_clusters"]
    reason = (
        f"Chose {value} clusters, the fewest that predict left-out answers within one standard error of the best "
        f"({able.min()} to {able.max()} do)."
    )
    if able.max() > 2 * value:
        reason += " So these answers hardly tell how many there are: try several, and compare their held-out answers."
    if value == values[-1]:
        reason += " It is the largest that was compared: try larger ones too."
    logger.info(reason)
    return Selection("n_clusters", value, reason, table, "pairs")


def _judged(
    way: Partitioner, values: Sequence[int], answers: PairData, parts: Sequence[PairData], fold_of: Ints
) -> list[tuple[int, Evidence]]:
    """Every number of clusters, by features alone, and up to ``EVERY_K`` also as answers guide them."""
    with one_core():
        plain = _cuts(way.components, values)
        some = [k for k in values if k <= numbers.EVERY_K]
        guided = [_cuts(way.embed(part), some) for part in parts]
    found = [(k, plain[k]) for k in values]
    for k in some:
        first = np.eye(k)[guided[0][k]]
        each = [np.argsort(align(first, np.eye(k)[cuts[k]]))[cuts[k]] for cuts in guided]
        found.append((k, np.stack(each)[fold_of, np.arange(len(fold_of))]))
    out = []
    for k, labels in found:
        ends = Ends.of_labels(labels[answers.i], labels[answers.j], k)
        out.append((k, Evidence(f"{k} clusters", left_out_nll(ends, answers), 0.0, 0.0)))
    return out


def _cuts(Z: Float64, values: Sequence[int]) -> dict[int, Ints]:
    """Labels (N,) of Ward's tree of items at Z (N, p), cut into each number of clusters."""
    if not values:
        return {}
    cuts = cut_tree(ward(Z), n_clusters=list(values))
    return {k: np.asarray(cuts[:, c], dtype=np.int64) for c, k in enumerate(values)}
