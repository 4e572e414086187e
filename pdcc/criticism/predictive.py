"""Posterior predictive checks that bite: where answers replicated from the model differ from the given ones.

The model draws every answer on its own given the memberships. People (and classifiers) often label each item once
and compare labels, so that their errors are *transitively consistent*. Rates cannot see that; triangles can,
and so can wedges (two answers that share an item), of which sparse random pairs have plenty.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse

from pdcc.arrays import Bools, Float64, Ints
from pdcc.criticism.own_rates import beside_rates
from pdcc.posterior.arviz_calls import has
from pdcc.posterior.inference_data import Posterior, read_posterior, take

# More candidate triangles than this are thinned by a random choice of base edges.
MOST_CANDIDATES = 5_000_000


@dataclass(frozen=True)
class Statistic:
    """One quantity of the answers, or a family of C of them (cluster pairs, annotators).

    labels: C names. observed: (C,), and replicated: (S, C) from S posterior predictive draws. count: (C,) how many answers,
    triangles or wedges a value rests on. tail: "two" or "upper". twin: (T, C) the same quantity of answers with
    the same rates whose errors are transitively consistent, or None where the statistic does not aim at that.
    absent: why there is no value; empty where there is one.
    """

    name: str
    labels: tuple[str, ...]
    observed: Float64
    replicated: Float64
    count: Ints
    tail: str = "two"
    twin: Float64 | None = None
    absent: str = ""


@dataclass(frozen=True)
class Predictive:
    """The statistics, and how many answers, items, clusters and replicates they come from."""

    statistics: tuple[Statistic, ...]
    n_pairs: int
    n_items: int
    n_clusters: int
    n_replicates: int

    def __getitem__(self, name: str) -> Statistic:
        found = [s for s in self.statistics if s.name == name]
        if not found:
            known = ", ".join(s.name for s in self.statistics)
            raise KeyError(f"statistic: expected one of {known}, found {name!r}. Choose one of them.")
        return found[0]


def run_predictive(idata: Any, *, draws: int = 200, twins: int = 50, seed: int = 0) -> Predictive:
    """Compute every statistic on the observed answers and on at most ``draws`` replicates, evenly spaced.

    Statistics, each a function of the answers alone (p is the posterior mean P(similar), m mean memberships):

    * positive rate by cluster pair, clusters being the largest m;
    * triangle closure, 3 t3 / (3 t3 + t2), and broken triangles, t2 / t, over answered triples with 3 and exactly 2 similar
      answers (a pair answered more than once counts with its first answer);
    * wedge excess, sum_n (|s_n|^2 - sum_a |r_a w_a|^2) / sum_a |r_a w_a|^2, where item n's score s_n = sum_a r_a w_a runs
      over its answers, r = y - p, and w = m - 1/K of the other end. Independent answers give about 0; an item that
      consistently behaves like a member of another cluster raises it. What an annotator does with every item goes out of r first;
    * item spread, the standard deviation of the items' positive rates, weighted by answers;
    * with annotator ids: triangles and wedges within annotators, positive rates by annotator, and disagreement by
      annotator (share of answers that differ from whether the predicted clusters agree).

    The observed answers were fitted, so they lie closer to the posterior mean than new ones would. Replicates and twins are
    therefore refitted to first order before statistics of residuals and rates are taken (triangles need whole answers): a
    refit to y* in place of y moves the posterior mean p by Cov(p) W (y* - y), W = 1 / (p (1 - p)), with the draws' own covariance.

    ``twins`` data sets with the same rates but transitive errors (one label per item, drawn from A m, whoever answers) say
    how often triangles and wedges would notice. Layers below the last would absorb more of it than the refit does, and annotators
    with labels of their own share less of it, so this bounds the power from above. Clusters must be aligned across draws.
    """
    posterior = read_posterior(idata)
    y, i, j, annotator = posterior.observed, posterior.i, posterior.j, posterior.annotator
    if annotator is not None and (annotator == annotator[0]).all():  # what one annotator says is what all say
        annotator = None
    replicated = take(idata, "posterior_predictive", "similar")
    replicated = replicated.reshape(-1, replicated.shape[-1])
    if replicated.shape[1] != len(y):
        raise ValueError(
            f"idata: expected replicates of the {len(y)} answers, found {replicated.shape[1]}. Use the posterior and the pairs of one fit."
        )
    chosen = np.unique(np.linspace(0, len(replicated) - 1, min(draws, len(replicated))).round().astype(np.int64))
    m = take(idata, "posterior", "memberships").mean(axis=(0, 1), dtype=np.float64)
    n_items, K = m.shape
    if max(i.max(), j.max()) >= n_items:
        raise ValueError(
            f"idata: expected item numbers below {n_items}, found {max(i.max(), j.max())}. Use the posterior and the pairs of one fit."
        )
    rng = np.random.default_rng(seed)
    twin = _twins(_seen_as(idata, m), i, j, twins, rng)
    # One (M, 1 + S + T) table: observed, replicates, twins.
    Y = np.concatenate([y[:, None], replicated[chosen].T, twin], axis=1).astype(np.float32)
    S = len(chosen)
    p = posterior.probability()
    moved = _moved(posterior, p, Y)
    # What the given answers' own fit left undone under its prior, refits to replicates leave undone too.
    Z = np.concatenate([Y[:, :1], Y[:, 1:] - moved[:, 1:] + moved[:, :1]], axis=1)

    def statistic(
        name: str, values: Float64, count: Ints, labels: tuple[str, ...] = ("",), **options: Any
    ) -> Statistic:
        aims = options.pop("aims", False)
        return Statistic(
            name, labels, values[0], values[1 : 1 + S], count, twin=values[1 + S :] if aims else None, **options
        )

    cluster = m.argmax(axis=1)
    a, b = np.minimum(cluster[i], cluster[j]), np.maximum(cluster[i], cluster[j])
    used, cell = np.unique(a * K + b, return_inverse=True)
    names = tuple(f"clusters {c // K} and {c % K}" if c // K != c % K else f"within cluster {c // K}" for c in used)
    out = [statistic("positive rate by cluster pair", *_rates(cell, Z), names)]
    w, rest = m - 1 / K, Z - p[:, None]
    nodes = [("", i, j)]
    if annotator is not None:
        nodes.append((" within annotator", annotator * n_items + i, annotator * n_items + j))
        rest = beside_rates(*(torch.as_tensor(part) for part in (rest.astype(np.float32), p, annotator))).numpy()
    for suffix, u, v in nodes:
        closure, broken, n_triangles = _triangle_statistics(u, v, Y, rng)
        absent = "" if n_triangles else f"There are no triangles{suffix} among these {len(y)} pairs"
        lonely = (
            "" if np.isfinite(closure).all() else f"Some replicates have no two similar answers in a triangle{suffix}"
        )
        count = np.array([n_triangles])
        closure = np.nan_to_num(closure, nan=1.0)
        out.append(statistic(f"triangle closure{suffix}", closure, count, aims=True, absent=absent or lonely))
        out.append(statistic(f"broken triangles{suffix}", broken, count, aims=True, absent=absent))
        excess, n_wedges = _wedge_excess(u, v, w[i], w[j], rest)
        absent = "" if n_wedges else f"No item has two answers{suffix}"
        out.append(
            statistic(f"wedge excess{suffix}", excess, np.array([n_wedges]), aims=True, tail="upper", absent=absent)
        )
    out.append(statistic("item spread", _spread(i, j, n_items, Z), np.array([n_items])))
    if annotator is not None:
        annotators, of = np.unique(annotator, return_inverse=True)
        names = tuple(f"annotator {r}" for r in annotators)
        out.append(statistic("positive rate by annotator", *_rates(of, Z), names))
        same = (cluster[i] == cluster[j])[:, None]
        differs = np.where(same, 1 - Z, Z)
        out.append(statistic("disagreement by annotator", *_rates(of, differs), names))
    return Predictive(tuple(out), len(y), n_items, K, S)


def check_predictive(result: Predictive, level: float = 0.01, *, detail: bool = False) -> pd.DataFrame:
    """Judge each statistic: (statistic, where, observed, replicated, low, high, p, power, verdict, sentence).

    replicated, low and high are the mean, 5 % and 95 % points of the replicates. p is the posterior predictive
    p-value, (1 + replicates at least as extreme) / (1 + replicates), twice the smaller tail unless the statistic is
    one-sided (wedge excess: upper). A family (cluster pairs, annotators) is adjusted by the single-step maximum: p is the
    chance that the *largest* standardised deviation of a replicate exceeds this one, which respects the dependence that
    Holm would ignore and needs no p-values below 1 / replicates. Nothing is adjusted across the different statistics.

    A family shows its worst member; ``detail=True`` shows all. power is how often answers with transitive errors would be
    seen (an upper bound). The verdict is "misfit", "fits", or "no power" where p (then possibly None) could
    hardly have come out small.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, found {level}. Use 0.01.")
    rows = []
    for s in result.statistics:
        p = None if s.absent else _p_values(s, s.observed)
        power = None
        if s.twin is not None and not s.absent:
            power = float(np.mean([_p_values(s, t)[0] < level for t in s.twin])) if len(s.twin) else None
        order = np.argsort(p, kind="stable") if p is not None else np.arange(1)
        for c in order if detail else order[:1]:
            rows.append(_row(s, int(c), None if p is None else float(p[c]), power, level, result.n_replicates))
            if not detail and p is not None and (p < level).sum() > 1:
                rows[-1]["sentence"] += f" {int((p < level).sum())} of {len(p)} depart in all."
    return pd.DataFrame(rows, dtype=object)


