"""Choosing the volume, the dropout and the number of clusters from the answers alone.

Each value is fitted to part of the answers and judged by the rest: whole annotators where ten or more are known (one annotator's
answers give each other away), else answers that touch items kept out of training, and single ones. No label is looked at.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from tqdm.auto import tqdm

from pdcc.arrays import Features, Float64, Ints, RandomState
from pdcc.data.answers import PairAnswers
from pdcc.data.degrees import nats
from pdcc.data.pairs import PairData
from pdcc.data.reading import ReadAnswers
from pdcc.data.splits import FEWEST_ANNOTATORS, HeldOut, split
from pdcc.select.count import Selection, choose_n_clusters
from pdcc.select.rule import Evidence, Rows, choose_simplest
from pdcc.select.search import Preparation
from pdcc.validation import check_count, check_number, seed_of, show_progress

logger = logging.getLogger(__name__)

VOLUMES = (0.0, 1e-3, 1e-2, 3e-2, 1e-1)
DROPOUTS = (0.0, 0.25, 0.5, 0.75)
HELD_OUT = 0.2
# Restarts of a value may agree less than those of the steadiest one by this adjusted Rand index.
UNSTEADY = 0.05


class PairEstimator(Protocol):
    """What is fitted for every value compared: an unfitted VolMaxDCC, say."""

    labels_: Ints

    def get_params(self) -> dict[str, Any]: ...

    def set_params(self, **params: Any) -> Self: ...

    def prepare(self, data: PairData) -> Preparation: ...

    def fit_data(self, data: PairData, *, prepared: Preparation | None = None) -> Self: ...

    def predict_pairs(self, X: Features, pairs: ArrayLike, annotators: ArrayLike | None = None) -> Float64: ...


def select_volume(
    X: Features,
    pairs: ArrayLike | PairAnswers | ReadAnswers,
    similar: ArrayLike | None = None,
    annotators: ArrayLike | None = None,
    *,
    estimator: PairEstimator,
    volumes: Sequence[float] = VOLUMES,
    n_restarts: int = 2,
    random_state: RandomState = 0,
    progress: bool | None = None,
) -> Selection:
    """The largest volume whose held-out likelihood is within one standard error of the best, and whose restarts agree.

    Likelihood cannot see what the volume is for, to pick among states that fit equally well (theorem 4.1); so the largest that
    costs nothing is taken. ``estimator``: an unfitted VolMaxDCC that says everything else; its ``confusion`` may be "auto".

    Examples:
        >>> import numpy as np
        >>> from pdcc import VolMaxDCC, select_volume
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> small = VolMaxDCC(3, confusion="stochastic", hidden=(8,), scale="standard", init="kmeans", epochs=2)
        >>> found = select_volume(X, pairs, similar, estimator=small, volumes=(0.0, 0.01), n_restarts=1)
        >>> found.value in (0.0, 0.01), len(found.table)
        (True, 2)
    """
    for volume in volumes:
        check_number("volumes", volume, 0.0)
    order = sorted(float(v) for v in volumes)
    found = _compare(X, pairs, similar, annotators, estimator, "volume", order, n_restarts, random_state, progress)
    return _judge(found, "volume", largest=True, words="the largest volume")


def select_dropout(
    X: Features,
    pairs: ArrayLike | PairAnswers | ReadAnswers,
    similar: ArrayLike | None = None,
    annotators: ArrayLike | None = None,
    *,
    estimator: PairEstimator,
    dropouts: Sequence[float] = DROPOUTS,
    n_restarts: int = 2,
    random_state: RandomState = 0,
    progress: bool | None = None,
) -> Selection:
    """The most dropout whose held-out likelihood is within one standard error of the best, and whose restarts agree.

    Examples:
        >>> import numpy as np
        >>> from pdcc import VolMaxDCC, select_dropout
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> small = VolMaxDCC(3, confusion="stochastic", hidden=(8,), scale="standard", init="kmeans", epochs=2)
        >>> found = select_dropout(X, pairs, similar, estimator=small, dropouts=(0.0, 0.5), n_restarts=1)
        >>> found.value in (0.0, 0.5), found.held_out
        (True, 'items and pairs')
    """
    for dropout in dropouts:
        check_number("dropouts", dropout, 0.0, 1.0)
    order = sorted(float(p) for p in dropouts)
    found = _compare(X, pairs, similar, annotators, estimator, "dropout", order, n_restarts, random_state, progress)
    return _judge(found, "dropout", largest=True, words="the most dropout")


def select_n_clusters(
    X: Features,
    pairs: ArrayLike | PairAnswers | ReadAnswers,
    similar: ArrayLike | None = None,
    annotators: ArrayLike | None = None,
    *,
    estimator: PairEstimator | None = None,
    candidates: Sequence[int] | None = None,
    n_restarts: int = 2,
    random_state: RandomState = 0,
    progress: bool | None = None,
) -> Selection:
    """The smallest number of clusters whose held-out likelihood is within one standard error of the best.

    Without an ``estimator``, cuts of trees are compared (every number to 20, and some up to half of the items, or
    ``candidates``), and nothing is trained. With one, it is fitted ``n_restarts`` times for each of ``candidates`` (2 to 10), and restarts must agree too.

    Examples:
        >>> import numpy as np
        >>> from pdcc import select_n_clusters
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> select_n_clusters(X, pairs, similar, candidates=(2, 3, 4)).value
        3
    """
    for k in candidates or ():
        check_count("candidates", k, 2)
    if estimator is None:
        data = PairData.from_arrays(X, pairs, similar, annotators)
        return choose_n_clusters(data, candidates, seed=seed_of(random_state))
    order = sorted(int(k) for k in candidates or range(2, 11))
    found = _compare(X, pairs, similar, annotators, estimator, "n_clusters", order, n_restarts, random_state, progress)
    return _judge(found, "n_clusters", largest=False, words="the fewest clusters")


@dataclass(frozen=True)
class _Compared:
    """For each value: nats of every held-out answer (V, H) and stability (V,); the held-out answers."""

    values: list[Any]
    nll: list[Float64]
    stability: Float64
    test: PairData
    held_out: str


def _compare(
    X: Features, pairs: ArrayLike | PairAnswers | ReadAnswers, similar: ArrayLike | None, annotators: ArrayLike | None, estimator: PairEstimator,
    parameter: str, values: list[Any], n_restarts: int, random_state: RandomState, progress: bool | None,
) -> _Compared:  # fmt: skip
    data = PairData.from_arrays(X, pairs, similar, annotators)
    check_count("n_restarts", n_restarts)
    if not hasattr(estimator, "get_params") or parameter not in estimator.get_params():
        raise ValueError(
            f"estimator: expected a VolMaxDCC, whose {parameter} can be chosen, found {type(estimator).__name__}. "
            "Pass a VolMaxDCC."
        )
    if len(values) < 2:
        raise ValueError(f"{parameter}: expected at least two values to compare, found {values}. Pass more.")
    seed = seed_of(random_state)
    by = HeldOut.ANNOTATORS if data.n_annotators >= FEWEST_ANNOTATORS else HeldOut.ITEMS
    found = split(data, HELD_OUT, seed, by=by)
    train, test = found.train(data), found.test(data)
    if test is None or len(np.unique(train.similar)) < 2:
        raise ValueError(
            f"pairs: expected enough answers of both kinds to hold a fifth out, found {len(data)}. "
            f"Ask more pairs, or set {parameter} yourself."
        )
    names = np.array(data.annotator_names, dtype=object)
    fit_names, test_names = (None if d.annotator is None else names[d.annotator] for d in (train, test))
    fit_pairs, test_pairs = (np.column_stack([d.i, d.j]) for d in (train, test))
    degrees = train.similar if train.soft is None else train.soft
    soft = train.soft is not None
    shown = PairData.from_arrays(data.features, fit_pairs, degrees, fit_names, train.weight, soft)
    nll, stability = [], []
    starts: dict[int, Preparation] = {}  # a restart begins at the same partition whatever the value, except of K
    total = len(values) * n_restarts
    with tqdm(total=total, desc=f"select {parameter}", disable=not show_progress(progress), leave=False) as bar:
        for value in values:
            scores, labels = [], []
            for restart in range(n_restarts):
                est = clone(estimator).set_params(
                    **{parameter: value, "random_state": seed + restart, "progress": False}
                )
                if restart not in starts or parameter == "n_clusters":
                    starts[restart] = est.prepare(shown)
                est.fit_data(shown, prepared=starts[restart])
                p = est.predict_pairs(data.features, test_pairs, test_names).clip(1e-6, 1 - 1e-6)
                scores.append(nats(p, test))
                labels.append(est.labels_)
                bar.update(1)
            nll.append(np.mean(scores, axis=0))
            agree = [adjusted_rand_score(a, b) for a, b in combinations(labels, 2)]
            stability.append(float(np.mean(agree)) if agree else np.nan)
    how = "annotators" if by is HeldOut.ANNOTATORS else "items and pairs"
    return _Compared(values, nll, np.array(stability), test, how)


def _judge(found: _Compared, parameter: str, *, largest: bool, words: str) -> Selection:
    """The rule for settings of one partition (``choose_simplest``), among values whose restarts agree."""
    order = np.argsort([-v if largest else v for v in found.values])
    steadiest = np.nanmax(found.stability) if np.isfinite(found.stability).any() else np.nan
    close = {row["setting"] for row in _table(found, order) if row["near"]}
    if np.isfinite(found.stability).any():
        steadiest = np.nanmax([s for v, s in zip(found.values, found.stability, strict=True) if f"{v:g}" in close])
    steady = ~(found.stability < steadiest - UNSTEADY)
    kept = [k for k in order if steady[k] or f"{found.values[k]:g}" not in close]
    rows = {row["setting"]: row for row in _table(found, order)}
    eligible = [k for k in kept if rows[f"{found.values[k]:g}"]["near"]]
    value = found.values[eligible[0]]
    each = [rows[f"{v:g}"] for v in found.values]
    table = pd.DataFrame(
        {
            parameter: found.values,
            "held_out_nll": [row["nll"] for row in each],
            "behind_best": [row["behind_best"] for row in each],
            "standard_error": [row["standard_error"] for row in each],
            "stability": found.stability,
            "eligible": [k in eligible for k in range(len(found.values))],
            "chosen": [v == value for v in found.values],
        }
    )
    own = rows[f"{value:g}"]
    standing = "the best"
    if own["behind_best"] > 0:
        leader = min(each, key=lambda row: float(row["nll"]))["setting"]
        standing = (
            f"{own['behind_best']:.4f} nats per answer behind the best ({leader}), "
            f"standard error {own['standard_error']:.4f}"
        )
    agreeing = " and whose restarts agree" if np.isfinite(found.stability).any() else ""
    reason = (
        f"Chose {parameter} {value:g} ({standing}): {words} of {len(eligible)} among {len(table)} that predict "
        f"held-out {found.held_out} as well{agreeing}."
    )
    if own["behind_best"] == 0 and value == found.values[-1]:
        reason += " It is the largest that was compared: try larger ones too."
    logger.info(reason)
    return Selection(parameter, value, reason, table, found.held_out)


def _table(found: _Compared, order: Ints) -> Rows:
    """What was compared, simplest first."""
    evidence = [Evidence(f"{found.values[k]:g}", found.nll[k], 0.0, 0.0) for k in order]
    return choose_simplest(evidence, found.test).table
