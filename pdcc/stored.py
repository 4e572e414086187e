"""A fitted estimator as tensors and plain JSON, and back: saving, loading and copying between processes."""

import logging
from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pdcc.artifact import load_run, save_run
from pdcc.inference import ArtifactError, map_guide
from pdcc.models import Membership, PairBatch
from pdcc.recipe import build
from pdcc.scaling import Scaler
from pdcc.selection import Candidate
from pdcc.settings import check_device

logger = logging.getLogger(__name__)


class StoredEstimator(BaseEstimator):  # type: ignore[misc]
    """What a fitted ``VolMaxDCC`` is on disk: ``save`` and ``load``; never a program, so that loading runs none."""

    device: Any
    seed_: int
    n_features_in_: int
    story_: dict[str, Any]
    history_: list[dict[str, float]]
    status_: str
    message_: str
    annotators_: tuple[Any, ...]
    scaler_: Scaler
    model_: Any
    guide_: Any
    annotator_confusion_: NDArray[np.float64] | None
    memberships_: NDArray[np.float64]
    labels_: NDArray[np.int64]

    @abstractmethod
    def _adopt(self, model: Any, guide: Any, scaler: Scaler) -> None:
        """Take a trained model as this estimator's."""

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The fitted state as tensors and plain JSON."""
        parts = {"model": self.model_.state_dict(), "guide": self.guide_.state_dict()}
        flat = {f"{part}/{name}": value for part, state in parts.items() for name, value in state.items()}
        flat |= {
            "scaler/shift": torch.as_tensor(self.scaler_.shift),
            "scaler/spread": torch.as_tensor(self.scaler_.spread),
        }
        flat["memberships"] = torch.as_tensor(self.memberships_)
        net = {
            "n_features": self.n_features_in_,
            "n_clusters": self.model_.membership.n_clusters,
            "hidden": [m.out_features for m in self.model_.membership.layers if isinstance(m, torch.nn.Linear)][:-1],
            "dropout": next((m.p for m in self.model_.membership.layers if isinstance(m, torch.nn.Dropout)), 0.0),
            "n_pairs": self.model_.n_pairs,
            "n_annotators": 0 if self.annotator_confusion_ is None else len(self.annotator_confusion_),
            "scale": self.scaler_.kind,
        }
        story = {
            "story": self.story_,
            "history": self.history_,
            "status": self.status_,
            "message": self.message_,
            "seed": self.seed_,
            "annotators": [a if isinstance(a, str | int | float) else str(a) for a in self.annotators_],
        }
        return flat, {
            "net": net,
            **story,
            **({"feature_names": self.feature_names_in_.tolist()} if hasattr(self, "feature_names_in_") else {}),
        }

    def _restore(self, flat: dict[str, Tensor], described: dict[str, Any]) -> None:
        """Undo ``_state``: rebuild the Pyro model and guide around the stored tensors."""
        net, self.story_, self.history_ = described["net"], described["story"], described["history"]
        self.status_, self.message_, self.seed_ = described["status"], described["message"], described["seed"]
        self.n_features_in_ = int(net["n_features"])
        self.annotators_ = tuple(described["annotators"])
        if "feature_names" in described:
            self.feature_names_in_ = np.array(described["feature_names"], dtype=object)
        candidate = Candidate(**self.story_["chosen"])
        labels = flat["model/partition"]
        try:
            device = check_device(self.device)
        except ValueError:
            logger.warning("device %r is not available here: loaded to the CPU", self.device)
            device = torch.device("cpu")
        with torch.random.fork_rng(devices=[]):
            membership = Membership(
                self.n_features_in_, int(net["n_clusters"]), tuple(net["hidden"]), net["dropout"]
            ).to(device)
            start = labels.to(device) if len(labels) else None
            model = build(membership, candidate, int(net["n_pairs"]), start, int(net["n_annotators"]))
            guide = map_guide(model)
            x, rows = (
                torch.zeros((2, self.n_features_in_), device=device),
                torch.zeros(2, dtype=torch.long, device=device),
            )
            guide(
                PairBatch(x=x, similar=x.new_zeros(1), index=rows[:1], rows=rows, who=rows[:1])
            )  # lays out its parameters
        for part, module in (("model/", model), ("guide/", guide)):
            module.load_state_dict({k[len(part) :]: v for k, v in flat.items() if k.startswith(part)})
        self._adopt(model, guide, Scaler(net["scale"], flat["scaler/shift"].numpy(), flat["scaler/spread"].numpy()))
        self.memberships_ = flat["memberships"].numpy()
        self.labels_ = self.memberships_.argmax(axis=1)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to the directory ``path``: safetensors and JSON, no code."""
        save_run(Path(path), *self.described())

    def described(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The fitted estimator as named tensors and plain JSON: what ``save`` writes."""
        check_is_fitted(self, "model_")
        flat, described = self._state()
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in self.get_params().items()}
        params = {k: [int(w) for w in v] if isinstance(v, tuple | list) else v for k, v in plain.items()}
        params["random_state"], params["device"] = self.seed_, str(self.device)
        return flat, {"estimator": type(self).__name__, "params": params, **described}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote; raises ``ArtifactError`` for anything foreign, damaged or altered."""
        flat, body = load_run(Path(path))
        if body.get("estimator") != cls.__name__:
            raise ArtifactError(
                f"{path}: expected a saved {cls.__name__}, found {body.get('estimator')!r}. Load it with that class."
            )
        try:
            params = body["params"] | {"hidden": tuple(body["params"]["hidden"])}
            estimator = cls(**params)
            estimator._restore(flat, body)
        except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError) as error:
            raise ArtifactError(
                f"{path}: its description does not fit its tensors ({error}). It was altered; restore it or fit again."
            ) from error
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        # Pyro guides hold traces and weak references; ship tensors as arrays and rebuild the program on arrival.
        state: dict[str, Any] = super().__getstate__()
        if "model_" in state:
            flat, described = self._state()
            state = {k: v for k, v in state.items() if k not in ("model_", "guide_")}
            state["_fitted"] = ({k: v.cpu().numpy() for k, v in flat.items()}, described)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        fitted = state.pop("_fitted", None)
        super().__setstate__(state)
        if fitted is not None:
            self._restore({k: torch.as_tensor(v) for k, v in fitted[0].items()}, fitted[1])
