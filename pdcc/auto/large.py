"""What starts need of many items and answers: rows and blocks of scaled items, components by a sample, parts of the answers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA

from pdcc.arrays import Float32, Float64, Floats, Ints
from pdcc.auto.calibration import CONSTRAINED_ITEMS, START_ANSWERS
from pdcc.baselines.kmeans import squared_distances
from pdcc.baselines.pck_means import pck_means
from pdcc.data.pairs import PairData
from pdcc.data.sampling import among, drawn_answers
from pdcc.exclusive import one_core
from pdcc.inference.rows import Items, RowSource
from pdcc.rows import ROWS_AT_ONCE, blocks_of, drawn_rows, sample_size

# Pairs whose products are summed at once.
PAIRS_AT_ONCE = 2**18

# Scaled items (N, p) in memory, or what reads them.
Scaled = Float32 | RowSource


def as_rows(x: Items) -> Scaled:
    """Items as a start takes them: rows (N, p), or what reads them."""
    return x if isinstance(x, RowSource) else np.asarray(x.flatten(1).cpu().numpy())


def as_items(X: Scaled, item_shape: tuple[int, ...]) -> Items:
    """The reverse, for items of this shape."""
    return X if isinstance(X, RowSource) else torch.as_tensor(X.reshape(-1, *item_shape))


def enough(X: Scaled | Items) -> int:
    """How many items, drawn at random, stand for all where these are more."""
    return sample_size(tuple(X.shape), in_memory=not isinstance(X, RowSource))


def few(x: Items, seed: int) -> Float32:
    """All items as rows (n, p), or a sample of them where they are many."""
    n = enough(x)
    return take(as_rows(x), np.arange(len(x)) if len(x) <= n else drawn_rows(len(x), n, seed))


def take(X: Scaled, rows: Ints) -> Float32:
    """The items numbered ``rows`` (n,), as rows (n, p)."""
    if isinstance(X, RowSource):
        return np.asarray(X[torch.as_tensor(rows)].flatten(1).cpu().numpy())
    return X[rows]


def blocks(X: Scaled) -> Iterator[Float32]:
    """All items as rows, some at a time."""
    if isinstance(X, RowSource):
        yield from (part.flatten(1).cpu().numpy() for part in X.split(ROWS_AT_ONCE))
    else:
        yield from blocks_of(X)


def some_answers(pairs: PairData, seed: int) -> PairData:
    """The answers, or ``START_ANSWERS`` of them, drawn at random."""
    return drawn_answers(pairs, START_ANSWERS, seed)


def components(X: Scaled, most: int, seed: int) -> Floats:
    """The ``most`` leading principal components (N, p): in float64, and exact, or by a sample of the items and in float32 where these are many."""
    n = enough(X)
    with one_core(), np.errstate(invalid="ignore"):  # shares of the variance of constant features
        pca = PCA(most, random_state=seed)
        if len(X) <= n:
            return np.asarray(pca.fit_transform(take(X, np.arange(len(X))).astype(np.float64)))
        pca.fit(take(X, drawn_rows(len(X), n, seed)).astype(np.float64))
        found = np.empty((len(X), most), dtype=np.float32)
        begin = 0
        for part in blocks(X):
            found[begin : begin + len(part)] = pca.transform(part.astype(np.float64))
            begin += len(part)
    return found


def cross_moment(Z: Floats, pairs: PairData, weight: Float64) -> Float64:
    """sum over pairs of weight (M,) times z_i z_j', (p, p), for items at Z (N, p)."""
    total = np.zeros((Z.shape[1], Z.shape[1]))
    for begin in range(0, len(pairs), PAIRS_AT_ONCE):
        some = slice(begin, begin + PAIRS_AT_ONCE)
        total += (Z[pairs.i[some]] * weight[some, None]).T @ Z[pairs.j[some]]
    return total


def constrained(X: Scaled, n_clusters: int, pairs: PairData, *, weight: float, seed: int) -> Ints:
    """Labels (N,) by K-means that pays ``weight`` for every answer it breaks: of some items and the answers among them where there are many; the others go to the nearest centre."""
    how: dict[str, Any] = {"weight": weight, "tries": 10, "max_iter": 100, "seed": seed}
    if len(X) <= enough(X):
        return pck_means(take(X, np.arange(len(X))).astype(np.float64), n_clusters, pairs, **how).labels
    rows, part = among(pairs, CONSTRAINED_ITEMS, seed)
    some = take(X, rows).astype(np.float64)
    centres = pck_means(some, n_clusters, replace(part, features=some), **how).centres
    return np.concatenate([squared_distances(part, centres).argmin(axis=1) for part in blocks(X)])
