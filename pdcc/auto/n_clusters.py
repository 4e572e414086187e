"""How many clusters, from answers and features alone and at the cost of some K-means runs: nothing is trained.

K-means makes more parts than there can be clusters; for every K, the answers of all folds but one group the parts into K clusters,
and the answers of that fold judge them. Fewer clusters than there are put items together that are called different; more
of them take apart what is called similar, which costs little. So the fewest that predict as well as the best are taken.
"""

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from pdcc.arrays import Float64, Ints
from pdcc.auto.calibration import CLEARLY, COUNT_FOLDS, LARGEST_K, PARTS, WIDE
from pdcc.auto.initialise import Partitioner, grouped
from pdcc.auto.large import as_rows, some_answers
from pdcc.auto.rules import Selection, choose, within_reach
from pdcc.auto.signals import answer_counts, constant_nll, two_rate_nll
from pdcc.baselines.kmeans import kmeans
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler
from pdcc.data.splits import folds as folds_of
from pdcc.errors import PairDataError
from pdcc.inference.rows import scaled_items

logger = logging.getLogger(__name__)

GROUPINGS = 5


def candidates_for(n_items: int) -> tuple[int, ...]:
    """2, 3, ... up to ``LARGEST_K``, but with ``PARTS`` items and more per part."""
    return tuple(range(2, max(3, min(LARGEST_K, n_items // PARTS**2) + 1)))


def choose_n_clusters(
    data: PairData, candidates: Sequence[int] | None = None, *, scale: str | None = "auto", seed: int = 0
) -> Selection:
    """The fewest of ``candidates`` clusters that predict answers within one standard error of the best."""
    values = sorted(candidates_for(data.n_items) if candidates is None else candidates)
    wide = data.features[0].size >= WIDE
    kinds = (("standard", "unit") if wide else ("standard",)) if scale == "auto" else (scale,)
    folds = folds_of(some_answers(data, seed), COUNT_FOLDS, seed)
    if not folds:
        raise PairDataError(
            "pairs",
            f"answers about at least {COUNT_FOLDS} pairs to count clusters by",
            "fewer",
            "Ask more pairs, or give n_clusters.",
        )
    found = []
    for kind in kinds:
        x = scaled_items(data.features, Scaler.fit(data.features, kind), torch.device("cpu"))
        way = Partitioner(as_rows(x), max(values), seed)
        found.append(_scores(way, values, folds))
    nll = min(found, key=lambda scores: min(float(s.mean()) for s in scores))
    choice = choose([str(k) for k in values], nll)
    value = values[choice.index]
    table = pd.DataFrame(
        {
            "n_clusters": values,
            "held_out_nll": [row["nll"] for row in choice.table],
            "behind_best": [row["behind_best"] for row in choice.table],
            "standard_error": [row["standard_error"] for row in choice.table],
            "eligible": [row["behind_best"] <= row["standard_error"] for row in choice.table],
            "chosen": [k == value for k in values],
        }
    )
    able = table.loc[table["eligible"], "n_clusters"]
    reason = f"Chose {value} clusters, the fewest that predict held-out answers within one standard error of the best ({able.min()} to {able.max()} do)."
    if able.max() > 2 * value:
        reason += " So these answers hardly tell how many there are: try several, and compare what held-out answers make of each."
    if value == values[-1]:
        reason += " It is the largest that was compared: try larger ones too."
    if within_reach([nll[choice.index], np.concatenate([constant_nll(*fold) for fold in folds])], CLEARLY)[1]:
        reason += " But this grouping by K-means does not predict answers clearly better than one rate for all pairs, so this number means little: give n_clusters, or compare trained fits (select_n_clusters with estimator=...)."
        logger.warning(reason)
    else:
        logger.info(reason)
    return Selection("n_clusters", value, reason, table, "pairs")


def _scores(way: Partitioner, values: Sequence[int], folds: list[tuple[PairData, PairData]]) -> list[Float64]:
    """Nats of every answer, cross-validated, for each number of clusters."""
    nll: dict[int, list[Float64]] = {value: [] for value in values}
    for train, test in folds:
        parts, places = way.parts(train)
        counts = answer_counts(parts, len(places), train)
        rng = np.random.default_rng(way.seed)
        groups: Ints | None = None
        for value in sorted(values, reverse=True):
            starts = [kmeans(places, value, tries=1, seed=way.seed + t) for t in range(GROUPINGS)]
            if groups is not None:
                starts.append(_merged(counts, groups, value))
            groups = grouped(counts, starts, value, rng)
            nll[value].append(two_rate_nll(groups[parts], train, test))
    return [np.concatenate(nll[value]) for value in values]


def _merged(counts: Float64, groups: Ints, n_groups: int) -> Ints:
    """Fewer groups: again and again the two are joined that are called similar most often, for a pair of them."""
    while groups.max() + 1 > n_groups:
        member = np.eye(groups.max() + 1)[groups]
        similar, different = (member.T @ c @ member for c in counts)
        rate = np.triu((similar + 0.5) / (similar + different + 1.0), 1)
        a, b = np.unravel_index(rate.argmax(), rate.shape)
        groups = np.unique(np.where(groups == b, a, groups), return_inverse=True)[1].astype(np.int64)
    return groups
