"""The terms of the objective (paper eqs. 9, 13) as pure functions: the Pyro program and the vectorised refits both use these."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from pdcc.models.volume import Pool, log_volume


def similar_logits(left: Tensor, right: Tensor, agreement: Tensor) -> Tensor:
    """log p - log(1 - p) for p = <A m_i, A m_j> = m_i' B m_j, (..., b), memberships (..., b, K) each; finite for p = 0 and 1.

    B is one for all pairs, (K, K) or (..., 1, K, K), or one for each, (..., b, K, K).
    """
    if agreement.ndim > 2 and agreement.shape[-3] != 1:
        return _logits(left.unsqueeze(-2), right.unsqueeze(-2), agreement).squeeze(-1)
    return _logits(left, right, agreement if agreement.ndim == 2 else agreement.squeeze(-3))


def _logits(left: Tensor, right: Tensor, agreement: Tensor) -> Tensor:
    """For memberships (..., n, K) and B (..., K, K).

    Memberships sum to one, so 1 - p = m_i' (11' - B) m_j. Computing it that way keeps its relative precision
    (1 - p by subtraction loses all digits, and its gradient, once p rounds to 1).
    """
    both = left @ torch.cat([agreement, 1 - agreement], dim=-1)  # p and 1 - p in one product
    both = both.unflatten(-1, (2, agreement.shape[-1])) * right.unsqueeze(-2)
    logs: Tensor = both.sum(-1).clamp(min=torch.finfo(left.dtype).tiny).log()
    return logs[..., 0] - logs[..., 1]


def answer_logits(left: Tensor, right: Tensor, agreement: Tensor, annotator: Tensor | None) -> Tensor:
    """``similar_logits`` where B may be one for all, (..., K, K), or, given ``annotator`` (b,), one each, (..., R, K, K)."""
    return similar_logits(left, right, agreement if annotator is None else agreement.index_select(-3, annotator))


def answer_nll(logits: Tensor, similar: Tensor) -> Tensor:
    """Negative log-likelihood of each answer, (..., b): -log Bernoulli(similar | logits)."""
    return binary_cross_entropy_with_logits(logits, similar.to(logits).expand_as(logits), reduction="none")


def volume_factor(memberships: Tensor, total_weight: float, volume: float, pool: Pool | None = None) -> Tensor:
    """W lambda logdet(F'F / n) for memberships F (..., n, K), in F's precision; 0 without a volume. pool: see ``log_volume``."""
    if volume == 0:
        return memberships.new_zeros(memberships.shape[:-2])
    return (total_weight * volume * log_volume(memberships, pool)).to(memberships)


def taken_for(memberships: Tensor, columns: Tensor) -> Tensor:
    """C m, (..., n, K): the probability of each label for memberships (..., n, K), columns of C as rows, (..., K, K)."""
    return memberships @ columns


def stochastic_agreement(columns: Tensor) -> Tensor:
    """B = A'A, (..., K, K), for the columns of A as rows, [true, observed]."""
    return columns @ columns.mT


def sigmoid_agreement(raw: Tensor, *, symmetric: bool) -> Tensor:
    """B = sigmoid(B'), (..., K, K), B' first made symmetric where asked for: P(i, j called similar) is then that of (j, i)."""
    return torch.sigmoid((raw + raw.mT) / 2 if symmetric else raw)


def two_rates(rates: Tensor, identity: Tensor) -> Tensor:
    """Logits of B, (..., K, K), for those of two rates (..., 2), within clusters and across them."""
    within, across = rates[..., 0, None, None], rates[..., 1, None, None]
    return across + (within - across) * identity


def annotator_columns(columns: Tensor, shift: Tensor) -> Tensor:
    """Columns of every annotator's A as rows, [r, true, observed], the shared ones last, (..., R + 1, K, K).

    columns: the shared ones, (K, K) or (..., 1, K, K). shift: (..., R, K, K). A_r is softmax(log A + shift_r), column by column.
    """
    own = torch.softmax(columns.clamp(min=torch.finfo(columns.dtype).tiny).log() + shift, -1)
    return torch.cat([own, columns.expand(*own.shape[:-3], 1, *columns.shape[-2:])], -3)


def log_dirichlet(columns: Tensor, concentration: Tensor) -> Tensor:
    """Log density of columns (..., K, K), up to a constant: sum of (concentration - 1) log."""
    return ((concentration - 1) * columns.clamp(min=torch.finfo(columns.dtype).tiny).log()).sum((-2, -1))
