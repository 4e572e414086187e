"""Beliefs about every item's class, and every answer judged by a fit that did not see it."""

from dataclasses import dataclass

import numpy as np
import torch

from pdcc.accuracy.beliefs import LEAST, Calibration, Judged, read
from pdcc.accuracy.estimate import sharpened
from pdcc.accuracy.folds import fold_fits
from pdcc.arrays import Float64
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted

# Fits to four fifths of the answers: nearest to the fit, and every answer is unseen by one of five.
SHARE = 0.8
FEWEST = 10


@dataclass(frozen=True)
class CrossFit:
    """beliefs: (N, K), of every item's class, for asking. left, right: (M, K), of the classes of the two items of every answer, by fits
    and answers other than this one. agreement: B, (K, K)."""

    beliefs: Float64
    left: Float64
    right: Float64
    agreement: Float64


def cross_fit(fitted: Fitted, data: PairData, *, seed: int = 0, progress: bool = False) -> CrossFit:
    """Fit again to parts of the answers, and believe what answers that the parts did not see bear out."""
    if not fitted.holds(data):
        raise ValueError(
            "pairs, similar: expected the answers that were fitted, in their order, found others. Pass what fit was given."
        )
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
    with torch.no_grad():
        B = found.agreement(found.mode)
        m = found.beliefs(found.mode, 0, at.used)
        p = (m @ B).clamp(LEAST, 1 - LEAST)
        yes, no, y = p.log(), (1 - p).log(), at.similar[:, None]
        # What each answer says about either end, given what is believed of the other one; an answer never counts for itself.
        ends = [torch.lerp(no[two], yes[two], y) for two in (at.at_right, at.at_left)]
        told = torch.zeros_like(m).index_add(0, at.at_left, ends[0]).index_add(0, at.at_right, ends[1])
        sides = [
            torch.softmax(m[one].clamp(min=LEAST).log() + told[one] - own, 1).numpy()
            for one, own in zip((at.at_left, at.at_right), ends, strict=True)
        ]
    expected = float(np.clip(said.of(labels), 1 / B.shape[0], 1.0))
    return CrossFit(sharpened(said.beliefs, labels, expected), sides[0], sides[1], B.numpy())
