"""Beliefs about every item's class, and every answer judged by a fit that did not see it."""

from dataclasses import dataclass

import numpy as np
import torch

from pdcc.accuracy.beliefs import LEAST, Calibration, Judged, read, sum_by_item
from pdcc.accuracy.estimate import sharpened
from pdcc.accuracy.folds import fold_fits
from pdcc.arrays import Bools, Float64
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted

# Fits to four fifths of the answers: nearest to the fit, and every answer is unseen by one of five.
SHARE = 0.8
FEWEST = 10


@dataclass(frozen=True)
class CrossFit:
    """beliefs: (N, K), of every item's class, for asking. agreement: B, (K, K).

    Of every answer, by fits and answers other than this one: left, right, (M, K), what is believed of the classes of its two items;
    expected, (M,), P(called similar); together, (M,), P(called similar, and of one class). nan for answers that say neither.
    """

    beliefs: Float64
    agreement: Float64
    left: Float64
    right: Float64
    expected: Float64
    together: Float64


def cross_fit(fitted: Fitted, data: PairData, *, seed: int = 0, progress: bool = False) -> CrossFit:
    """Fit again to parts of the answers, and believe what answers that the parts did not see bear out."""
    if not fitted.holds(data):
        raise ValueError(
            "pairs, similar: expected the answers that were fitted, in their order, found others. Pass what fit was given."
        )
    plain = plain_answers(data)
    whole, data = data, data.subset(plain)
    fewest = int(min(data.similar.sum(), (~data.similar).sum()))
    if fewest < FEWEST:
        raise ValueError(
            f"similar: expected at least {FEWEST} answers of each kind, for fits to parts of them, found {fewest}. Ask about more pairs."
        )
    fits = fold_fits(fitted, data, (SHARE,), seed=seed, progress=progress)
    at = Judged(fits[0], data)
    found = Calibration([at])
    labels = fitted.memberships(data.features).argmax(axis=1)
    said = read(found, found.mode)
    expected = float(np.clip(said.of(labels), 1 / found.K, 1.0))
    beliefs = sharpened(said.beliefs, labels, expected)
    with torch.no_grad():
        B = found.agreement(found.mode)
        m, told = found.told(found.mode, 0)
        every = sum_by_item(m, at, told)
        # An answer never counts for itself.
        left, right = (
            torch.softmax(m[one].clamp(min=LEAST).log() + every[one] - own, 1)
            for one, own in zip((at.at_left, at.at_right), told, strict=True)
        )
        h, other = found.hardness(found.mode, 0), at.other.flatten(0, 1)[at.used]
        h_i, h_j, o_i, o_j = h[at.at_left], h[at.at_right], other[at.at_left], other[at.at_right]
        seen_i, seen_j = (1 - h_i) * left + h_i * o_i, (1 - h_j) * right + h_j * o_j
        # Of one class k: seen as k by both, or as another at one end or both.
        given = (1 - h_i) * (1 - h_j) * B.diag() + (1 - h_i) * h_j * (o_j @ B) + h_i * (1 - h_j) * (o_i @ B)
        given = given + h_i * h_j * ((o_i @ B) * o_j).sum(1, keepdim=True)
        called, together = ((seen_i @ B) * seen_j).sum(1), (left * right * given).sum(1)
    each = (_spread_out(part.numpy(), plain, len(whole)) for part in (left, right, called, together))
    return CrossFit(beliefs, B.numpy(), *each)


def plain_answers(data: PairData) -> Bools:
    """Which answers say similar or different, (M,); a degree of one half says neither."""
    return np.ones(len(data), dtype=bool) if data.soft is None else np.asarray(data.soft != 0.5)


def _spread_out(values: Float64, rows: Bools, n: int) -> Float64:
    """Values at ``rows`` of n, nan elsewhere."""
    out = np.full((n, *values.shape[1:]), np.nan)
    out[rows] = values
    return out
