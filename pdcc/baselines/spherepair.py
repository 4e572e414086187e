"""SpherePair: angular constraint embedding, then K-means on the sphere (Zhang and Chen, NeurIPS 2025)."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn import cluster
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from pdcc.arrays import Features, Float32, Float64, Ints
from pdcc.baselines.deep import DeepPairClusterer, TrainEpoch
from pdcc.baselines.kmeans import centroids, steady
from pdcc.data.pairs import PairData
from pdcc.inference.batches import PairTensors, epoch_order
from pdcc.inference.epoch_loop import in_parts
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.baselines.spherepair import SphericalClusters
from pdcc.validation import check_device, check_number

# The released number of K-means starts, and its bound on the length of a gradient.
TRIES, LONGEST_STEP = 50, 1.0
# Reading K off: the share of "different" pairs with the smallest angles, as released, and (ours) what share of the
# largest mean angle of those counts as having got there.
TAIL, THERE = 0.05, 0.9


class SpherePair(DeepPairClusterer):
    """Codes on a sphere: similar pairs at angle 0, different ones at pi / ``omega`` or more; K-means of the codes comes last.

    ``SphericalClusters`` has the formulas. An epoch passes over all pairs and all items once; each step adds the loss of a
    batch of pairs and ``reconstruction_weight`` times that of as many parts of the items. The answers are taken as they are: the
    loss knows no noise. Loss and defaults are those of the released code, except:

    * the release pretrains longer (layer by layer, then 500 epochs of SGD); pretraining here is that of the other baselines, with
      codes of unit length;
    * it allows 500 epochs (300 in its examples) and stops after the hundredth as soon as the loss is lower than ever before,
      which where losses still fall is at once: 101 epochs.

    Ours are the memberships (a sharp softmax of cosines; the method assigns items outright), and that with a given start, or with pairs
    held out, clusters are carried from epoch to epoch by K-means from the centres before, and those of the epoch kept are the last.

    Args:
        n_clusters: K.
        omega: 2 puts different pairs at a right angle or beyond, which works for every K while ``latent`` is K or more;
            pi / arccos(-1 / (K - 1)) asks for all K clusters at equal angles.
        reconstruction_weight: lambda.
        hidden, latent: widths of the encoder's hidden layers and of the code; the decoder mirrors them.
        dropout: probability of dropping a hidden unit of the encoder while training.
        scale: None, "unit", "standard" or "auto", as in VolMaxDCC; the release standardises columns.
        init: "own" (K-means of the codes), or "kmeans" or "pairs": clusters set out from VolMaxDCC's start.
        pretrain_epochs, corruption: passes over the items, and share of entries blanked, in autoencoder pretraining.
        epochs: at most this many.
        patience, validation_fraction: as in VolMaxDCC; with pairs held out, the epoch that predicts them best is kept.
        batch_size, lr: of Adam.
        random_state: seed; an int fixes everything on one device.
        device: "auto", "cpu", "cuda", ...
        pretrained: a directory that keeps pretrained autoencoders, for further fits to the same features and seed.
        progress: show a bar; None: at a terminal.

    Fitted attributes: memberships_ (N, K), labels_ (N,), history_, status_, message_, module_ (the trained net).

    Examples:
        >>> import numpy as np
        >>> from pdcc.baselines.spherepair import SpherePair
        >>> X = np.repeat(np.eye(3), 20, axis=0) + 0.01 * np.arange(60)[:, None]
        >>> pairs = np.array([[i, (7 * i + 1) % 60] for i in range(60)])
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> est = SpherePair(3, hidden=(16,), latent=4, epochs=5, random_state=0).fit(X, pairs, similar)
        >>> est.embed(X[:2]).shape
        (2, 4)
    """

    unit_codes = True
    module_: SphericalClusters

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        omega: float = 2.0,
        reconstruction_weight: float = 0.02,
        hidden: tuple[int, ...] = (500, 500, 2000),
        latent: int = 10,
        dropout: float = 0.0,
        scale: str | None = "standard",
        init: str = "own",
        pretrain_epochs: int = 30,
        corruption: float = 0.2,
        epochs: int = 101,
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
        self.omega = omega
        self.reconstruction_weight = reconstruction_weight
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
        check_number("omega", self.omega, 1.0)
        check_number("reconstruction_weight", self.reconstruction_weight, 0.0)

    def _set_up(
        self, net: Autoencoder, codes: Float64, pairs: PairTensors, start: Ints | None, seed: int
    ) -> tuple[nn.Module, TrainEpoch]:
        module = SphericalClusters(net, self.n_clusters, self.latent, self.omega).to(pairs.x.device)
        module.centres.copy_(torch.as_tensor(sphere_centres(codes, self.n_clusters, seed, start=start)))
        weights = list(module.parameters())
        optimizer = torch.optim.Adam(weights, lr=self.lr, fused=True)
        n_items, n_pairs = len(pairs.x), len(pairs)
        steps = min(math.ceil(n_pairs / self.batch_size), n_items)  # no batch is ever empty

        def train_epoch(epoch: int, _: Tensor) -> Tensor:
            losses = []
            shown = epoch_order(n_items, seed, epoch, pairs.x.device).tensor_split(steps)
            asked = epoch_order(n_pairs, seed + 1, epoch, pairs.x.device).tensor_split(steps)
            for items, index in zip(shown, asked, strict=True):
                ends = pairs.x[pairs.i[index]], pairs.x[pairs.j[index]]
                loss = module.pair_loss(*ends, pairs.similar[index])
                loss = loss + self.reconstruction_weight * module.reconstruction_loss(pairs.x[items])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                clip_grad_norm_(weights, LONGEST_STEP)
                optimizer.step()
                losses.append(loss.detach())
            module.eval()
            now = in_parts(module.codes, pairs.in_memory).double().cpu().numpy()
            if np.isfinite(now).all():  # else memberships are not, and the loop ends
                carried = module.centres.double().cpu().numpy()
                module.centres.copy_(torch.as_tensor(sphere_centres(now, self.n_clusters, seed, centres=carried)))
            return torch.stack(losses).mean()

        return module, train_epoch

    def _train(self, x: Float32, data: PairData, start: Ints | None, seed: int) -> Ints:
        labels = super()._train(x, data, start, seed)
        if start is not None or self.validation_fraction > 0:
            return labels
        features = self._tensor(x, check_device(self.device))
        codes = in_parts(self.module_.codes, features).double().cpu().numpy()
        self.module_.centres.copy_(torch.as_tensor(sphere_centres(codes, self.n_clusters, seed)))
        self.memberships_ = self._memberships(features)
        return np.asarray(self.memberships_.argmax(axis=1), dtype=np.int64)

    def _log_memberships(self, x: Tensor) -> Tensor:
        log_memberships: Tensor = self.module_(x)
        return log_memberships

    def embed(self, X: Features) -> Float64:
        """Codes (n, L) of unit length, of seen or unseen items X (n, d)."""
        features = self._features(X)
        device = next(self.module_.parameters()).device
        x = self._tensor(self.scaler_(features), device)
        return np.asarray(in_parts(self.module_.codes, x).double().cpu().numpy())

    def read_n_clusters(self, X: Features, pairs: ArrayLike, similar: ArrayLike) -> int:
        """The number of clusters that the codes of "different" pairs among items X (n, d) stand for, at most L + 1.

        K clusters at equal angles span K - 1 dimensions. With fewer principal components some of them fall together, and
        the smallest angles between items that were called different shrink (``smallest_angles``). That the paper reads K
        off there is its idea, which number it takes from the curve is ours: the first component that brings those angles to
        nine tenths of the largest they reach. Wrong answers are among the smallest angles, so noise hides K.
        """
        codes = self.embed(X)
        data = PairData.from_arrays(X, pairs, similar)
        curve = smallest_angles(codes, np.column_stack([data.i, data.j])[~data.similar])
        return int(np.flatnonzero(curve >= THERE * curve.max())[0]) + 2


def sphere_centres(
    codes: Float64, n_clusters: int, seed: int, *, start: Ints | None = None, centres: Float64 | None = None
) -> Float64:
    """Centres (K, L) by K-means of unit codes (N, L): means of the labels ``start`` (N,), or from ``centres`` (K, L), or the best of many."""
    if start is not None:
        return centroids(codes, start, n_clusters)
    how: dict[str, Any] = {"n_init": TRIES} if centres is None else {"init": centres, "n_init": 1}
    with steady():
        found = cluster.KMeans(n_clusters, random_state=seed, **how).fit(codes)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def smallest_angles(codes: Float64, different: Ints) -> Float64:
    """Mean of the smallest twentieth of the angles between pairs ``different`` (M, 2), in 1 to L principal components, (L,)."""
    touched = np.unique(different)
    parts = PCA().fit(codes[touched]).transform(codes)
    found = []
    for n_parts in range(1, parts.shape[1] + 1):
        kept = parts[:, :n_parts]
        kept = kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        cosines = (kept[different[:, 0]] * kept[different[:, 1]]).sum(axis=1)
        angles = np.sort(np.arccos(np.clip(cosines, -1.0, 1.0)))
        found.append(angles[: max(1, int(TAIL * len(angles)))].mean())
    return np.asarray(found)
