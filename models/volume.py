"""The volume of a set of memberships: logdet of their normalised Gram matrix."""

from collections.abc import Callable

import torch
from torch import Tensor

# Sums a tensor over all processes that share a batch.
Pool = Callable[[Tensor], Tensor]

# Added to the diagonal of the Gram before its Cholesky factor. The Gram of n memberships has trace at most 1,
# and float64 rounding perturbs its eigenvalues by about 1e-16, so 1e-10 keeps the factor defined on collapse
# and moves logdet by less than 1e-8 for every Gram whose smallest eigenvalue is above .01 * K.
JITTER = 1e-10


def mean_gram(memberships: Tensor, pool: Pool | None = None) -> Tensor:
    """F'F / n, (..., K, K), for memberships F (..., n, K), in float64; with ``pool``, for those of all processes together."""
    F = memberships.double()
    gram, n = F.mT @ F, F.shape[-2]
    if pool is None:
        return gram / n
    # How many there are goes along, since the processes' shares may differ.
    pooled = pool(torch.cat([gram.flatten(-2), gram.new_full((*gram.shape[:-2], 1), n)], -1))
    return pooled[..., :-1].view_as(gram) / pooled[..., -1:, None]


def log_volume(memberships: Tensor, pool: Pool | None = None) -> Tensor:
    """logdet(F'F / n + JITTER I) for memberships F (..., n, K), in float64 on F's device; never waits for the host.

    pool: where F is one process's share of a batch, what sums over all of them: the volume is then that of the whole batch.

    The paper's logdet(F'F) is this plus K log n: the normalised form does not depend on n, so a minibatch
    estimates it on the scale of the whole.
    """
    gram = mean_gram(memberships, pool)
    gram = gram + JITTER * torch.eye(gram.shape[-1], dtype=torch.float64, device=gram.device)
    factor, _ = torch.linalg.cholesky_ex(gram)
    logdet: Tensor = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return logdet
