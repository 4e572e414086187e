"""What the deep baselines share: initial clusters, an autoencoder, epochs with early stopping, memberships."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pdcc.arrays import Features, Float32, Float64, Floats, Ints
from pdcc.baselines.base import PairClusterer
from pdcc.baselines.rates import two_rate_nll
from pdcc.data.pairs import PairData
from pdcc.data.scaling import SCALES, Scaler
from pdcc.data.splits import hold_out
from pdcc.inference.batches import PairTensors
from pdcc.inference.epoch_loop import in_parts, run_epochs
from pdcc.inference.isolation import isolated
from pdcc.inference.pretrain import PretrainConfig, pretrained_autoencoder
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.pair_input import MembershipOutput
from pdcc.select.search import prepare
from pdcc.training import TrainConfig, tensors
from pdcc.validation import check_count, check_device, check_number, check_one_of, show_progress

# "own": the method's published initial clusters; "kmeans" and "pairs": the initial partition of VolMaxDCC with that
# ``init``.
INITS = ("own", "kmeans", "pairs")

TrainEpoch = Callable[[int, Tensor], Tensor]


class DeepPairClusterer(MembershipOutput, PairClusterer):
    """A baseline that trains an autoencoder's codes into clusters.

    Subclasses have the parameters that ``_check`` checks.

    After the scaling asked for, features are divided by one number, their overall deviation, so that the weights of
    reconstruction against clustering mean the same in every unit of measurement.

    Fitted attributes: memberships_ (N, K), labels_ (N,), history_ (one dict per epoch), status_, message_.
    """

    init: str
    hidden: Any
    latent: int
    pretrain_epochs: int
    corruption: float
    epochs: int
    batch_size: int
    lr: float
    dropout: float
    patience: int | None
    validation_fraction: float
    device: Any
    pretrained: str | Path | None
    progress: bool | None
    tol: float = 0.0  # a baseline that stops when few labels change has it as a parameter
    unit_codes: ClassVar[bool] = False

    def _check(self) -> None:
        check_one_of("scale", self.scale, ("auto", *SCALES))
        check_one_of("init", self.init, INITS)
        if not isinstance(self.hidden, list | tuple):
            raise TypeError(f"hidden: expected a tuple of layer widths such as (500, 2000), found {self.hidden!r}.")
        for width in self.hidden:
            check_count("hidden", width)
        for name in ("latent", "epochs", "batch_size"):
            check_count(name, getattr(self, name))
        check_count("pretrain_epochs", self.pretrain_epochs, 0)
        if self.patience is not None:
            check_count("patience", self.patience)
        check_number("lr", self.lr, 0.0, open_low=True)
        for name in ("corruption", "dropout", "validation_fraction"):
            check_number(name, getattr(self, name), 0.0, 1.0)
        if self.pretrained is not None and not isinstance(self.pretrained, str | Path):
            raise TypeError(f"pretrained: expected a directory or None, found {self.pretrained!r}. Pass a path.")
        if self.progress not in (None, True, False):
            raise TypeError(f"progress: expected None, True or False, found {self.progress!r}. Pass one of these.")
        check_device(self.device)

    def _learn(self, X: Floats, data: PairData, seed: int) -> Ints:
        if self.init == "own" and self.scale != "auto":
            self.scaler_ = Scaler.fit(X, self.scale)
            return self._train(self.scaler_(X), data, None, seed)
        shown = hold_out(data, self.validation_fraction, seed).train(data)
        init = "pairs" if self.init == "pairs" else "kmeans"
        config = TrainConfig(
            n_clusters=self.n_clusters, confusion="stochastic", volume=0.0, partition_weight=0.0, hidden=(), dropout=0.0,
            scale=self.scale, init=init, n_init=1, epochs=1, patience=None, batch_size=self.n_clusters, lr=1.0,
            confusion_lr=1.0, optimizer="adam", volume_estimator="minibatch", validation_fraction=0.0, seed=seed,
        )  # fmt: skip
        chosen = prepare(shown, config, torch.device("cpu")).chosen
        self.scaler_ = chosen.view.scaler
        return self._train(
            self.scaler_(X), data, None if self.init == "own" else chosen.view.extended(chosen.labels), seed
        )

    def _train(self, x: Float32, data: PairData, start: Ints | None, seed: int) -> Ints:
        """Train on scaled features x (N, d); returns labels (N,). ``start`` (N,): initial labels, or None."""
        device, progress = check_device(self.device), show_progress(self.progress)
        deviation = float(np.sqrt(x.var(axis=0, dtype=np.float64).mean()))
        self.unit_ = deviation if deviation > 0 else 1.0
        features = self._tensor(x, device)
        split = hold_out(data, self.validation_fraction, seed)
        fitted, held = split.train(data), split.test(data)
        config = PretrainConfig(
            tuple(int(width) for width in self.hidden), int(self.latent), int(self.pretrain_epochs),
            int(self.batch_size), float(self.corruption), seed, unit_codes=self.unit_codes,
        )  # fmt: skip
        store = None if self.pretrained is None else Path(self.pretrained)
        with isolated(seed, device):
            net = pretrained_autoencoder(features, config, dropout=self.dropout, store=store, progress=progress)
            codes = in_parts(net.eval().codes, features).double().cpu().numpy()
            self.module_, train_epoch = self._set_up(net, codes, tensors(fitted, features), start, seed)
            run = run_epochs(
                self.module_,
                train_epoch,
                lambda: in_parts(self._log_memberships, features),
                epochs=self.epochs,
                tol=self.tol,
                score=None if held is None else lambda F: float(two_rate_nll(F.cpu().numpy(), fitted, held).mean()),
                patience=self.patience,
                progress=progress,
                label=type(self).__name__,
            )
        self.status_, self.message_, self.history_ = run.status, run.message, run.history
        self.memberships_ = self._memberships(features)
        return np.asarray(self.memberships_.argmax(axis=1), dtype=np.int64)

    @abstractmethod
    def _set_up(
        self, net: Autoencoder, codes: Float64, pairs: PairTensors, start: Ints | None, seed: int
    ) -> tuple[nn.Module, TrainEpoch]:
        """The module to train, on the features' device, and how to train it for an epoch (see ``run_epochs``).

        codes (N, L) are the pretrained ones; ``start`` (N,) labels to set out from, or None for the method's own.
        """

    @abstractmethod
    def _log_memberships(self, x: Tensor) -> Tensor:
        """log memberships (n, K) of features x (n, d) on the module's device."""

    def _tensor(self, x: Float32, device: torch.device) -> Tensor:
        return torch.as_tensor((x / self.unit_).astype(np.float32)).to(device)

    def _memberships(self, x: Tensor) -> Float64:
        F: Float64 = in_parts(self._log_memberships, x).double().exp().cpu().numpy()
        return np.asarray(F / F.sum(axis=1, keepdims=True))

    def predict_proba(self, X: Features) -> Float64:
        """Memberships (n, K) of seen or unseen items X (n, d)."""
        features = self._features(X)
        return self._proba(self.scaler_(features))

    def _proba(self, x: Float32) -> Float64:
        return self._memberships(self._tensor(x, next(self.module_.parameters()).device))

    def _assign(self, x: Float32) -> Ints:
        return np.asarray(self._proba(x).argmax(axis=1), dtype=np.int64)


def label_moments(Z: Float64, labels: Ints, n_clusters: int) -> tuple[Float64, Float64]:
    """Means and variances (K, L) of codes Z (N, L) under each label.

    One more item with the overall variance joins each label, and an empty label sits at the overall mean.
    """
    counts = np.bincount(labels, minlength=n_clusters)[:, None]
    one_hot = np.eye(n_clusters)[labels]
    means = np.where(counts > 0, one_hot.T @ Z / np.maximum(counts, 1), Z.mean(axis=0))
    spread = one_hot.T @ (Z - means[labels]) ** 2 + np.maximum(Z.var(axis=0), np.finfo(np.float32).eps)
    return means, np.asarray(spread / (counts + 1))
