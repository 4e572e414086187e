"""A noise model of one's own: how often annotators err depends on the items they look at.

Blurred items are hard to tell apart: there an answer is closer to a guess. The confusion below learns, for every pair, how
far its B lies between the shared one and a coin's from how blurred the two items are.

python examples/own_noise_model.py [--epochs 60] [--pairs 4000]
"""

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from pdcc import VolMaxDCC, metrics
from pdcc.models import Module, PairBatch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--pairs", type=int, default=4000)
args = parser.parse_args()

# Four clusters; the last column says how blurred an item is, and answers about blurred items are guesses.
K, N, rng = 4, 600, np.random.default_rng(0)
y, blur = np.arange(N) % K, rng.random(N)
X = np.column_stack([rng.normal(size=(K, 5))[y] + 0.7 * rng.normal(size=(N, 5)), blur]).astype(np.float32)
pairs = rng.integers(N, size=(args.pairs, 2))
pairs = pairs[pairs[:, 0] != pairs[:, 1]]
guess = rng.random(len(pairs)) < np.maximum(blur[pairs[:, 0]], blur[pairs[:, 1]]) ** 3
similar = np.where(guess, rng.random(len(pairs)) < 0.5, y[pairs[:, 0]] == y[pairs[:, 1]])


class BlurConfusion(Module):
    """B of a pair = (1 - g) I + g / 2, with g = sigmoid(a + b blur) of the more blurred of its two items."""

    def __init__(self, n_clusters: int):
        super().__init__()
        self.register_buffer("identity", torch.eye(n_clusters))
        self.line = nn.Parameter(torch.tensor([-2.0, 0.0]))

    def forward(self, batch: PairBatch) -> Tensor:
        """B for each pair of the batch, (b, K, K)."""
        left, right = batch.x[:, -1].chunk(2)
        guessed = torch.sigmoid(self.line[0] + self.line[1] * torch.maximum(left, right))[:, None, None]
        return (1 - guessed) * self.identity + guessed / 2


setting = {"volume": 1e-3, "partition_weight": 0.0, "hidden": (64,), "epochs": args.epochs, "random_state": 0}
for name, confusion in (("no confusion", "none"), ("one B for all", "sigmoid"), ("B by blur", BlurConfusion(K))):
    est = VolMaxDCC(K, confusion=confusion, scale="standard", **setting).fit(X, pairs, similar)
    nats = min(h["held_out"] for h in est.history_)
    print(f"{name:14} ACC {metrics.acc(y, est.labels_):.3f}  held-out nats per answer {nats:.3f}")
a, b = est.model_.confusion.line.tolist()
sharp, blurred = ((v - X[:, -1].mean()) / X[:, -1].std() for v in (0.1, 0.95))  # as the net sees them
shown = [1 / (1 + np.exp(-(a + b * v))) for v in (sharp, blurred)]
print(f"share of guesses among sharp pairs {shown[0]:.2f}, among blurred ones {shown[1]:.2f}")
