"""pdcc by hand, in Pyro's own words: a model, a guide, pyro.infer.SVI, and predictions.

python examples/train_svi.py [--epochs 40] [--pairs 4000] [--volume 0.01]
"""

import argparse

import numpy as np
import pyro
import torch
from pyro.infer import SVI, Trace_ELBO

from pdcc import datasets, metrics
from pdcc.annotators import answer_through, draw_pairs
from pdcc.baselines.kmeans import kmeans
from pdcc.inference import PairTensors, map_guide, memberships, point_agreement, warm_start
from pdcc.models import AnnotationModel, Membership, StochasticConfusion

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--pairs", type=int, default=4000)
parser.add_argument("--volume", type=float, default=0.01)
args = parser.parse_args()

# Data: digits, and annotators who take every digit for its successor one time in five.
K, rng = 10, np.random.default_rng(0)
pyro.set_rng_seed(0)
data = datasets.digits()
A = 0.8 * np.eye(K) + 0.2 * np.roll(np.eye(K), 1, axis=0)  # A[observed, true]
answers = answer_through(np.eye(K)[data.y], draw_pairs(len(data.X), args.pairs, rng), A, rng)
print(f"{args.pairs} answers, {100 * answers.flip_rate:.1f} % of them wrong")

x = torch.as_tensor(data.X)
i, j = torch.as_tensor(answers.pairs).T
pairs = PairTensors(x, i, j, torch.as_tensor(answers.similar).float())

# The generative story, and a guide that is a point at every latent site: SVI is then MAP, the paper's objective.
net = Membership(x.shape[1], K, hidden=(256,), dropout=0.3)
warm_start(net, x, torch.as_tensor(kmeans(data.X, K, tries=5, seed=0)), seed=0)
model = AnnotationModel(net, StochasticConfusion(K), n_pairs=len(pairs), volume=args.volume)
guide = map_guide(model)  # any guide will do: AutoDelta, AutoNormal, AutoLowRankMultivariateNormal, ...


def rates(name: str) -> dict[str, float]:
    """The confusion needs a larger rate than the net, whose sites begin with "membership"."""
    return {"lr": 1e-3 if name.startswith("membership") else 1e-2}


svi = SVI(model, guide, pyro.optim.Adam(rates), Trace_ELBO())
for epoch in range(args.epochs):
    model.train()
    losses = [svi.step(pairs.batch(index)) for index in torch.randperm(len(pairs)).split(128)]
    if epoch % 10 == 0 or epoch == args.epochs - 1:
        accuracy = metrics.acc(data.y, memberships(model, x).argmax(1).numpy())
        print(f"epoch {epoch:3d}  loss per answer {np.mean(losses) / len(pairs):.4f}  ACC {accuracy:.3f}")

unseen = memberships(model, torch.as_tensor(data.X_unseen)).argmax(1).numpy()
print(f"unseen ACC {metrics.acc(data.y_unseen, unseen):.3f}")
print("P(called similar | pure k, pure k), by cluster:", np.round(point_agreement(model, guide).diagonal().numpy(), 2))
