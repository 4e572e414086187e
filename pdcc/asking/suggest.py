"""Which pairs to ask about next: those whose answer is expected to tell most about the items' classes."""

import heapq
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pdcc.arrays import Float64, Ints
from pdcc.asking.uniform import RandomPairs, pair_numbers
from pdcc.validation import check_count, check_number

# At least so many of the pairs are drawn uniformly, whatever is believed: without them nothing could judge the beliefs.
RANDOM = 0.2
# Candidates per suggested pair.
CANDIDATES = 50
# An item's later pairs in one batch count half as much each: the first answer may settle it.
AGAIN = 0.5


def aim_at(beliefs: Float64, clusters: int | Sequence[int] | None) -> Float64:
    """How much each item matters, (N,): as far as it is believed to be in one of ``clusters`` (one, or two that are confounded)."""
    if clusters is None:
        return np.ones(len(beliefs))
    wanted = [clusters] if isinstance(clusters, int | np.integer) else list(clusters)
    K = beliefs.shape[1]
    if not wanted or any(not isinstance(k, int | np.integer) or not 0 <= k < K for k in wanted):
        raise ValueError(f"aim: expected one or two clusters from 0 to {K - 1}, found {clusters!r}. Pass such numbers.")
    weight = np.asarray(beliefs[:, wanted].sum(axis=1))
    if not weight.any():
        raise ValueError(
            f"aim: expected clusters that some item may be in, found {clusters!r}, which none is believed to be in. Choose others."
        )
    return weight


def information(left: Float64, right: Float64, agreement: Float64) -> Float64:
    """Mutual information, in nats, of an answer and the two classes it is about, (C,); beliefs (C, K) each, B (K, K).

    H(y) - E H(y | classes): a pair whose answer is uncertain only because annotators are tells nothing.
    """
    p = np.einsum("ck,kl,cl->c", left, agreement, right)
    noise = np.einsum("ck,kl,cl->c", left, _entropy(agreement), right)
    return np.asarray(np.maximum(_entropy(p) - noise, 0.0))


def _entropy(p: Float64) -> Float64:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-(q * np.log(q) + (1 - q) * np.log1p(-q)))


def suggest_pairs(
    beliefs: Float64,
    agreement: Float64,
    *,
    n: int = 200,
    exclude: ArrayLike | None = None,
    aim: int | Sequence[int] | None = None,
    random_share: float = RANDOM,
    random_state: int = 0,
) -> pd.DataFrame:
    """``n`` pairs of rows, as a table with the columns i, j, gain, chosen_by, probability; most informative first, random ones at random places among them.

    Args:
        beliefs: (N, K), of every item's class. agreement: B, (K, K).
        exclude: pairs (E, 2) of rows not to ask about again. Others that were asked compete with new ones on equal terms: an answer is
            worth as much as it tells.
        aim: a cluster, or two that are confounded: ask about items believed to be in them.
        random_share: so many of the pairs are drawn uniformly (at least a fifth).

    gain: expected information about the classes, in nats. probability: how often such a batch is expected to hold the pair; of random
    ones it is that of a uniform draw. Candidates are drawn, never all N^2 pairs.
    """
    check_count("n", n)
    check_count("random_state", random_state, 0)
    check_number("random_share", random_share, RANDOM, 1.0)
    N = len(beliefs)
    rng = np.random.default_rng(random_state)
    known = _rows(exclude, N)
    blocked = np.unique(pair_numbers(known))
    possible = N * (N - 1) // 2 - len(blocked)
    if n > possible:
        raise ValueError(f"n: expected at most the {possible} pairs there are to ask about, found {n}. Ask for fewer.")
    n_random = int(np.ceil(random_share * n))
    weight = aim_at(beliefs, aim)
    drawn, chance = _candidates(beliefs, weight, CANDIDATES * n, rng)
    keys, first = np.unique(pair_numbers(drawn), return_index=True)
    first = first[~np.isin(keys, blocked)]
    drawn, chance = drawn[first], chance[first]
    gain = information(beliefs[drawn[:, 0]], beliefs[drawn[:, 1]], agreement)
    chosen = _diverse(drawn, gain, n - n_random, N, rng)
    rows = drawn[chosen]
    total = float(gain.sum())
    # How often a candidate is drawn, and taken among the candidates.
    odds = -np.expm1(CANDIDATES * n * np.log1p(-np.minimum(chance[chosen], 0.5)))
    taken = np.minimum(1.0, len(chosen) * gain[chosen] / max(total, 1e-300))
    uniform = RandomPairs(N, rng)(n - len(rows), np.concatenate([known, rows]))[["i", "j"]].to_numpy()
    ends = np.concatenate([rows, uniform])
    table = pd.DataFrame(
        {
            "i": ends[:, 0], "j": ends[:, 1], "gain": information(beliefs[ends[:, 0]], beliefs[ends[:, 1]], agreement),
            "chosen_by": ["suggested"] * len(rows) + ["random"] * len(uniform),
            "probability": np.concatenate([odds * taken, np.full(len(uniform), len(uniform) / max(possible, 1))]),
        }
    )  # fmt: skip
    table = table.sort_values("gain", ascending=False, kind="stable", ignore_index=True)
    # Random pairs at random places: whoever answers only the first rows answers as large a share of them.
    place = np.arange(n, dtype=np.float64)
    drawn_at = table["chosen_by"].to_numpy() == "random"
    place[drawn_at] = rng.uniform(0, n, size=int(drawn_at.sum()))
    return table.iloc[np.argsort(place, kind="stable")].reset_index(drop=True)