def _moved(posterior: Posterior, p: Float64, Y: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far refits to answers Y (M, S) move the posterior mean p (M,), to first order, (M, S)."""
    right = np.exp(posterior.log_likelihood.astype(np.float64))
    drawn = np.where(posterior.observed, right, 1 - right) - p
    weight = 1 / np.maximum(p * (1 - p), 1e-6)
    pull = drawn @ (weight[:, None] * (Y - p[:, None])) / len(drawn)
    return np.asarray(drawn.T @ pull, dtype=np.float32)


def _p_values(s: Statistic, values: Float64) -> Float64:
    """p of each of ``values`` (C,) under the replicates; for a family, adjusted by the single-step maximum."""
    if len(s.labels) == 1:
        above = 1 + (s.replicated >= values).sum(axis=0)
        below = 1 + (s.replicated <= values).sum(axis=0)
        extreme = above if s.tail == "upper" else 2 * np.minimum(above, below)
    else:
        largest = deviations(s, s.replicated).max(axis=1)
        extreme = 1 + (largest[:, None] >= deviations(s, values)).sum(axis=0)
    return np.asarray(np.minimum(1.0, extreme / (1 + len(s.replicated))))


def deviations(s: Statistic, values: Float64) -> Float64:
    """How far values (..., C) lie from the replicates' means, in their standard deviations."""
    # Half an answer is added to the spread, so that one answer in a cell that replicates never fill is no scandal.
    sd = np.sqrt(s.replicated.var(axis=0) + (0.5 / s.count) ** 2)
    return np.asarray(np.abs(values - s.replicated.mean(axis=0)) / sd)


def _row(s: Statistic, c: int, p: float | None, power: float | None, level: float, S: int) -> dict[str, Any]:
    row: dict[str, Any] = {"statistic": s.name, "where": s.labels[c]}
    if p is None:
        sentence = f"{s.absent}: no power to see transitive errors this way. Ask about pairs that share items."
        empty = dict.fromkeys(("observed", "replicated", "low", "high", "p", "power"))
        return row | empty | {"verdict": "no power", "sentence": sentence}
    low, high = np.quantile(s.replicated[:, c], [0.05, 0.95])
    observed, mean = float(s.observed[c]), float(s.replicated[:, c].mean())
    row |= {"observed": observed, "replicated": mean, "low": float(low), "high": float(high), "p": p, "power": power}
    title = s.name[0].upper() + s.name[1:] + (f" ({s.labels[c]})" if s.labels[c] else "")
    what = f"{title}: {observed:.3f} observed, {mean:.3f} replicated [{low:.3f}, {high:.3f}]"
    sides = 2 if s.tail == "two" and len(s.labels) == 1 else 1
    if p < level:
        verdict, sentence = "misfit", f"{what}. {_meaning(s.name, observed > mean)}"
    elif sides / (S + 1) >= level:
        verdict = "no power"
        sentence = f"{what}. But {S} replicates cannot give p below {level:g}: use at least {math.floor(sides / level + 1e-9)} draws."
    elif power is not None and power < 0.5:
        unit = "wedges" if s.name.startswith("wedge") else "triangles"
        verdict = "no power"
        sentence = f"{what}. Only {int(s.count[c])} {unit}: no power, transitive errors at these rates would be seen {power:.0%} of the time at best."
    else:
        verdict, sentence = "fits", f"{what}, within chance."
    return row | {"verdict": verdict, "sentence": sentence}


def _meaning(name: str, more: bool) -> str:
    if name.startswith(("triangle", "broken", "wedge")):
        if more == name.startswith("broken"):
            return "Answers about one item contradict each other more than independent errors do. The clusters may be too few, or the relation not transitive."
        return "Answers about one item support each other more than independent errors do, as when each item is labelled once and labels compared, or when items sit in the wrong cluster. Posterior intervals are then too narrow: hold out annotators or items, not pairs."
    side = "more often" if more else "less often"
    if name.startswith("positive rate by cluster"):
        return f"These clusters are called similar {side} than the model says. Free the confusion, or change the number of clusters."
    if name.startswith("item"):
        return f"Items differ {'more' if more else 'less'} in how often they are called similar than the model says. Give the memberships more room, or look for odd items."
    return f"This annotator {'says similar' if name.startswith('positive') else 'departs from the clusters'} {side} than the model says. Use a confusion for each annotator."


def _rates(cell: NDArray[np.intp], Y: NDArray[np.float32]) -> tuple[Float64, Ints]:
    """Mean of Y (M, S) in each of C cells, (S, C), and the counts (C,)."""
    count = np.bincount(cell)
    inside = sparse.csr_matrix((np.ones(len(cell), np.float32), (cell, np.arange(len(cell)))))
    return np.asarray((inside @ Y).T / count, dtype=np.float64), count.astype(np.int64)


def _spread(i: Ints, j: Ints, n_items: int, Y: NDArray[np.float32]) -> Float64:
    """Answer-weighted standard deviation over items of their positive rates, (S, 1)."""
    touches = _touches(np.concatenate([i, j]), n_items)
    degree = np.bincount(np.concatenate([i, j]), minlength=n_items)
    share = degree[degree > 0] / degree.sum()
    rates = (touches @ np.concatenate([Y, Y]))[degree > 0] / degree[degree > 0, None]
    return np.asarray(np.sqrt(share @ (rates - share @ rates) ** 2)[:, None], dtype=np.float64)


def _touches(ends: NDArray[np.integer[Any]], n_nodes: int) -> sparse.csr_matrix:
    """(n_nodes, 2M) incidence: one row per node, one column per end of an answer."""
    return sparse.csr_matrix((np.ones(len(ends), np.float32), (ends, np.arange(len(ends)))), shape=(n_nodes, len(ends)))


def _wedge_excess(u: Ints, v: Ints, w_u: Float64, w_v: Float64, R: Float64) -> tuple[Float64, int]:
    """Wedge excess (S, 1) of residuals R (M, S) over nodes u, v with weights (M, K), and the number of wedges."""
    nodes, ends = np.unique(np.concatenate([u, v]), return_inverse=True)
    degree = np.bincount(ends)
    touches, other = _touches(ends, len(nodes)), np.concatenate([w_v, w_u]).astype(np.float32)
    out = np.zeros((R.shape[1], 1))
    for s, r in enumerate(R.T):
        parts = other * np.concatenate([r, r]).astype(np.float32)[:, None]
        own = float((parts**2).sum(dtype=np.float64))
        out[s] = (float(((touches @ parts) ** 2).sum(dtype=np.float64)) - own) / own if own > 1e-12 else 0.0
    return out, int((degree * (degree - 1) // 2).sum())


def _triangle_statistics(
    u: Ints, v: Ints, Y: NDArray[np.float32], rng: np.random.Generator
) -> tuple[Float64, Float64, int]:
    """Closure and broken share, each (S, 1), and the number of triangles. Closure is NaN where nothing could close."""
    corners = _triangles(u, v, rng)
    closure, broken = np.full((Y.shape[1], 1), np.nan), np.zeros((Y.shape[1], 1))
    if not len(corners):
        return closure, broken, 0
    for s, y in enumerate(np.ascontiguousarray(Y.T).astype(np.int8)):
        similar = y[corners].sum(axis=1, dtype=np.int8)
        two, three = int((similar == 2).sum()), int((similar == 3).sum())
        broken[s] = two / len(corners)
        closure[s] = 3 * three / (3 * three + two) if two + three else np.nan
    return closure, broken, len(corners)


def _triangles(u: Ints, v: Ints, rng: np.random.Generator) -> Ints:
    """(T, 3) numbers of the answers that make up each triangle; a repeated pair counts with its first answer."""
    nodes, ends = np.unique(np.concatenate([u, v]), return_inverse=True)
    n = len(nodes)
    # Edges point to the node of larger degree, which bounds out-degrees by sqrt(2 M) and so the candidates.
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(np.bincount(ends), kind="stable")] = np.arange(n)
    tail, head = np.sort(rank[ends].reshape(2, -1), axis=0)
    keys, first = np.unique(tail * n + head, return_index=True)
    tail, head = keys // n, keys % n
    start = np.searchsorted(tail, np.arange(n + 1))
    edges = np.arange(len(keys))
    total = int(np.diff(start)[head].sum())
    if total > MOST_CANDIDATES:
        edges = np.sort(rng.permutation(edges)[: max(1, len(edges) * MOST_CANDIDATES // total)])
    reach = np.diff(start)[head[edges]]
    base = np.repeat(edges, reach)
    onward = np.arange(len(base)) + np.repeat(start[head[edges]] - np.cumsum(reach) + reach, reach)
    wanted = tail[base] * n + head[onward]
    closing = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found = keys[closing] == wanted
    return np.asarray(first[np.column_stack([base, onward, closing])[found]], dtype=np.int64)


def _seen_as(idata: Any, m: Float64) -> Float64:
    """Distribution of the label an item gets, A m, (N, K), with A such that A'A is about the posterior mean B."""
    if has(idata, "posterior", "confusion"):
        A = take(idata, "posterior", "confusion").mean(axis=(0, 1), dtype=np.float64)
    else:
        B = take(idata, "posterior", "agreement").mean(axis=(0, 1), dtype=np.float64)
        values, vectors = np.linalg.eigh((B + B.T) / 2)
        # Any A with A'A = B serves; the symmetric root is one, made stochastic where B is not exactly of that form.
        A = np.clip((vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T, 1e-12, None)
    q = m @ (A / A.sum(axis=0)).T
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def _twins(q: Float64, i: Ints, j: Ints, n: int, rng: np.random.Generator) -> Bools:
    """(M, n) answers read off labels drawn once per item from q (N, K)."""
    cumulative = np.cumsum(q, axis=1)[:, :-1]
    out = np.zeros((len(i), n), dtype=bool)
    for t in range(n):
        label = (rng.random((len(q), 1)) > cumulative).sum(axis=1)
        out[:, t] = label[i] == label[j]
    return out
