"""Do answers about one item go wrong together? Then they are about what annotators have in mind, and agree more than they are right."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pdcc.accuracy.beliefs import Calibration, Judged
from pdcc.arrays import Ints
from pdcc.criticism.own_rates import beside_rates
from pdcc.select.score import holm

REPLICATES = 200


@dataclass(frozen=True)
class Dependence:
    """p-values (Holm's), small where answers depend on each other: about one item, and of one annotator about one item.

    None: no two answers that judge a fit share an item. excess: by how many deviations they agree more than independent ones would.
    """

    p_item: float | None
    p_annotator: float | None
    excess: float

    @property
    def p(self) -> float | None:
        """The smallest, adjusted for their number."""
        known = [p for p in (self.p_item, self.p_annotator) if p is not None]
        return min(known) if known else None


def dependence(found: Calibration, s: int, annotator: Ints | None, seed: int) -> Dependence:
    """Compare answers with replicates, drawn on their own given one class per item, which is drawn from the beliefs.

    ``found`` should have been calibrated by rates alone (``apart``): what answers have in common must not have gone into it.

    The statistic: residuals of two answers about an item, multiplied, and weighed by how alike the two other items are. An item that an
    annotator takes for another has too many "different" with its own cluster, and too many "similar" with the other one. One who errs more
    often than others, or says "similar" more often, does so about every item: that goes out of the residuals first, of both alike.
    """
    at = found.sets[s]
    generator = torch.Generator().manual_seed(seed)
    groups = [(at.at_left, at.at_right, len(at.used))]
    by = torch.as_tensor(annotator) if annotator is not None else torch.zeros(len(at.similar), dtype=torch.int64)
    if annotator is not None:
        ends = torch.cat([at.at_left, at.at_right]) * (int(by.max()) + 1) + by.repeat(2)
        ids, where = torch.unique(ends, return_inverse=True)
        groups.append((*where.chunk(2), len(ids)))
    above = []
    with torch.no_grad():
        for theta in found.draws(REPLICATES, seed):
            m, B = found.beliefs(theta, s, at.used), found.agreement(theta)
            truth = torch.multinomial(m, 1, generator=generator)[:, 0]
            p = B[truth[at.at_left], truth[at.at_right]]
            y = (torch.rand(len(p), generator=generator, dtype=torch.float64) < p).double()
            expected = ((m[at.at_left] @ B) * m[at.at_right]).sum(1)
            rest = beside_rates(torch.stack([at.similar - expected, y - expected], 1), expected, by)
            both = [[_together(one, m, at, *group) for group in groups] for one in rest.unbind(1)]
            above.append(np.array(both[0]) - np.array(both[1]))
    excess = np.array(above)
    deviation = excess.std(axis=0)
    ps = [
        None if deviation[k] == 0 else float((1 + (excess[:, k] <= 0).sum()) / (1 + REPLICATES))
        for k in range(len(groups))
    ]
    adjusted = [*holm(ps), None]
    z = float(np.max(excess.mean(axis=0) / np.maximum(deviation, 1e-12)))
    return Dependence(adjusted[0], adjusted[1], z)


def _together(residual: Tensor, m: Tensor, at: Judged, of_left: Tensor, of_right: Tensor, n: int) -> float:
    """Sum over two answers of one group of their residuals times <m, m> of their other items."""
    sums, squares = m.new_zeros(n, m.shape[1]), 0.0
    for other, group in ((at.at_right, of_left), (at.at_left, of_right)):
        part = residual[:, None] * m[other]
        sums.index_add_(0, group, part)
        squares += float(part.square().sum())
    return float(sums.square().sum()) - squares
