"""VolMaxDCC and VanillaDCC: deep constrained clustering with a scikit-learn face."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from pdcc import metrics
from pdcc.arrays import RandomState
from pdcc.base import PairEstimator
from pdcc.data.columns import in_fitted_order
from pdcc.data.pairs import PairData
from pdcc.rows import whole
from pdcc.select.search import Preparation, search
from pdcc.training import Network, Oracle
from pdcc.validation import check_device, check_features, show_progress


class VolMaxDCC(PairEstimator):
    """Cluster items from features and noisy same/different answers (VolMaxDCC, ICML 2023).

    The faithful core is the paper's: memberships from a neural net, answers Bernoulli(<A m_i, A m_j>), and
    ``volume`` times logdet(F'F) in the objective. What surrounds it by default is ours. Partitions and nets are
    compared by answers that they were not made from. The best one is kept, unless features show separate clusters and
    answers prefer another candidate only a little (docs/choosing.md). Where a partition is kept, the net is fitted to
    its labels, and ``history_`` is empty. ``VolMaxDCC.paper`` leaves all of that out, except that the epoch kept is the
    one that predicts held-out pairs best.

    Cluster numbers are arbitrary; ``pdcc.metrics.align`` matches two solutions.

    Args:
        n_clusters: K, or "auto": the fewest clusters that predict left-out answers within one standard error of the
            best, see ``select_n_clusters``; the table is in ``selection_``, the number in ``n_clusters_``.
        confusion: "none" (A = I), "rates" (two rates of "similar", within clusters and across them), "pooled" (a rate
            for every two clusters, drawn around those two), "sigmoid" (a free, symmetric B), "sigmoid-paper" (the
            paper's own, not symmetric), "stochastic" (B = A'A), "per-annotator" (the same with an A_r for each
            annotator, drawn around a shared one), "auto" (the simplest of "none", "stochastic" and "pooled" that
            predicts left-out answers as well as any; a named one asks for a trained net), or a module of your own
            whose ``forward()`` or ``forward(batch)`` returns B, (K, K), or one for each pair of the batch, (b, K, K);
            ``batch.annotator`` numbers the annotators from 0 in sorted order, and those never seen by how many there
            are.
        volume: lambda, weight of the volume term, or "auto" (0.01 unless 0.001 predicts left-out answers better by a
            standard error).
        partition_weight: weight of the start's labels as one more noisy annotator; 0 leaves them out.
        network: None (a perceptron), or a torch module of your own from a batch of items to n_clusters logits, or a function that
            makes one; X may then have any shape with items first. A module is trained on as it comes; a function makes a fresh
            net for every start.
        hidden: widths of the perceptron's hidden layers.
        dropout: probability of dropping a hidden unit while training.
        scale: None, "unit" (centred rows of one length), "standard" (columns to mean 0, deviation 1) or "auto" (two of
            these are compared).
        init: "pairs" (the partition that is chosen among K-means, K-means guided by answers, spectral partitions of
            neighbours joined with answers, and Gaussian mixtures begun from these), "kmeans" or "random".
        n_init: restarts of the chosen setting; the one that predicts held-out answers best is kept (with nothing held
            out: the answers it was fitted to).
        epochs: at most this many passes over the pairs, the best by held-out answers; "auto": as many as predict
            answers about new items best; 0 where a partition predicts them as well.
        patience: stop after this many epochs without better held-out answers; None: never.
        batch_size: pairs per step.
        lr, confusion_lr: learning rates of the net and of the confusion.
        optimizer: "adam" or "sgd".
        volume_estimator: "minibatch" (from the batch's items) or "full" (all items, every step).
        validation_fraction: share of the pairs held out (whole annotators where there are ten or more).
        mixed_precision: compute the net's products in bfloat16 while training, where the device gains by it; likelihood, volume, weights
            and predictions are not rounded.
        random_state: seed; an int fixes everything on one device.
        device: "auto", "cpu", "cuda", ...
        progress: show a bar; None: at a terminal.

    Fitted attributes:
        memberships_ (N, K), labels_ (N,); agreement_ B (K, K); confusion_ A[observed, true], None where B has no A
            ("rates", "pooled", "sigmoid"; "auto" takes "pooled" only where it is clearly better);
            with "per-annotator" these are the shared ones, and annotator_confusion_ (R, K, K) those of annotators_, else None;
        history_ (one dict per epoch); status_ and message_; report_ (what was compared, chosen and why);
        model_ and guide_ (the Pyro program and its point-estimate guide); fitted_ (all of it, as later steps take it); n_features_in_;
        feature_names_in_ where X had named columns: new items may then have them in any order.

    Examples:
        >>> import numpy as np
        >>> from pdcc import VolMaxDCC
        >>> X = np.repeat(np.eye(3), 20, axis=0) + 0.01 * np.arange(60)[:, None]
        >>> pairs = np.array([[i, (7 * i + 1) % 60] for i in range(60)])
        >>> similar = pairs[:, 0] // 20 == pairs[:, 1] // 20
        >>> est = VolMaxDCC(3, hidden=(16,), epochs=5, random_state=0).fit(X, pairs, similar)
        >>> est.predict_proba(X[:2]).shape
        (2, 3)

        Or with one object for the answers, which scikit-learn splits together with X:

        >>> from pdcc import PairAnswers
        >>> y = PairAnswers.from_arrays(len(X), pairs, similar)
        >>> est.fit(X[:50], y[:50]).score(X[:50], y[:50]) < 0  # mean log-likelihood per answer
        True
    """

    def __init__(
        self,
        n_clusters: int | str = 10,
        *,
        confusion: str | nn.Module = "auto",
        volume: float | str = "auto",
        partition_weight: float = 0.0,
        network: Network | None = None,
        hidden: tuple[int, ...] = (512,),
        dropout: float = 0.5,
        scale: str | None = "auto",
        init: str = "pairs",
        n_init: int = 1,
        epochs: int | str = "auto",
        patience: int | None = 8,
        batch_size: int = 128,
        lr: float = 1e-3,
        confusion_lr: float = 1e-2,
        optimizer: str = "adam",
        volume_estimator: str = "minibatch",
        validation_fraction: float = 0.1,
        mixed_precision: bool = False,
        random_state: RandomState = None,
        device: Any = "auto",
        progress: bool | None = None,
    ):
        self.n_clusters = n_clusters
        self.confusion = confusion
        self.volume = volume
        self.partition_weight = partition_weight
        self.network = network
        self.hidden = hidden
        self.dropout = dropout
        self.scale = scale
        self.init = init
        self.n_init = n_init
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.lr = lr
        self.confusion_lr = confusion_lr
        self.optimizer = optimizer
        self.volume_estimator = volume_estimator
        self.validation_fraction = validation_fraction
        self.mixed_precision = mixed_precision
        self.random_state = random_state
        self.device = device
        self.progress = progress

    @classmethod
    def paper(
        cls,
        n_clusters: int = 10,
        volume: float = 1e-2,
        *,
        oracle: tuple[ArrayLike, ArrayLike] | None = None,
        **changes: Any,
    ) -> "VolMaxDCC":
        """The paper's own setting: SGD .5 / .1, batches of 128, 512-512 ReLU, its free B from +-1, random start, 100 epochs.

        No scaling, warm start, dropout or partition. Where this departs from the paper:

        * the volume is the minibatch's (the items of its 128 pairs), since that of all items costs 34 to 37 times as much per step;
          ``volume_estimator="full"`` is eq. 13 to the letter;
        * a tenth of the pairs is held out, and the epoch kept is the one that predicts them best, since no labels are to be
          had in use; ``validation_fraction=0`` trains on all pairs and keeps the last epoch;
        * the volume is given, where the authors choose it by labels.

        ``oracle=(X_val, y_val)``, items with known classes, reproduces the authors' choice instead: all pairs are trained on, and
        both the volume, from {0, 1e-5, ..., 1e-1}, and the epoch are those with the best accuracy on these items.
        """
        setting: dict[str, Any] = {
            "confusion": "sigmoid-paper", "partition_weight": 0.0, "hidden": (512, 512), "dropout": 0.0, "scale": None, "init": "random",
            "epochs": 100, "patience": None, "batch_size": 128, "lr": 0.5, "confusion_lr": 0.1, "optimizer": "sgd",
        }  # fmt: skip
        if oracle is None:
            return cls(n_clusters, **({"volume": volume} | setting | changes))
        return OracleVolMaxDCC(n_clusters, oracle=oracle, **({"validation_fraction": 0.0} | setting | changes))


class OracleVolMaxDCC(VolMaxDCC):
    """VolMaxDCC whose volume and epoch are chosen by the true classes of some items: for comparison with the paper only.

    Args:
        oracle: (X_val, y_val), items (n, d) and their classes (n,).
        volumes: what ``volume`` is chosen from.
        settings: those of VolMaxDCC.
    """

    def __init__(
        self,
        n_clusters: int | str = 10,
        *,
        oracle: tuple[ArrayLike, ArrayLike],
        volumes: tuple[float, ...] = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        **settings: Any,
    ):
        super().__init__(n_clusters, **settings)
        self.oracle = oracle
        self.volumes = volumes

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*VolMaxDCC._get_param_names(), "oracle", "volumes"])

    def fit_data(self, data: PairData, *, checkpoints: Path | None = None, prepared: Preparation | None = None) -> Self:
        """Fit at every volume and keep the fit whose best epoch is most accurate on the items with known classes."""
        self.check(data.n_items)
        known = in_fitted_order(self.oracle[0], data.feature_names)
        features = check_features(known, item_shape=tuple(data.features.shape[1:]), any_shape=True)
        oracle = Oracle(whole(features, "an oracle"), np.asarray(self.oracle[1]))
        device, progress = check_device(self.device), show_progress(self.progress)
        config, own = self._config_for(data), self.own_parts()
        fits = [
            search(
                data,
                replace(config, volume=float(v)),
                device,
                own=own,
                prepared=prepared,
                progress=progress,
                oracle=oracle,
            )
            for v in self.volumes
        ]
        scores = [metrics.acc(oracle.classes, fitted.memberships(features).argmax(axis=1)) for fitted in fits]
        best = fits[int(np.argmax(scores))]
        self.oracle_scores_ = dict(zip(self.volumes, scores, strict=True))
        self._keep_names(data)
        self._adopt(best, best.memberships(data.features))
        return self


class VanillaDCC(PairEstimator):
    """VolMaxDCC with A = I and no volume (the paper's VanillaDCC), and all the shared preprocessing: the baseline to beat.

    Takes the same arguments less ``confusion``, ``confusion_lr``, ``volume`` and ``volume_estimator``.

    Examples:
        >>> from pdcc import VanillaDCC
        >>> VanillaDCC(4, hidden=(32,)).get_params()["hidden"]
        (32,)
    """

    def __init__(
        self,
        n_clusters: int | str = 10,
        *,
        partition_weight: float = 0.0,
        network: Network | None = None,
        hidden: tuple[int, ...] = (512,),
        dropout: float = 0.5,
        scale: str | None = "auto",
        init: str = "pairs",
        n_init: int = 1,
        epochs: int | str = "auto",
        patience: int | None = 8,
        batch_size: int = 128,
        lr: float = 1e-3,
        optimizer: str = "adam",
        validation_fraction: float = 0.1,
        mixed_precision: bool = False,
        random_state: RandomState = None,
        device: Any = "auto",
        progress: bool | None = None,
    ):
        self.n_clusters = n_clusters
        self.partition_weight = partition_weight
        self.network = network
        self.hidden = hidden
        self.dropout = dropout
        self.scale = scale
        self.init = init
        self.n_init = n_init
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.validation_fraction = validation_fraction
        self.mixed_precision = mixed_precision
        self.random_state = random_state
        self.device = device
        self.progress = progress

    @classmethod
    def paper(cls, n_clusters: int = 10, **changes: Any) -> Self:
        """The paper's VanillaDCC: as ``VolMaxDCC.paper`` with A = I and no volume."""
        setting = VolMaxDCC.paper(n_clusters).get_params()
        names = cls(n_clusters).get_params()
        return cls(**({k: v for k, v in setting.items() if k in names} | changes))
