"""f_theta: items to memberships."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def drop(h: Tensor, p: float) -> Tensor:
    """Dropout of h (..., n) with probability ``p``, rounded to 1/256 on the CPU: one byte decides about one number.

    Torch draws a 64-bit number for each on the CPU, which takes longer than all else in a step of a small net.
    """
    if h.device.type != "cpu":
        return nn.functional.dropout(h, p)
    dropped = min(max(round(256 * p), 1), 255)
    words = torch.empty((*h.shape[:-1], -(-h.shape[-1] // 8)), dtype=torch.int64).random_(-(2**63), None)
    # One factor of h's own type: products of two types are computed a piece at a time, forward and backward.
    kept = words.view(torch.uint8)[..., : h.shape[-1]].to(h.dtype).ge_(dropped).mul_(256 / (256 - dropped))
    return h * kept


class Dropout(nn.Dropout):
    """``drop`` while training, nothing else."""

    def forward(self, input: Tensor) -> Tensor:
        """The same shape, some numbers put to 0 and the others scaled up."""
        return drop(input, self.p) if self.training and self.p > 0 else input


class Membership(nn.Module):
    """m = f_theta(x): a multilayer perceptron with a softmax head (paper, section 6, "Neural Network Settings").

    Args:
        n_features: d, the width of a feature row.
        n_clusters: K.
        hidden: widths of the hidden ReLU layers; ``()`` is multinomial logistic regression.
        dropout: probability of dropping a hidden unit while training.

    mixed: while training, products are computed in bfloat16; weights and scores keep their own precision.
    """

    layers: nn.Module
    n_clusters: int
    mixed: bool = False

    def __init__(self, n_features: int, n_clusters: int, hidden: Sequence[int] = (512, 512), dropout: float = 0.0):
        super().__init__()
        widths = [n_features, *hidden]
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
            if dropout > 0:
                layers.append(Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], n_clusters))
        self.n_clusters = n_clusters

    def logits(self, x: Tensor) -> Tensor:
        """Scores before the softmax, (n, K)."""
        if not (self.mixed and self.training and torch.amp.is_autocast_available(x.device.type)):
            out: Tensor = self.layers(x)
            return out
        # The net alone: from its scores on, likelihood and volume are computed as they always are.
        with torch.autocast(x.device.type, torch.bfloat16):
            rounded: Tensor = self.layers(x)
        return rounded.to(next(self.parameters()).dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Memberships (n, K), rows on the simplex, for items (n, ...)."""
        return torch.softmax(self.logits(x), dim=-1)


class NetworkMembership(Membership):
    """m = softmax(network(x)) for any module from a batch of items to K logits."""

    def __init__(self, network: nn.Module, n_clusters: int):
        nn.Module.__init__(self)
        self.layers = network
        self.n_clusters = n_clusters
