"""The volume of a set of memberships: logdet of their normalised Gram matrix."""

import torch
from torch import Tensor

# Added to the diagonal of the Gram before its Cholesky factor. The Gram of n memberships has trace at most 1,
# and float64 rounding perturbs its eigenvalues by about 1e-16, so 1e-10 keeps the factor defined on collapse
# and moves logdet by less than 1e-8 for every Gram whose smallest eigenvalue is above .01 * K.
JITTER = 1e-10


def log_volume(memberships: Tensor) -> Tensor:
    """logdet(F'F / n + JITTER I) for memberships F (..., n, K), in float64 on F's device; never waits for the host.

    The paper's logdet(F'F) is this plus K log n: the normalised form does not depend on n, so a minibatch
    estimates it on the scale of the whole.
    """
    F = memberships.double()
    gram = F.mT @ F / F.shape[-2] + JITTER * torch.eye(F.shape[-1], dtype=torch.float64, device=F.device)
    factor, _ = torch.linalg.cholesky_ex(gram)
    logdet: Tensor = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return logdet
