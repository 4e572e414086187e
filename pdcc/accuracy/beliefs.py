"""What to believe of every item's class, calibrated on answers that the fits did not see.

A fit v puts item n into cluster k = argmax F_vn. With probability 1 - e_vn that is right, and otherwise the item belongs to one of
the others, in proportion to its other memberships:

    m_vn = (1 - e_vn) [k] + e_vn q_vn,    logit e_vn = a_v + a_k + b_v logit(1 - max F_vn)

Answers are drawn independently given two classes, "similar" with probability B[k, l]. So the most confident items tell B, and how
much less often the answers agree about less confident ones tells e. An item's class is one and the same in all of its answers: that is
what tells wrong labels from annotators who answer at random, and the likelihood sums over it. Hard items are wrongly taken for others
more often, though anew in every answer: an annotator sees class k as (1 - h_n) [k] + h_n q_n, logit h_n = c + d logit(1 - max F_n).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pdcc.accuracy.folds import FoldFits
from pdcc.arrays import Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.fitted import LEAST_SIMILAR

# Prior deviations: of a, of log b, of a cluster's own departure from a, of the logits of two rates around
# people who are right nine times out of ten, and of a pair of clusters' own departure from these (Student, 2 degrees of freedom).
LEVEL, SLOPE, CLUSTER, RATE, PAIR = 1.5, 1.5, 0.5, 0.5, 1.0
RATES = (1.2, -1.5)
# Means and deviations of c and log d.
BLUR, BLUR_SLOPE = (-2.0, 1.5), (-0.5, 0.7)
# Beyond these log odds confidence is rounding.
SUREST = 12.0
# So much of an item's other memberships is replaced by what is usual in its cluster.
SHARED = 0.4
LEAST = 1e-6
# Steps that gain fewer nats end the search for the mode: far below one, what an interval feels.
TOLERANCE = 1e-3
# Of the differences that make the Hessian: gradients are exact to some 1e-12.
STEP = 1e-4
DRAWS = 200


class Judged:
    """The fits of one share, and the answers that judge them, as the likelihood wants them: only items that answers are about.

    label, doubt, other: k, logit(1 - max F) and q, (V, N), (V, N), (V, N, K). left, right: (M,) rows among the V * N.
    """

    def __init__(self, fits: FoldFits, data: PairData):
        F = np.clip(fits.memberships, 1e-7, None)
        V, N, K = F.shape
        label = F.argmax(axis=2)
        other = F.copy()
        np.put_along_axis(other, label[..., None], 0.0, axis=2)
        rest = other.sum(axis=2)
        other /= rest[..., None]
        usual = np.full((V, K, K), 1e-3) * (1 - np.eye(K))
        for v in range(V):
            np.add.at(usual[v], label[v], rest[v][:, None] * other[v])
        usual /= usual.sum(axis=2, keepdims=True)
        mixed = (1 - SHARED) * other + SHARED * usual[np.arange(V)[:, None], label]
        self.label, self.other = torch.as_tensor(label), torch.as_tensor(mixed)
        self.doubt = torch.as_tensor(np.log(rest) - np.log(F.max(axis=2))).clamp(-SUREST, SUREST)
        self.left, self.right = (torch.as_tensor(fits.judged_by * N + end) for end in (data.i, data.j))
        self.similar = torch.as_tensor(data.similar, dtype=torch.float64)
        self.shape = (V, N, K)
        self.used, where = torch.unique(torch.cat([self.left, self.right]), return_inverse=True)
        self.at_left, self.at_right = where.chunk(2)


class Calibration:
    """The posterior of a, b, B, c and d.

    exact: take the answers for right, and ask how the labels agree with them. apart: take every answer on its own, as if an item's class
    were drawn anew for each, and so look at rates alone. In neither are hard items told from wrong labels (h = 0).
    """

    def __init__(self, sets: list[Judged], *, exact: bool = False, apart: bool = False):
        self.sets, self.exact, self.apart, self.K = sets, exact, apart, sets[0].shape[2]
        self.upper = torch.triu_indices(self.K, self.K)
        self.same = torch.eye(self.K, dtype=torch.float64)
        self.sizes = [len(sets), len(sets), self.K, len(RATES), self.upper.shape[1], 2]
        self.mode, self.factor = self._fit()

    def beliefs(self, theta: Tensor, s: int, rows: Tensor | None = None) -> Tensor:
        """m of the s-th set, (V * N, K), or of some rows of it."""
        level, slope, own = theta.split(self.sizes)[:3]
        at = self.sets[s]
        label, doubt, other = at.label.flatten(), at.doubt.flatten(), at.other.flatten(0, 1)
        if rows is not None:
            label, doubt, other = label[rows], doubt[rows], other[rows]
        wrong = torch.sigmoid(level[s] + own[label] + slope[s].exp() * doubt)[:, None]
        return (1 - wrong) * self.same[label] + wrong * other

    def agreement(self, theta: Tensor) -> Tensor:
        """B (K, K)."""
        if self.exact:
            return self.same.clamp(1e-3, 1 - 1e-3)
        rates, apart = theta.split(self.sizes)[3:5]
        logits = torch.where(self.same > 0, rates[0], rates[1])
        both = torch.zeros_like(logits).index_put((self.upper[0], self.upper[1]), apart)
        share = torch.sigmoid(logits + both + both.T - torch.diag(both.diag()))
        return torch.where(self.same > 0, LEAST_SIMILAR + (1 - LEAST_SIMILAR) * share, (1 - LEAST_SIMILAR) * share)

    def hardness(self, theta: Tensor, s: int) -> Tensor:
        """h of the items that answers are about, (n, 1)."""
        c, d = theta.split(self.sizes)[5]
        at = self.sets[s]
        h = torch.sigmoid(c + d.exp() * at.doubt.flatten()[at.used])[:, None]
        return torch.zeros_like(h) if self.exact or self.apart else h

    def told(self, theta: Tensor, s: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(m (n, K) of the items that answers are about, and log-likelihoods (M, K) of each answer, by the class of its left and right item)."""
        at, m, h = self.sets[s], self.beliefs(theta, s, self.sets[s].used), self.hardness(theta, s)
        other, y = at.other.flatten(0, 1)[at.used], at.similar[:, None]
        p = ((1 - h) * m + h * other) @ self.agreement(theta)  # of "similar", given how the other item is seen
        ends = []
        for one, two in ((at.at_left, at.at_right), (at.at_right, at.at_left)):
            q = (1 - h[one]) * p[two] + h[one] * (other[one] * p[two]).sum(1, keepdim=True)
            q = q.clamp(LEAST, 1 - LEAST)
            ends.append(torch.lerp((1 - q).log(), q.log(), y))
        return m, (ends[0], ends[1])

    def log_joint(self, theta: Tensor) -> Tensor:
        """Prior and likelihood: every answer counts once in all, though it tells about two items and judges a fit of every set."""
        level, slope, own, rates, apart, blur = theta.split(self.sizes)
        centre, (c, d) = rates.new_tensor(RATES), blur
        normal = [(level, LEVEL), (slope, SLOPE), (rates - centre, RATE)]
        normal += [(c - BLUR[0], BLUR[1]), (d - BLUR_SLOPE[0], BLUR_SLOPE[1])]
        total = torch.zeros((), dtype=theta.dtype)
        for part, scale in normal:
            total = total - (part / scale).square().sum() / 2
        for part, scale in ((own, CLUSTER), (apart, PAIR)):
            total = total - 1.5 * torch.log1p((part / scale).square() / 2).sum()
        for s in range(len(self.sets)):
            if self.apart:
                m, at, B = self.beliefs(theta, s, self.sets[s].used), self.sets[s], self.agreement(theta)
                q = ((m[at.at_left] @ B) * m[at.at_right]).sum(1).clamp(LEAST, 1 - LEAST)
                total = total + torch.lerp((1 - q).log(), q.log(), at.similar).sum() / len(self.sets)
            else:
                m, told = self.told(theta, s)
                total = total + torch.logsumexp(
                    m.clamp(min=LEAST).log() + sum_by_item(m, self.sets[s], told), 1
                ).sum() / (2 * len(self.sets))
        return total

    def _fit(self) -> tuple[Tensor, Tensor]:
        """The highest mode that two starts lead to, labels mostly right and labels as sure as they say; and a Laplace factor there."""
        found = []
        for level in (0.0, -3.0):
            theta = torch.zeros(sum(self.sizes), dtype=torch.float64)
            theta[: self.sizes[0]] = level
            theta[sum(self.sizes[:3]) : sum(self.sizes[:4])] = torch.tensor(RATES, dtype=torch.float64)
            theta[-2:] = torch.tensor([BLUR[0], BLUR_SLOPE[0]], dtype=torch.float64)
            theta.requires_grad_()
            optimizer = torch.optim.LBFGS(
                [theta], max_iter=200, tolerance_grad=1e-3, tolerance_change=TOLERANCE, line_search_fn="strong_wolfe"
            )

            def loss() -> Tensor:
                optimizer.zero_grad()  # noqa: B023
                value = -self.log_joint(theta)  # noqa: B023
                value.backward()
                return value

            optimizer.step(loss)
            end = theta.detach()
            found.append((float(self.log_joint(end)), end))
        mode = max(found, key=lambda pair: np.nan_to_num(pair[0], nan=-np.inf))[1]
        steps = STEP * torch.eye(len(mode), dtype=mode.dtype)
        at = self._gradient(mode)
        hessian = torch.stack(
            [(at - self._gradient(mode + step)) / STEP for step in steps]
        )  # a third of the time of autograd's
        values, vectors = torch.linalg.eigh((hessian + hessian.T) / 2)
        return mode, vectors / values.clamp(min=1 / LEVEL**2).sqrt()

    def _gradient(self, theta: Tensor) -> Tensor:
        theta = theta.clone().requires_grad_()
        return torch.autograd.grad(self.log_joint(theta), theta)[0]

    def draws(self, n: int, seed: int) -> Tensor:
        """theta (n, P) around the mode."""
        noise = torch.randn(n, len(self.mode), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return self.mode + noise @ self.factor.T


def sum_by_item(m: Tensor, at: Judged, told: tuple[Tensor, Tensor]) -> Tensor:
    """What all answers about each item tell of its class, (n, K)."""
    return torch.zeros_like(m).index_add(0, at.at_left, told[0]).index_add(0, at.at_right, told[1])


@dataclass(frozen=True)
class Read:
    """What one theta says of some labels.

    right: (S,), how often the labels of the fits of every set are right. beliefs: (N, K), the mean over the fits of the first set.
    others: (V,), how much belief of the other fits lies on each of these fits' own labels.
    """

    right: Float64
    beliefs: Float64
    others: Float64

    def of(self, labels: Ints, more: float = 0.0) -> float:
        """How often ``labels`` (N,) are right: as often as those of the fits, but for how much more or less the fits believe in them.

        Where they believe less, the difference is lost. Where they believe more, labels gain at least as far as those that other fits did not
        believe in were wrong, and at most all of it, which may lead beyond 1; ``more``: how far from the one to the other.
        """
        right, others = float(self.right[0]), float(self.others.mean())
        gain = float(np.take_along_axis(self.beliefs, labels[:, None], 1).mean()) - others
        least = min(1.0, (1 - right) / max(1 - others, 1e-9)) if gain > 0 else 1.0
        return right + gain * (least + more * (1 - least))


def read(found: Calibration, theta: Tensor) -> Read:
    """Beliefs at theta."""
    with torch.no_grad():
        right = [
            float(found.beliefs(theta, s).gather(1, at.label.flatten()[:, None]).mean())
            for s, at in enumerate(found.sets)
        ]
        m = found.beliefs(theta, 0).view(found.sets[0].shape).numpy()
    own, total, V = found.sets[0].label.numpy(), m.sum(axis=0), len(m)
    others = [np.take_along_axis((total - m[v]) / (V - 1), own[v][:, None], 1).mean() for v in range(V)]
    return Read(np.array(right), total / V, np.array(others))
