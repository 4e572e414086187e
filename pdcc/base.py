"""What VolMaxDCC and VanillaDCC share: fit, predict, save and load; what comes after a fit is handed on."""

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import nn

from pdcc.arrays import Features, Float64, Floats, Ints
from pdcc.data.answers import PairAnswers, as_answers, pair_rows
from pdcc.data.names import check_annotators, renumber
from pdcc.data.pairs import PairData
from pdcc.data.reading import ReadAnswers
from pdcc.errors import ArtifactError
from pdcc.fitted import Fitted, logger
from pdcc.inference import PairTensors, memberships, pair_nll
from pdcc.models import CONFUSIONS, log_volume, similar_logits
from pdcc.pair_input import MembershipOutput
from pdcc.refitting import Refitting
from pdcc.rows import FeatureRows
from pdcc.sampled import sampled
from pdcc.select.count import Selection, choose_n_clusters
from pdcc.select.search import Preparation, prepare, search
from pdcc.storage.files import as_path
from pdcc.storage.lock import claimed
from pdcc.storage.model import check_no_answers, load_run, save_run
from pdcc.training import OWN, Network, OwnParts, TrainConfig, tensors
from pdcc.validation import (
    check_device,
    check_memberships,
    check_n_clusters,
    check_random_state,
    seed_of,
    show_progress,
)

if TYPE_CHECKING:
    import pandas as pd

    from pdcc.identifiability.diagnose import Diagnosis

# What VanillaDCC does without, at the values it has there.
VANILLA: dict[str, Any] = {"confusion": "none", "volume": 0.0, "confusion_lr": 1e-2, "volume_estimator": "minibatch"}


