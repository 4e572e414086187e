"""C-IDEC: constrained improved deep embedded clustering (Zhang, Basu and Davidson, 2019 and 2021)."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdcc.arrays import Float64, Ints
from pdcc.baselines.deep import DeepPairClusterer, TrainEpoch, label_moments
from pdcc.baselines.kmeans import kmeans
from pdcc.inference.batches import PairTensors, epoch_order
from pdcc.inference.epoch_loop import descend
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.cidec import EmbeddedClusters, log_target
from pdcc.validation import check_number

TRIES = 20


class CIDEC(DeepPairClusterer):
    """Soft assignments of codes to centres, sharpened towards themselves, with a loss for similar and one for different pairs.

    As released, an epoch is a pass over the items (reconstruction + ``kl_weight`` KL to the sharpened assignments of
    the epoch's start), one over the similar pairs (with both reconstructions) and one over the different pairs.
    Not a probability model: ``EmbeddedClusters`` has the formulas. The answers are taken as they are: the release
    first adds all pairs that they imply, which noisy answers contradict. The release pretrains longer (layer by layer,
    then 500 epochs) and runs up to 200 epochs.

    Args:
        n_clusters: K.
        hidden, latent: widths of the encoder's hidden layers and of the code; the decoder mirrors them.
        kl_weight, must_link_weight, cannot_link_weight: weights of the losses; reconstruction has weight 1.
        exponent: of the Student-t kernel, 2 as in the released code; the formula of DEC's paper has 1.
        tol: stop when a smaller share of the labels changes in an epoch; 0: never.
        dropout: probability of dropping a hidden unit of the encoder while training.
        scale: None, "unit", "standard" or "auto", as in VolMaxDCC.
        init: "own" (K-means of the codes), or "kmeans" or "pairs": centres at the codes of VolMaxDCC's start.
        pretrain_epochs, corruption: passes over the items, and share of entries blanked, in autoencoder pretraining.
        epochs: at most this many.
        patience, validation_fraction: as in VolMaxDCC; with pairs held out, the epoch that predicts them best is kept.
        batch_size, lr: of Adam.
        random_state: seed; an int fixes everything on one device.
        device: "auto", "cpu", "cuda", ...
        pretrained: a directory that keeps pretrained autoencoders, for further fits to the same features and seed.
        progress: show a bar; None: at a terminal.

    Fitted attributes: memberships_ (N, K), labels_ (N,), history_, status_, message_, module_ (the trained net).
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        hidden: tuple[int, ...] = (500, 500, 2000),
        latent: int = 10,
        kl_weight: float = 0.1,
        must_link_weight: float = 0.1,
        cannot_link_weight: float = 1.0,
        exponent: float = 2.0,
        tol: float = 1e-3,
        dropout: float = 0.0,
        scale: str | None = None,
        init: str = "own",
        pretrain_epochs: int = 30,
        corruption: float = 0.2,
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
        self.hidden = hidden
        self.latent = latent
        self.kl_weight = kl_weight
        self.must_link_weight = must_link_weight
        self.cannot_link_weight = cannot_link_weight
        self.exponent = exponent
        self.tol = tol
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
        for name in ("kl_weight", "must_link_weight", "cannot_link_weight"):
            check_number(name, getattr(self, name), 0.0)
        check_number("exponent", self.exponent, 0.0, open_low=True)
        check_number("tol", self.tol, 0.0, 1.0)

    def _set_up(
        self, net: Autoencoder, codes: Float64, pairs: PairTensors, start: Ints | None, seed: int
    ) -> tuple[nn.Module, TrainEpoch]:
        labels = kmeans(codes, self.n_clusters, tries=TRIES, seed=seed) if start is None else start
        module = EmbeddedClusters(net, self.n_clusters, self.latent, self.exponent).to(pairs.x.device)
        with torch.no_grad():
            module.centres.copy_(torch.as_tensor(label_moments(codes, labels, self.n_clusters)[0]))
        optimizer = torch.optim.Adam(module.parameters(), lr=self.lr, fused=True)
        must, cannot = (torch.nonzero(pairs.similar == kind).squeeze(1) for kind in (1.0, 0.0))

        def order(n: int, epoch: int) -> tuple[Tensor, ...]:
            parts: tuple[Tensor, ...] = epoch_order(n, seed, epoch, pairs.x.device).split(self.batch_size)
            return parts

        def train_epoch(epoch: int, log_q: Tensor) -> Tensor:
            target, x = log_target(log_q), pairs.x
            losses = [
                descend(optimizer, module.cluster_loss(x[rows], target[rows], self.kl_weight))
                for rows in order(len(x), epoch)
            ]
            for part in order(len(must), epoch):
                ends = x[pairs.i[must[part]]], x[pairs.j[must[part]]]
                losses.append(descend(optimizer, module.must_link_loss(*ends, self.must_link_weight)))
            for part in order(len(cannot), epoch):
                ends = x[pairs.i[cannot[part]]], x[pairs.j[cannot[part]]]
                losses.append(descend(optimizer, module.cannot_link_loss(*ends, self.cannot_link_weight)))
            return torch.stack(losses).mean()

        return module, train_epoch

    def _log_memberships(self, x: Tensor) -> Tensor:
        log_q: Tensor = self.module_(x)
        return log_q