def _rows(pairs: ArrayLike | None, N: int) -> Ints:
    """Pairs (E, 2) of rows, checked; none where None."""
    if pairs is None:
        return np.zeros((0, 2), dtype=np.int64)
    given = np.asarray(pairs)
    if (
        given.ndim != 2
        or given.shape[1] != 2
        or given.dtype.kind not in "iu"
        or (given.size and (given.min() < 0 or given.max() >= N))
    ):
        raise ValueError(
            f"exclude: expected pairs of row numbers below {N}, (E, 2), found {given.dtype} of shape {given.shape}. Pass rows of X."
        )
    return np.asarray(given[given[:, 0] != given[:, 1]], dtype=np.int64)


def _candidates(beliefs: Float64, weight: Float64, size: int, rng: np.random.Generator) -> tuple[Ints, Float64]:
    """Pairs (size, 2) of an uncertain item with a sure one of a class it may be of, and the chance of each in one draw."""
    sure = beliefs.max(axis=1)
    open_ = weight * (1 - np.square(beliefs).sum(axis=1) + 1e-6)
    open_ /= open_.sum()
    i = rng.choice(len(beliefs), size=size, p=open_)
    k = (rng.random((size, 1)) > np.cumsum(beliefs[i], axis=1)[:, :-1]).sum(axis=1)
    partner = np.square(beliefs) * sure[:, None] + 1e-9
    partner /= partner.sum(axis=0)
    j = np.empty(size, dtype=np.int64)
    for c in np.unique(k):
        at = k == c
        j[at] = rng.choice(len(beliefs), size=int(at.sum()), p=partner[:, c])
    apart = i != j
    i, j = i[apart], j[apart]
    chance = open_[i] * (beliefs[i] * partner[j]).sum(axis=1) + open_[j] * (beliefs[j] * partner[i]).sum(axis=1)
    return np.column_stack([i, j]), chance


def _diverse(pairs: Ints, gain: Float64, n: int, N: int, rng: np.random.Generator) -> Ints:
    """Which ``n`` pairs to take: drawn in proportion to their gain, an item's later pairs counting ``AGAIN`` times less each."""
    score = np.log(np.maximum(gain, 1e-12)) + rng.gumbel(size=len(gain))
    used = np.zeros(N)
    waiting = [(-float(s), c) for c, s in enumerate(score)]
    heapq.heapify(waiting)
    out: list[int] = []
    while waiting and len(out) < n:
        put, c = heapq.heappop(waiting)
        now = math.log(AGAIN) * float(used[pairs[c]].max()) + float(score[c])
        if now < -put - 1e-9:  # its items were taken since: wait until its turn comes again
            heapq.heappush(waiting, (-now, c))
            continue
        out.append(c)
        used[pairs[c]] += 1
    return np.array(out, dtype=np.int64)