class PairEstimator(MembershipOutput, Refitting):
    """Fit, predict, save and load; what comes after a fit is handed on. Parameters are the subclasses'."""

    selection_: Selection | None
    network: Network | None
    device: Any

    def config(self, seed: int, n_clusters: int | None = None) -> TrainConfig:
        """The parameters as training takes them, checked; ``n_clusters``: what "auto" came to."""
        params = {k: v.item() if isinstance(v, np.generic) else v for k, v in {**VANILLA, **self.get_params()}.items()}
        params = {k: float(v) if isinstance(v, Fraction) else v for k, v in params.items()}
        if isinstance(params["confusion"], nn.Module):
            params["confusion"] = OWN
        if params["n_clusters"] == "auto":
            params["n_clusters"] = 2 if n_clusters is None else n_clusters
        return TrainConfig(seed=seed, **{k: v for k, v in params.items() if k in TrainConfig.__dataclass_fields__})

    def own_parts(self) -> OwnParts:
        """The modules among the parameters."""
        confusion = self.get_params().get("confusion")
        return OwnParts(self.network, confusion if isinstance(confusion, nn.Module) else None)

    def check(self, n_items: int) -> None:
        """Raise for the first parameter that a fit to ``n_items`` items could not use."""
        if not isinstance(self.n_clusters, str):
            check_n_clusters(self.n_clusters, n_items)
        elif self.n_clusters != "auto":
            raise TypeError(
                f'n_clusters: expected a whole number or "auto", found {self.n_clusters!r}. Pass one of these.'
            )
        confusion = self.get_params().get("confusion", "none")
        if not isinstance(confusion, nn.Module):  # "own" stands for a module, and is no choice by itself
            if not isinstance(confusion, str) or confusion not in ("auto", *CONFUSIONS):
                raise ValueError(
                    f"confusion: expected one of {', '.join(map(repr, ('auto', *CONFUSIONS)))}, or a torch module that returns B, found {confusion!r}. Pass one of these."
                )
        self.config(0)
        self.own_parts()
        if self.progress not in (None, True, False):
            raise TypeError(f"progress: expected None, True or False, found {self.progress!r}. Pass one of these.")
        check_device(self.device)
        check_random_state(self.random_state)

    def fit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Fit to features X (N, d), pairs (M, 2) of row numbers, answers similar (M,) and, if known, who answered (M,).

        similar: bool, {0, 1} or {-1, +1}; with ``soft``, probabilities that a pair is similar. weights (M,): how much each answer
        counts; one of weight 2 is as good as the same answer twice. Or fit to X and y: a ``PairAnswers`` of length N, what
        ``read_answers`` returns, or a table with the columns i, j, similar and optionally annotator, weight and chosen_by. Where X is
        a DataFrame, pairs of anything but whole numbers are looked up in its index. X may be sparse if its dense form fits in
        memory, and, with a ``network`` of your own, an array or tensor of any shape with items first, such as (N, C, H, W).
        """
        any_shape = self.network is not None
        return self.fit_data(PairData.from_arrays(X, pairs, similar, annotators, weights, soft, any_shape=any_shape))

    def fit_data(self, data: PairData, *, checkpoints: Path | None = None, prepared: Preparation | None = None) -> Self:
        """Fit to checked pairs. With a directory ``checkpoints``, an interrupted fit goes on from where it was.

        ``prepared``: what ``prepare`` returned for an estimator that differs in nothing a start depends on.
        """
        self.check(data.n_items)
        device, progress = check_device(self.device), show_progress(self.progress)
        config = self._config_for(data)
        own = self.own_parts()
        fitted = search(data, config, device, own=own, prepared=prepared, progress=progress, checkpoints=checkpoints)
        self._keep_names(data)
        self._adopt(fitted, fitted.memberships(data.features))
        self.changes_ = None
        return self

    def prepare(self, data: PairData) -> Preparation:
        """The split, the scalings and the partitions that ``fit_data`` would set out from."""
        self.check(data.n_items)
        return prepare(data, self._config_for(data), check_device(self.device), self.own_parts())

    def _config_for(self, data: PairData) -> TrainConfig:
        """The configuration, with the number of clusters chosen from the data where it is "auto"."""
        config = self.config(seed_of(self.random_state))
        self.selection_ = None
        if self.n_clusters == "auto":
            self.selection_ = choose_n_clusters(data, scale=config.scale, seed=config.seed)
            config = self.config(config.seed, self.selection_.value)
        return config

    def _adopt(self, fitted: Fitted, memberships: Float64) -> None:
        """Take a fit as this estimator's, and memberships (N, K) of the items fitted on."""
        self.fitted_ = fitted
        self.n_features_in_ = math.prod(fitted.item_shape)
        self.n_clusters_ = fitted.config.n_clusters
        self.model_, self.guide_ = fitted.model, fitted.guide
        self.report_, self.history_ = fitted.report, fitted.history
        self.status_, self.message_ = fitted.status, fitted.message
        self.annotators_ = fitted.annotators
        B: Float64 = fitted.agreement.double().cpu().numpy()
        self.agreement_: Float64 = B if B.ndim == 2 else B[-1]
        self.confusion_, self.annotator_confusion_ = fitted.confusion(), fitted.annotator_confusion()
        self.memberships_ = memberships
        self.labels_: Ints = memberships.argmax(axis=1)

    def predict_proba(self, X: Features) -> Float64:
        """Memberships (n, K) of seen or unseen items X (n, d)."""
        features = self._features(X)  # also says so where nothing was fitted
        return self.fitted_.memberships(features)

    def predict(self, X: Features) -> Ints:
        """The largest membership's cluster number (n,) of seen or unseen items X (n, d)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), dtype=np.int64)

    def predict_pairs(
        self, X: Features, pairs: ArrayLike | PairAnswers, annotators: ArrayLike | None = None
    ) -> Float64:
        """P(called similar), (M,), for pairs (M, 2) of rows of X (n, d), or for those of a ``PairAnswers`` and who answered there.

        Where the confusion is per annotator, those never seen, and all where none are given, answer by the shared one.
        """
        features = self._features(X)
        if isinstance(pairs, PairAnswers):
            y = as_answers(X, len(features), pairs, annotators=annotators)
            pairs, annotators = y.pairs, y.annotators
        i, j = np.require(pair_rows(X, len(features), pairs)[0].T, requirements=("C", "W"))
        codes = renumber(*check_annotators(annotators, len(i)), self.annotators_, len(i))
        asked = PairData(features, i, j, np.zeros(len(i), dtype=bool), codes, self.annotators_)
        x = self.fitted_.scaled(features)
        F = memberships(self.model_, x).double()
        B = self.fitted_.pair_agreement(tensors(asked, x)).double()
        return np.asarray(torch.sigmoid(similar_logits(F[i], F[j], B)).cpu().numpy())

    def objective(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> float:
        """Paper eq. 13 at the fitted parameters, over all of X and all pairs: mean NLL (weighted, where answers are) - volume * logdet(F'F)."""
        asked, nll, F = self._answered(self._checked(X, pairs, similar, annotators, weights, soft))
        volume = self.report_.chosen.volume
        mean = asked.mean(nll)
        return float(mean - volume * (log_volume(F) + F.shape[1] * np.log(len(F)))) if volume else float(mean)

    def _nll(self, data: PairData) -> Float64:
        return np.asarray(self._answered(data)[1].cpu().numpy())

    def _answered(self, data: PairData) -> tuple[PairTensors, torch.Tensor, torch.Tensor]:
        """The answers, the negative log-likelihood (M,) of each, and memberships (n, K), in float64."""
        asked = tensors(self.fitted_.known(data), self.fitted_.scaled(data.features))
        F = memberships(self.model_, asked.x).double()
        return asked, pair_nll(F, self.fitted_.pair_agreement(asked).double(), asked), F

    def posterior(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
        *,
        method: str = "hmc",
        draws: int | None = None,
        chains: int | None = None,
        random_state: int = 0,
        **options: Any,
    ) -> Any:
        """Posterior draws as ``arviz.InferenceData``, clusters aligned to ``memberships_`` across draws and chains.

        Groups: posterior (memberships (chain, draw, item, cluster), agreement = B, confusion = A where the form has one),
        posterior_predictive, log_likelihood and observed_data (similar), constant_data (i, j, annotator). Attributes carry
        the engine's status, what it leaves out, and how its intervals fared in simulation. Of more than 100,000 items or 200,000
        answers a random sample is drawn, named in the attribute "sample": the posterior is then that of the answers in it, and wider.

        Args:
            method: "hmc" (confusion and last layer by Hamiltonian Monte Carlo, many short chains at once, or ``sites="confusion"``
                alone; ``warmup``), "svi" (a Normal guide over the same; ``guide="low-rank"`` or "normal", ``steps``),
                "nuts" (the same by NUTS, a few long chains), or
                "ensemble" (whole nets refitted from new starts to reweighted answers).
            draws: draws per chain ("hmc" 48, "svi" and "nuts" 500, "ensemble" 5). chains: "hmc" 16, "nuts" and "ensemble" 4.
            options: also ``prior_scale``, the prior deviation of the last layer's weights (default: such that logits deviate
                by 5 before any answer), and ``regularised=True``, which keeps the volume term of the fit: not a posterior then,
                but a regularised (Gibbs) one around what was fitted.
        """
        from pdcc.posterior.draws import POSTERIOR_ITEMS, SampleConfig
        from pdcc.posterior.inference_data import to_inference_data
        from pdcc.posterior.sample import sample
        from pdcc.posterior.squeeze import identified_set

        data = self._checked(X, pairs, similar, annotators, weights, soft)
        how = SampleConfig.of(method=method, draws=draws, chains=chains, seed=random_state, **options)
        fitted, data, part = sampled(self.fitted_, data, POSTERIOR_ITEMS, random_state)
        drawn = sample(fitted, data, how, progress=show_progress(self.progress))
        B = fitted.agreement.double().cpu().numpy()
        within = identified_set(fitted.memberships(data.features), B, fitted.free_confusion)
        return to_inference_data(drawn, fitted.known(data), how, fitted.config, within, part)

    def diagnose(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
        **options: Any,
    ) -> "Diagnosis":
        """How right are the labels, what is settled, and are soft memberships determined?

        options: trusted, target, level, quick, draws, n_restarts, eps, work and random_state (the seed): see ``pdcc.diagnose``.
        """
        from pdcc.identifiability.diagnose import diagnose
        from pdcc.identifiability.given import with_items

        known = [name for name in diagnose.__kwdefaults__ or () if name != "progress"]
        if unknown := [name for name in options if name not in known]:
            there = ", ".join(known)
            raise TypeError(
                f"diagnose: expected options among {there}, found {unknown[0]!r}. The seed is random_state."
            )
        data = self._checked(X, pairs, similar, annotators, weights, soft)
        options["trusted"] = with_items(options.get("trusted"), getattr(getattr(X, "index", None), "name", None))
        return diagnose(self.fitted_, data, progress=show_progress(self.progress), **options)

    def suggest_pairs(self, X: Features, n: int = 200, **options: Any) -> "pd.DataFrame":
        """``n`` pairs of rows of X to ask about next: i, j, gain, chosen_by, probability. See ``pdcc.asking.suggest`` for the options.

        By the fitted memberships; ``pdcc suggest`` asks fits to parts of the answers what to believe, and says when to stop.
        """
        from pdcc.asking.suggest import suggest_pairs

        return suggest_pairs(self.predict_proba(X), self.agreement_, n=n, **options)

    def audit_answers(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
        *,
        random_state: int = 0,
    ) -> "pd.DataFrame":
        """How likely each answer is wrong, by fits that did not see it: one row per answer, columns wrong, expected, reason and more.

        Where answers came with annotators, ``annotator_reliability_`` then says how often each is right.
        """
        from pdcc.asking.audit import audit_answers
        from pdcc.asking.reliability import annotator_reliability

        data = self._checked(X, pairs, similar, annotators, weights, soft)
        found = audit_answers(self.fitted_, data, random_state=random_state, progress=show_progress(self.progress))
        self.annotator_reliability_ = annotator_reliability(data, found)
        return found

    def _features(self, X: Features) -> Floats | FeatureRows:
        check_is_fitted(self, "fitted_")
        return self._like_fitted(X, self.fitted_.item_shape)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to the directory ``path``: safetensors and JSON, no code, no answers, no features.

        An estimator that was saved there before is replaced; a run of ``pdcc fit``, which keeps its answers, is not.
        """
        place = as_path(path)
        with claimed(place):
            check_no_answers(place)
            save_run(place, *self.described())

    def described(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The fitted estimator as named tensors and plain JSON: what ``save`` writes."""
        check_is_fitted(self, "fitted_")
        flat, fitted = self._state()
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in self.get_params().items()}
        params = {k: [int(w) for w in v] if isinstance(v, tuple | list) else v for k, v in plain.items()}
        params |= {"random_state": self.fitted_.config.seed, "device": str(self.device), "network": None}
        if isinstance(params.get("confusion"), nn.Module):
            params["confusion"] = OWN  # modules are code: a run keeps their weights alone
        return flat, {"estimator": type(self).__name__, "params": params, **fitted}

    def _state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        flat, fitted = self.fitted_.state()
        names = {"feature_names": self.feature_names_in_.tolist()} if hasattr(self, "feature_names_in_") else {}
        return flat | {"memberships": torch.as_tensor(self.memberships_)}, {"fitted": fitted, **names}

    def _restore(self, flat: dict[str, torch.Tensor], body: dict[str, Any]) -> None:
        """Undo ``_state``."""
        try:
            device = check_device(self.device)
        except ValueError:
            logger.warning("device %r is not available here: loaded to the CPU", self.device)
            device = torch.device("cpu")
        if "feature_names" in body:
            self.feature_names_in_ = np.array(body["feature_names"], dtype=object)
        F = flat["memberships"].numpy()
        check_memberships(F)
        fitted = Fitted.restore(flat, body["fitted"], device, self.own_parts())
        if F.shape != (sum(fitted.report.useful.sizes), fitted.config.n_clusters):
            raise ValueError("memberships of other items")
        self._adopt(fitted, F)

    @classmethod
    def load(cls, path: str | Path, *, network: Network | None = None, confusion: nn.Module | None = None) -> Self:
        """Read what ``save`` wrote; raises ``ArtifactError`` for anything foreign, damaged or altered.

        Nothing in the directory is executed: what was fitted with a network or confusion of your own wants them passed again.
        """
        flat, body = load_run(as_path(path))
        if body.get("estimator") != cls.__name__:
            raise ArtifactError(
                f"{path}: expected a saved {cls.__name__}, found {body.get('estimator')!r}. Load it with that class."
            )
        try:
            own = {"network": network} | ({} if confusion is None else {"confusion": confusion})
            estimator = cls(**body["params"] | {"hidden": tuple(body["params"]["hidden"])} | own)
            estimator._restore(flat, body)
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from None
        except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError) as error:
            raise ArtifactError(
                f"{path}: its description does not fit its tensors ({error}). It was altered, or the network or confusion passed is not the one that was fitted; restore it, pass that one, or fit again."
            ) from error
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        # Pyro guides hold traces and weak references; ship tensors as arrays and rebuild the program on arrival.
        state: dict[str, Any] = super().__getstate__()
        if "fitted_" in state:
            flat, body = self._state()
            state = {k: v for k, v in state.items() if k not in ("fitted_", "model_", "guide_")}
            state["_fitted"] = ({k: v.cpu().numpy() for k, v in flat.items()}, body)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fitted = state.pop("_fitted", None)
        super().__setstate__(state)
        if fitted is not None:
            self._restore({k: torch.as_tensor(v) for k, v in fitted[0].items()}, fitted[1])
