"""What an annotator does with every item, let out of what is left of the answers."""

import torch
from torch import Tensor

# An annotator's own rates of "similar" count as much as everyone's after so many answers.
OWN = 10.0


def beside_rates(residual: Tensor, expected: Tensor, by: Tensor) -> Tensor:
    """Residuals (M, S) less what ridge regression on 1 and ``expected`` (M,), annotator by annotator, makes of them."""
    known = torch.stack([torch.ones_like(expected), expected], 1)
    n, K = int(by.max()) + 1, known.shape[1]
    gram = known.new_zeros(n, K, K).index_add_(0, by, known[:, :, None] * known[:, None, :])
    columns = [part[:, None].to(residual.dtype) for part in known.unbind(1)]
    moments = torch.stack(
        [residual.new_zeros(n, residual.shape[1]).index_add_(0, by, c * residual) for c in columns], 1
    )
    own = torch.linalg.solve(gram + OWN * torch.eye(K, dtype=known.dtype), moments.to(known.dtype)).to(residual.dtype)
    for k, c in enumerate(columns):  # one at a time: (M, S) may be large
        residual = residual - c * own[:, k][by]
    return residual
