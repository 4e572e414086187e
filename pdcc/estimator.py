"""VolMaxDCC and VanillaDCC: deep constrained clustering with a scikit-learn face."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pdcc.checks import check_features, check_n_clusters, check_pairs
from pdcc.inference import memberships, pair_nll, point_agreement, point_values
from pdcc.models import answer_logits, log_volume
from pdcc.models.confusion import annotator_columns
from pdcc.pairs import PairData, check_annotators, renumber
from pdcc.partition import Start
from pdcc.recipe import Recipe, start_of, tensors, train
from pdcc.scaling import Scaler
from pdcc.settings import check_device, check_random_state, check_settings, seed_of, show_progress
from pdcc.stored import StoredEstimator

if TYPE_CHECKING:
    from pdcc.identifiability.diagnose import Diagnosis

Floats64 = NDArray[np.float64]


class VolMaxDCC(ClusterMixin, StoredEstimator):  # type: ignore[misc]
    """Cluster items from features and noisy same/different answers (VolMaxDCC, ICML 2023), warm-started and chosen by held-out answers.

    The faithful core is the paper's: memberships from a neural net, answers Bernoulli(<A m_i, A m_j>), and
    ``volume`` times logdet(F'F) in the objective. What surrounds it by default is ours: scaling, a warm start, dropout,
    early stopping, and the "auto" choices, all made from held-out answers. ``VolMaxDCC.paper`` leaves all of that out, except
    that the epoch kept is the one that predicts held-out pairs best.

    Cluster numbers are arbitrary; ``pdcc.metrics.align`` matches two solutions.

    Args:
        n_clusters: K.
        confusion: "none" (A = I), "sigmoid" (the paper's free B), "stochastic" (B = A'A), "per-annotator" (the same with
            an A_r for each annotator, drawn around a shared one) or "auto".
        volume: lambda, weight of the volume term, or "auto".
        partition: weight of a partition's labels as one more noisy annotator; 0 leaves them out. "auto" lets in plain K-means
            where it is stable under resampling and what the answers are about, if each annotator's answers never contradict
            each other (then they come from labels in a head, and M of them weigh less than M independent ones), or if
            training without it tears items from their nearest neighbours.
        hidden: widths of the net's hidden layers.
        dropout: probability of dropping a hidden unit while training.
        scale: None, "unit" (rows to length 1), "standard" (columns to mean 0, deviation 1) or "auto".
        init: "pairs" (K-means in directions the answers point out, or plain, whichever predicts held-out answers
            better), "kmeans" or "random".
        n_init: restarts of the chosen setting; the one that predicts held-out answers best is kept (with nothing held
            out: the answers it was fitted to).
        epochs: at most this many passes over the pairs; "auto": 60, or more (and more patience) where answers are few.
        patience: stop after this many epochs without better held-out answers; None: never.
        batch_size: pairs a step.
        lr, confusion_lr: learning rates of the net and of the confusion.
        optimizer: "adam" or "sgd".
        volume_estimator: "minibatch" (from the batch's items) or "full" (all items, every step).
        validation_fraction: share of the pairs held out (whole annotators where there are ten or more).
        random_state: seed; an int fixes everything on one device.
        device: "auto", "cpu", "cuda", ...
        progress: show a bar; None: at a terminal.

    Fitted attributes:
        memberships_ (N, K), labels_ (N,); agreement_ B (K, K); confusion_ A[observed, true] or None;
            with "per-annotator" these are the shared ones, and annotator_confusion_ (R, K, K) those of annotators_, else None;
        history_ (one dict an epoch); status_ and message_; story_ (what was compared, chosen and why);
        model_ and guide_ (the Pyro program and its point-estimate guide); n_features_in_.
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        confusion: str = "auto",
        volume: float | str = "auto",
        partition: float | str = "auto",
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
        random_state: Any = None,
        device: Any = "auto",
        progress: bool | None = None,
    ):
        self.n_clusters = n_clusters
        self.confusion = confusion
        self.volume = volume
        self.partition = partition
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
        self.random_state = random_state
        self.device = device
        self.progress = progress

    @classmethod
    def paper(cls, n_clusters: int = 10, volume: float = 1e-2, **changes: Any) -> Self:
        """The paper's own setting: SGD .5 / .1, batches of 128, 512-512 ReLU, sigmoid B from +-1, random start.

        No scaling, warm start, dropout or partition. The paper leaves the number of epochs to a labelled validation
        set; here the epoch is the one that predicts held-out pairs best, of 100.
        """
        setting: dict[str, Any] = {
            "confusion": "sigmoid", "partition": 0.0, "hidden": (512, 512), "dropout": 0.0, "scale": None, "init": "random",
            "epochs": 100, "patience": None, "batch_size": 128, "lr": 0.5, "confusion_lr": 0.1, "optimizer": "sgd",
        }  # fmt: skip
        return cls(n_clusters, **({"volume": volume} | setting | changes))

    def _settings(self) -> dict[str, Any]:
        """All parameters, with those that VanillaDCC does without at the values they have in it."""
        vanilla = {"confusion": "none", "volume": 0.0, "confusion_lr": 1e-2, "volume_estimator": "minibatch"}
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in {**vanilla, **self.get_params()}.items()}

    def check(self, n_items: int) -> dict[str, Any]:
        """The full settings; raises for the first parameter that a fit to ``n_items`` items could not use."""
        check_n_clusters(self.n_clusters, n_items)
        settings = self._settings()
        check_settings(settings)
        check_random_state(self.random_state)
        return settings

    def fit(self, X: ArrayLike, pairs: ArrayLike, similar: ArrayLike, annotators: ArrayLike | None = None) -> Self:
        """Fit to features X (N, d), pairs (M, 2) of row numbers, answers similar (M,) and, if known, who answered (M,)."""
        data = PairData.from_arrays(X, pairs, similar, annotators)
        validate_data(self, X, skip_check_array=True)
        return self.fit_data(data)

    def fit_data(self, data: PairData, *, checkpoints: Path | None = None, start: Start | None = None) -> Self:
        """Fit to checked pairs. With a directory ``checkpoints``, an interrupted fit goes on from where it was.

        ``start``: what ``start_of`` returned for an estimator that differs in nothing a start depends on.
        """
        settings = self.check(data.n_items)
        seed = seed_of(self.random_state)
        device = check_device(self.device)
        recipe = self._recipe(settings, seed)
        progress = show_progress(self.progress)
        trained = train(data, recipe, device, start=start, progress=progress, checkpoints=checkpoints)
        self.seed_ = seed
        self.n_features_in_ = data.features.shape[1]
        self.story_ = trained.story
        self.history_ = trained.result.history
        self.status_, self.message_ = trained.result.status, trained.result.message
        self.annotators_ = data.annotator_names
        self._adopt(trained.model, trained.guide, trained.scaler)
        self.memberships_ = self._memberships(data.features)
        self.labels_ = self.memberships_.argmax(axis=1)
        return self

    def start_of(self, data: PairData) -> Start | None:
        """The scaling and partition that ``fit_data`` would set out from; None for a random start with a given scale."""
        return start_of(data, self._recipe(self.check(data.n_items), seed_of(self.random_state)))

    def _recipe(self, settings: dict[str, Any], seed: int) -> Recipe:
        fields = {k: v for k, v in settings.items() if k in Recipe.__dataclass_fields__}
        return Recipe(**fields | {"seed": seed, "hidden": tuple(int(w) for w in self.hidden)})

    def _adopt(self, model: Any, guide: Any, scaler: Scaler) -> None:
        """Take a trained model as this estimator's, and read its confusion off it."""
        self.model_, self.guide_, self.scaler_ = model.eval(), guide, scaler
        B: Floats64 = point_agreement(model, guide).double().cpu().numpy()
        self.agreement_: Floats64 = B if B.ndim == 2 else B[-1]
        sites = point_values(guide)
        columns, shift = sites.get("confusion_columns"), sites.get("annotator_shift")
        own = None if columns is None or shift is None else annotator_columns(columns, shift)[:-1].mT
        self.annotator_confusion_: Floats64 | None = None if own is None else own.double().cpu().numpy()
        if columns is not None:
            self.confusion_: Floats64 | None = columns.T.double().cpu().numpy()
        else:
            self.confusion_ = np.eye(len(self.agreement_)) if self.story_["chosen"]["confusion"] == "none" else None

    def fit_predict(
        self, X: ArrayLike, pairs: ArrayLike, similar: ArrayLike, annotators: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Fit, and return the labels (N,) of the items fitted on."""
        labels: NDArray[np.int64] = self.fit(X, pairs, similar, annotators).labels_
        return labels

    def _scaled(self, features: NDArray[np.float32]) -> Tensor:
        return torch.as_tensor(self.scaler_(features)).to(next(self.model_.parameters()).device)

    def _memberships(self, features: NDArray[np.float32]) -> Floats64:
        F: Floats64 = memberships(self.model_, self._scaled(features)).double().cpu().numpy()
        return np.asarray(F / F.sum(axis=1, keepdims=True))

    def predict_proba(self, X: ArrayLike) -> Floats64:
        """Memberships (n, K) of seen or unseen items X (n, d)."""
        check_is_fitted(self, "model_")
        features = check_features(X, n_features=self.n_features_in_, owner=type(self).__name__)
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._memberships(features)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The largest membership's cluster number (n,) of seen or unseen items X (n, d)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), dtype=np.int64)

    def predict_pairs(self, X: ArrayLike, pairs: ArrayLike, annotators: ArrayLike | None = None) -> Floats64:
        """P(called similar), (M,), for pairs (M, 2) of rows of X (n, d).

        Where the confusion is per annotator, those never seen, and all where none are given, answer by the shared one.
        """
        check_is_fitted(self, "model_")
        features = check_features(X, n_features=self.n_features_in_, owner=type(self).__name__)
        index = torch.as_tensor(check_pairs(pairs, len(features)))
        F = memberships(self.model_, self._scaled(features)).double().cpu()
        B = point_agreement(self.model_, self.guide_).double().cpu()
        who = renumber(*check_annotators(annotators, len(index)), self.annotators_, len(index))
        logits = answer_logits(F[index[:, 0]], F[index[:, 1]], B, torch.as_tensor(who) if B.ndim == 3 else None)
        return np.asarray(torch.sigmoid(logits).numpy())

    def objective(
        self, X: ArrayLike, pairs: ArrayLike, similar: ArrayLike, annotators: ArrayLike | None = None
    ) -> float:
        """Paper eq. 13 at the fitted parameters, over all of X and all pairs: mean NLL - volume * logdet(F'F)."""
        data = self._check_data(X, pairs, similar, annotators)
        F = memberships(self.model_, self._scaled(data.features)).double()
        nll = pair_nll(F, point_agreement(self.model_, self.guide_).double(), tensors(data, F)).mean()
        volume = self.story_["chosen"]["volume"]
        return float(nll - volume * (log_volume(F) + F.shape[1] * np.log(len(F)))) if volume else float(nll)

    def posterior(
        self,
        X: ArrayLike,
        pairs: ArrayLike,
        similar: ArrayLike,
        annotators: ArrayLike | None = None,
        *,
        method: str = "svi",
        draws: int | None = None,
        chains: int | None = None,
        random_state: int = 0,
        **options: Any,
    ) -> Any:
        """Posterior draws as ``arviz.InferenceData``, clusters aligned to ``memberships_`` across draws and chains.

        Groups: posterior (memberships (chain, draw, item, cluster), agreement = B, confusion = A where the form has one),
        posterior_predictive, log_likelihood and observed_data (similar), constant_data (i, j, annotator). Attributes carry
        the engine's status, what it leaves out, and how its intervals fared in simulation.

        Args:
            method: "svi" (a Normal guide over confusion and last layer; ``guide="low-rank"`` or "normal", ``steps``),
                "nuts" (the same sites by NUTS, or ``sites="confusion"`` alone; ``warmup``), or
                "ensemble" (whole nets refitted from new starts to reweighted answers).
            draws: draws a chain (500; "ensemble": 5). chains: "nuts" and "ensemble" 4.
            options: also ``scale``, the prior deviation of the last layer's weights (default: three times their root mean square).
        """
        from pdcc.posterior import sample, to_inference_data

        known = ("sites", "guide", "scale", "warmup", "steps")
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(
                f"posterior: expected options among {', '.join(known)}, found {unknown[0]!r}. Check the spelling."
            )
        data = self._check_data(X, pairs, similar, annotators)
        progress = show_progress(self.progress)
        recipe = self._fitted_recipe()
        drawn = sample(
            self, data, self._scaled(data.features), recipe,
            method=method, draws=draws, chains=chains, seed=random_state, progress=progress, **options,
        )  # fmt: skip
        return to_inference_data(
            drawn,
            data,
            method=method,
            seed=random_state,
            settings=self._settings() | self.story_["chosen"],
            guide=options.get("guide", "low-rank"),
        )

    def diagnose(
        self,
        X: ArrayLike,
        pairs: ArrayLike,
        similar: ArrayLike,
        annotators: ArrayLike | None = None,
        **options: Any,
    ) -> "Diagnosis":
        """Do the answers identify the memberships? See ``pdcc.diagnose`` for the options and what is checked."""
        from pdcc.identifiability.diagnose import diagnose

        return diagnose(self, X, pairs, similar, annotators, **options)

    def _check_data(
        self, X: ArrayLike, pairs: ArrayLike, similar: ArrayLike, annotators: ArrayLike | None = None
    ) -> PairData:
        check_is_fitted(self, "model_")
        data = PairData.from_arrays(X, pairs, similar, annotators)
        check_features(X, n_features=self.n_features_in_, owner=type(self).__name__)
        return self.known(data)

    def known(self, data: PairData) -> PairData:
        """The same pairs, annotators numbered as they were fitted where the confusion tells them apart."""
        return data if self.annotator_confusion_ is None else data.recode(self.annotators_)

    def _fitted_recipe(self) -> Recipe:
        """The recipe with every "auto" replaced by what was chosen."""
        return self._recipe(self._settings() | self.story_["chosen"], self.seed_)


class VanillaDCC(VolMaxDCC):
    """VolMaxDCC with A = I and no volume (the paper's VanillaDCC), and every other help: the rival to beat.

    Takes the same arguments less ``confusion``, ``confusion_lr``, ``volume`` and ``volume_estimator``.
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        partition: float | str = "auto",
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
        random_state: Any = None,
        device: Any = "auto",
        progress: bool | None = None,
    ):
        self.n_clusters = n_clusters
        self.partition = partition
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
        self.random_state = random_state
        self.device = device
        self.progress = progress

    @classmethod
    def paper(cls, n_clusters: int = 10, **changes: Any) -> Self:  # type: ignore[override]
        """The paper's VanillaDCC: as ``VolMaxDCC.paper`` with A = I and no volume."""
        setting = VolMaxDCC.paper(n_clusters).get_params()
        names = cls(n_clusters).get_params()
        return cls(**({k: v for k, v in setting.items() if k in names} | changes))
