"""The one model of answers given a partition: a rate of "same" for every two clusters, a bias and a slope for every annotator.

    logit P(answer m is "same") = bias[r] + slope[r] * L[k, l]

where r gave the answer, and its items are in the clusters k and l. A slope near 0 is a coin, a negative one exchanges
the two words. L is drawn around two values, one within clusters and one across them; how far entries depart from
these, and annotators from bias 0 and slope 1, is learned from the answers (empirical Bayes, Laplace's method).
No two clusters are called "same" more often than their own items are: B_kl <= sqrt(B_kk B_ll), B = sigmoid(L).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, log_expit, logit

from pdcc.arrays import Float64, Ints
from pdcc.data.degrees import counts, degree
from pdcc.data.pairs import PairData

# Rounds of coordinate ascent, and of a fit that begins at an earlier one; a change of L below SETTLED ends them.
ROUNDS, FURTHER, SETTLED = 30, 4, 1e-3
# Of soft memberships, each end of a pair counts for this many clusters.
LARGEST = 3
# A Newton step is at most this long: far from the optimum the curvature is flat.
STEP = 2.0
# Probabilities are kept this far from 0 and 1 before they are scored.
FLOOR = 1e-6


@dataclass(frozen=True)
class Ends:
    """Which two clusters an answer may be about. One row for every possibility of an answer: its number ``answer`` (E,),
    the ``block`` (E,) of two clusters in the upper triangle, and its probability ``weight`` (E,)."""

    answer: Ints
    block: Ints
    weight: Float64
    n_clusters: int

    @classmethod
    def of_labels(cls, left: Ints, right: Ints, n_clusters: int) -> "Ends":
        """Labels (M,) of the two items of each answer."""
        return cls(np.arange(len(left)), block_number(left, right, n_clusters), np.ones(len(left)), n_clusters)

    @classmethod
    def of_memberships(cls, left: Float64, right: Float64) -> "Ends":
        """Memberships (M, K) of the two items of each answer, the ``LARGEST`` of each."""
        n, K = left.shape
        c = min(LARGEST, K)
        tops = []
        for F in (left, right):
            order = np.argpartition(-F, c - 1, axis=1)[:, :c] if c < K else np.tile(np.arange(K), (n, 1))
            value = np.take_along_axis(F, order, axis=1)
            tops.append((order, value / value.sum(axis=1, keepdims=True)))
        (k, p), (m, q) = tops
        weight = (p[:, :, None] * q[:, None, :]).reshape(n, -1)
        block = block_number(np.repeat(k, c, axis=1), np.tile(m, (1, c)), K)
        kept = weight > FLOOR
        answer = np.broadcast_to(np.arange(n)[:, None], weight.shape)
        return cls(answer[kept], block[kept], weight[kept], K)

    def normalised(self, values: Float64, n_answers: int) -> Float64:
        """Values (E,) divided by their sum over each answer's rows."""
        return values / np.bincount(self.answer, values, n_answers)[self.answer]


