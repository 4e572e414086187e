"""A network of one's own: a small convolutional net on digit images, trained end to end from pair answers.

python examples/own_network.py [--epochs 30] [--pairs 4000]
"""

import argparse
import tempfile

import numpy as np
from torch import nn

from pdcc import VolMaxDCC, datasets, metrics
from pdcc.annotators import answer_through, draw_pairs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--pairs", type=int, default=4000)
args = parser.parse_args()

K, rng = 10, np.random.default_rng(0)
data = datasets.digits()
images, unseen = (X.reshape(-1, 1, 8, 8) for X in (data.X, data.X_unseen))  # items first: N x C x H x W
A = 0.9 * np.eye(K) + 0.1 / K  # A[observed, true]
answers = answer_through(np.eye(K)[data.y], draw_pairs(len(images), args.pairs, rng), A, rng)


def network() -> nn.Module:
    """From a batch of images to K logits; called once for every start, so that restarts differ."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(32 * 4 * 4, K),
    )  # fmt: skip


est = VolMaxDCC(K, network=network, confusion="stochastic", volume=3e-3, scale=None, epochs=args.epochs, random_state=0)
est.fit(images, answers.pairs, answers.similar)
print(f"ACC seen {metrics.acc(data.y, est.labels_):.3f}, unseen {metrics.acc(data.y_unseen, est.predict(unseen)):.3f}")

# A run keeps the weights and no code: loading it asks for the network.
with tempfile.TemporaryDirectory() as directory:
    est.save(f"{directory}/run")
    again = VolMaxDCC.load(f"{directory}/run", network=network)
print("loaded predictions are equal:", np.array_equal(again.predict_proba(unseen), est.predict_proba(unseen)))
