"""DC-GMM: deep conditional Gaussian mixture model (Manduchi, Chin-Cheong, Michel, Wellmann and Vogt, NeurIPS 2021)."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from pdcc.arrays import Float64, Ints
from pdcc.baselines.deep import DeepPairClusterer, TrainEpoch, label_moments
from pdcc.exclusive import one_core
from pdcc.inference.batches import PairTensors, epoch_order
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.epoch_loop import descend
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.dcgmm import ConditionalMixture, MixtureBatch, RecognitionGuide
from pdcc.validation import check_number, check_one_of

# The released weights of answers that are never wrong, and of a unit of log((1 - q) / q) otherwise.
HARD, SOFT = 10_000.0, 1000.0
# q(z | x) sets out narrow beside the clusters: this share of their mean variance.
START_VARIANCE = 0.1


class DCGMM(DeepPairClusterer):
    """A Gaussian mixture VAE whose prior on the clusters of an answered pair is tilted by its answer.

    ``ConditionalMixture`` tells the model's story. An epoch passes over all items and all pairs once, both cut at
    random into the same number of batches of at most ``batch_size``; each step estimates the whole ELBO from one of
    each. Unseen items go by p(c | z) at the mean of q(z | x). The answers' flip rate is an argument of the method: the
    paper, and comparisons with it, pass the true one. The release trains longer (1000 epochs at a decaying rate).

    Args:
        n_clusters: K.
        flip_rate: q, the share of wrong answers, below one half; 0.1 unless you know better.
        weight: |W|, "paper" (1000 log((1 - q) / q), or 10000 for q = 0), "bayes" (log((1 - q) / q), the answers'
            log likelihood ratio) or a number.
        hidden, latent: widths of the encoder's hidden layers and of the code; the decoder mirrors them.
        dropout: probability of dropping a hidden unit of the encoder while training.
        scale: None, "unit", "standard" or "auto", as in VolMaxDCC.
        init: "own" (a Gaussian mixture of the codes), or "kmeans" or "pairs": components at the codes of VolMaxDCC's start.
        pretrain_epochs, corruption: passes over the items, and share of entries blanked, in autoencoder pretraining.
        epochs: at most this many passes over items and pairs.
        patience, validation_fraction: as in VolMaxDCC; with pairs held out, the epoch that predicts them best is kept.
        batch_size, lr: of Adam.
        random_state: seed; an int fixes everything on one device.
        device: "auto", "cpu", "cuda", ...
        pretrained: a directory that keeps pretrained autoencoders, for further fits to the same features and seed.
        progress: show a bar; None: at a terminal.

    Fitted attributes: memberships_ (N, K), labels_ (N,), history_, status_, message_, model_ and guide_ (the Pyro program).
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        flip_rate: float = 0.1,
        weight: float | str = "paper",
        hidden: tuple[int, ...] = (500, 500, 2000),
        latent: int = 10,
        dropout: float = 0.0,
        scale: str | None = None,
        init: str = "own",
        pretrain_epochs: int = 30,
        corruption: float = 0.0,
        epochs: int = 40,
        patience: int | None = None,
        validation_fraction: float = 0.0,
        batch_size: int = 256,
        lr: float = 1e-3,
        random_state: Any = None,
        device: Any = "auto",
        pretrained: str | Path | None = None,
        progress: bool | None = None,
    ):
        self.n_clusters = n_clusters
        self.flip_rate = flip_rate
        self.weight = weight
        self.hidden = hidden
        self.latent = latent
        self.dropout = dropout
        self.scale = scale
        self.init = init
        self.pretrain_epochs = pretrain_epochs
        self.corruption = corruption
        self.epochs = epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.batch_size = batch_size
        self.lr = lr
        self.random_state = random_state
        self.device = device
        self.pretrained = pretrained
        self.progress = progress

    def _check(self) -> None:
        super()._check()
        check_number("flip_rate", self.flip_rate, 0.0, 0.5)
        if isinstance(self.weight, str):
            check_one_of("weight", self.weight, ("paper", "bayes"))
            if self.weight == "bayes" and self.flip_rate == 0:
                raise ValueError(
                    "weight: expected a finite weight, found 'bayes' with flip_rate=0, which is infinite. Pass a flip_rate above 0 or weight='paper'."
                )
        else:
            check_number("weight", self.weight, 0.0)

    def _set_up(
        self, net: Autoencoder, codes: Float64, pairs: PairTensors, start: Ints | None, seed: int
    ) -> tuple[nn.Module, TrainEpoch]:
        loc, variance = (
            _mixture(codes, self.n_clusters, seed) if start is None else label_moments(codes, start, self.n_clusters)
        )
        sizes = {"n_items": len(pairs.x), "n_pairs": len(pairs)}
        model = ConditionalMixture(
            net.decoder, self.n_clusters, self.latent, **sizes, weight=pair_weight(self.weight, self.flip_rate)
        )
        model.start(torch.as_tensor(loc), torch.as_tensor(variance))
        narrow = START_VARIANCE * float(variance.mean())
        guide = RecognitionGuide(net.encoder, self.latent, **sizes, start_variance=narrow)
        module = nn.ModuleDict({"model": model, "guide": guide}).to(pairs.x.device)
        self.model_, self.guide_ = model, guide
        optimizer = torch.optim.Adam(module.parameters(), lr=self.lr, fused=True)
        n_items, n_pairs = len(pairs.x), len(pairs)
        steps = min(math.ceil(max(n_items, n_pairs) / self.batch_size), n_items, n_pairs)  # no batch is ever empty

        def train_epoch(epoch: int, _: Tensor) -> Tensor:
            total = torch.zeros((), dtype=torch.float64, device=pairs.x.device)
            shown = epoch_order(n_items, seed, epoch, pairs.x.device).tensor_split(steps)
            asked = epoch_order(n_pairs, seed + 1, epoch, pairs.x.device).tensor_split(steps)
            for items, index in zip(shown, asked, strict=True):
                loss = negative_elbo(model, guide, mixture_batch(pairs, items, index)) / n_items
                total += descend(optimizer, loss) / steps
            return total

        return module, train_epoch

    def _log_memberships(self, x: Tensor) -> Tensor:
        mean, _ = self.guide_.posterior(x)
        log_responsibilities: Tensor = self.model_.log_responsibilities(mean)
        return log_responsibilities


def pair_weight(weight: float | str, flip_rate: float) -> float:
    """|W| for answers of which a share ``flip_rate`` is wrong; see ``DCGMM``."""
    if not isinstance(weight, str):
        return float(weight)
    if flip_rate == 0:
        return HARD
    return (SOFT if weight == "paper" else 1.0) * math.log((1 - flip_rate) / flip_rate)


def mixture_batch(pairs: PairTensors, items: Tensor, index: Tensor) -> MixtureBatch:
    """The items (n,) and the pairs numbered ``index`` (b,) as the model is shown them."""
    return MixtureBatch(
        x=pairs.x[items],
        items=items,
        left=pairs.x[pairs.i[index]],
        right=pairs.x[pairs.j[index]],
        similar=pairs.similar[index],
        index=index,
    )


def _mixture(codes: Float64, n_clusters: int, seed: int) -> tuple[Float64, Float64]:
    """Means and variances (K, L) of a diagonal Gaussian mixture of the codes, the best of three."""
    with one_core(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not be at the optimum
        found = GaussianMixture(n_clusters, covariance_type="diag", n_init=3, random_state=seed).fit(codes)
    return np.asarray(found.means_), np.asarray(found.covariances_)