def block_number(k: Ints, m: Ints, n_clusters: int) -> Ints:
    """The number of the block of two clusters, the same for (k, l) and (l, k)."""
    low, high = np.minimum(k, m), np.maximum(k, m)
    return np.asarray(low * n_clusters - low * (low - 1) // 2 + high - low)


def block_counts(labels: Ints, n_labels: int, data: PairData) -> Float64:
    """How often pairs of two labels are called similar, and different: (2, L, L), symmetric, pairs within a label once.

    Answers count as much as they weigh, and soft ones for both, by degrees.
    """
    block = block_number(labels[data.i], labels[data.j], n_labels)
    y, w = degree(data), counts(data)
    k, m = np.triu_indices(n_labels)
    found = np.empty((2, n_labels, n_labels))
    for out, part in zip(found, (w * y, w * (1 - y)), strict=True):
        out[k, m] = out[m, k] = np.bincount(block, part, len(k))
    return found


@dataclass(frozen=True)
class AnswerModel:
    """A fitted model: L of every block (T,), bias and slope of every annotator (R,)."""

    blocks: Float64
    bias: Float64
    slope: Float64
    n_clusters: int

    @cached_property
    def logits(self) -> Float64:
        """L, (K, K), symmetric."""
        K = self.n_clusters
        k, m = np.triu_indices(K)
        L = np.empty((K, K))
        L[k, m] = L[m, k] = self.blocks
        return L

    @property
    def agreement(self) -> Float64:
        """B = sigmoid(L), (K, K): how often an annotator of bias 0 and slope 1 says "same"."""
        return np.asarray(expit(self.logits))


@dataclass(frozen=True)
class _Answers:
    """Answers as the fit takes them: y, w and annotator (M,), with R annotators."""

    y: Float64
    w: Float64
    r: Ints
    R: int

    @classmethod
    def of(cls, data: PairData) -> "_Answers":
        if data.annotator is None:
            return cls(degree(data), counts(data), np.zeros(len(data), np.int64), 1)
        return cls(degree(data), counts(data), data.annotator, max(len(data.annotator_names), 1))


@dataclass
class _State:
    """What the rounds change. H: curvature of the log posterior in L (T,), and in bias and slope (3, R)."""

    L: Float64
    bias: Float64
    slope: Float64
    centre: Float64
    spread: float
    spread_bias: float
    spread_slope: float
    H: Float64
    G: Float64


def fit_answers(ends: Ends, data: PairData, earlier: AnswerModel | None = None) -> AnswerModel:
    """The most probable rates, biases and slopes. ``earlier``: where to begin."""
    state = _fit(ends, _Answers.of(data), earlier)[0]
    return AnswerModel(state.L, state.bias, state.slope, ends.n_clusters)


def left_out_nll(ends: Ends, data: PairData) -> Float64:
    """Negative log-likelihood of each answer (M,) under a model that was fitted without it: one Newton step away."""
    answers = _Answers.of(data)
    state, share = _fit(ends, answers, None)
    y, r = answers.y[ends.answer], answers.r[ends.answer]
    p = expit(state.bias[r] + state.slope[r] * state.L[ends.block])
    residual, curvature = share * (y - p), share * p * (1 - p)
    b = state.slope[r]
    L = state.L[ends.block] - residual * b / (state.H[ends.block] - curvature * b**2)
    bias, slope = state.bias[r], state.slope[r]
    if answers.R > 1:
        M = len(data)
        x = state.L[ends.block]
        one = np.ones_like(x)
        u, v = (np.bincount(ends.answer, residual * z, M) for z in (one, x))
        haa, hab, hbb = (
            g[answers.r] - np.bincount(ends.answer, curvature * z, M)
            for g, z in zip(state.G, (one, x, x**2), strict=True)
        )
        det = haa * hbb - hab**2
        bias = bias - ((hbb * u - hab * v) / det)[ends.answer]
        slope = slope - ((haa * v - hab * u) / det)[ends.answer]
    same = np.bincount(ends.answer, ends.weight * expit(bias + slope * L), len(data)).clip(FLOOR, 1 - FLOOR)
    return np.asarray(-(answers.y * np.log(same) + (1 - answers.y) * np.log1p(-same)))


def _fit(ends: Ends, answers: _Answers, earlier: AnswerModel | None) -> tuple[_State, Float64]:
    K = ends.n_clusters
    k, m = np.triu_indices(K)
    within = k == m
    y, w, r = answers.y[ends.answer], answers.w[ends.answer], answers.r[ends.answer]
    share = ends.weight * w
    soft = len(ends.answer) > len(answers.y)
    inside = within[ends.block]
    pooled = np.array([logit(((share * y)[m].sum() + 0.5) / (share[m].sum() + 1.0)) for m in (inside, ~inside)])
    state = _State(
        L=np.where(within, *pooled),
        bias=np.zeros(answers.R),
        slope=np.ones(answers.R),
        centre=pooled.copy(),
        spread=1.0,
        spread_bias=0.25,
        spread_slope=0.1,
        H=np.ones(len(k)),
        G=np.ones((3, answers.R)),
    )
    if earlier is not None:
        state.L, state.bias, state.slope = earlier.blocks.copy(), earlier.bias.copy(), earlier.slope.copy()
    for _ in range(ROUNDS if earlier is None else FURTHER):
        before = state.L
        if soft:
            eta = state.bias[r] + state.slope[r] * state.L[ends.block]
            likely = np.exp(y * log_expit(eta) + (1 - y) * log_expit(-eta))
            share = w * ends.normalised(ends.weight * likely, len(answers.y))
        _step_rates(state, ends.block, y, r, share, within, pooled)
        _cap(state, K, k, m)
        if answers.R > 1:
            _step_annotators(state, ends.block, y, r, share)
        if np.abs(state.L - before).max() < SETTLED:
            break
    return state, share


def _step_rates(
    state: _State, block: Ints, y: Float64, r: Ints, share: Float64, within: np.ndarray, pooled: Float64
) -> None:
    """Newton's step for L, then what L is drawn around."""
    T = len(state.L)
    eta = state.bias[r] + state.slope[r] * state.L[block]
    p, b = expit(eta), state.slope[r]
    centre = np.where(within, *state.centre)
    gradient = np.bincount(block, share * b * (y - p), T) - (state.L - centre) / state.spread
    state.H = np.asarray(np.bincount(block, share * b**2 * p * (1 - p), T) + 1 / state.spread, dtype=np.float64)
    state.L = state.L + np.clip(gradient / state.H, -STEP, STEP)
    for g, members in enumerate((within, ~within)):
        n = int(members.sum())
        if n:
            total = state.L[members].sum() / state.spread + pooled[g]
            state.centre[g] = total / (n / state.spread + 1)
    centre = np.where(within, *state.centre)
    state.spread = float((((state.L - centre) ** 2 + 1 / state.H).sum() + 0.5) / (T + 1))


def _step_annotators(state: _State, block: Ints, y: Float64, r: Ints, share: Float64) -> None:
    """Newton's step for every annotator's bias and slope, then how far these are spread."""
    R = len(state.bias)
    x = state.L[block]
    p = expit(state.bias[r] + state.slope[r] * x)
    residual, curvature = share * (y - p), share * p * (1 - p)
    ga = np.bincount(r, residual, R) - state.bias / state.spread_bias
    gb = np.bincount(r, residual * x, R) - (state.slope - 1) / state.spread_slope
    haa = np.bincount(r, curvature, R) + 1 / state.spread_bias
    hab = np.bincount(r, curvature * x, R)
    hbb = np.bincount(r, curvature * x**2, R) + 1 / state.spread_slope
    state.G = np.stack([haa, hab, hbb])
    det = haa * hbb - hab**2
    state.bias = state.bias + np.clip((hbb * ga - hab * gb) / det, -STEP, STEP)
    state.slope = state.slope + np.clip((haa * gb - hab * ga) / det, -STEP, STEP)
    state.spread_bias = float(((state.bias**2 + hbb / det).sum() + 0.25) / (R + 1))
    state.spread_slope = float((((state.slope - 1) ** 2 + haa / det).sum() + 0.1) / (R + 1))


def _cap(state: _State, K: int, k: Ints, m: Ints) -> None:
    """Clusters are called "same" across at most as often as within."""
    own = log_expit(state.L[k == m])
    most = np.exp((own[k] + own[m]) / 2).clip(FLOOR, 1 - FLOOR)
    state.L = np.where(k == m, state.L, np.minimum(state.L, logit(most)))
