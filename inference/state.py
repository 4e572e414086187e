"""Everything a training run is made of at one moment: what a checkpoint must hold."""

import dataclasses
import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdcc.inference.batches import PairTensors
from pdcc.inference.checkpoint import ArtifactError, flatten_optimizer, load_state, restore_optimizer, save_state


@dataclass(frozen=True)
class FitConfig:
    """How to train; ``patience`` counts epochs without a better held-out likelihood (None: never stop early)."""

    epochs: int = 60
    batch_size: int = 128
    lr: float = 1e-3
    confusion_lr: float = 1e-2
    optimizer: str = "adam"
    exact_volume: bool = False
    patience: int | None = 8
    seed: int = 0


PLAIN = ("epoch", "step", "steps", "rate", "recoveries", "best_epoch", "best_held_out", "history", "outcome")


@dataclass
class TrainingState:
    """Everything a checkpoint must hold for a resumed run to end at the same bits."""

    modules: torch.nn.ModuleDict
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    steps: int = 0
    total: Tensor = field(default_factory=lambda: torch.zeros(()))
    rate: float = 1.0
    recoveries: int = 0
    best_epoch: int = -1
    best_held_out: float = math.inf
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    good: dict[str, Tensor] = field(default_factory=dict)
    outcome: tuple[str, str] | None = None

    def snapshot(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.modules.state_dict().items()}

    def full_state(self) -> dict[str, Tensor]:
        moments = {f"optimizer/{k}": v.clone() for k, v in flatten_optimizer(self.optimizer).items()}
        return {f"module/{k}": v for k, v in self.snapshot().items()} | moments

    def restore(self, state: dict[str, Tensor]) -> None:
        self.modules.load_state_dict(under("module/", state))
        restore_optimizer(self.optimizer, under("optimizer/", state))

    def set_rate(self, rate: float) -> None:
        """Put every learning rate at ``rate`` times what it was in the beginning."""
        self.rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.setdefault("initial_lr", group["lr"])

    def fingerprint(self, config: FitConfig, pairs: PairTensors, held_out: PairTensors | None) -> dict[str, Any]:
        """What a checkpoint must share with a run to go on with it: configuration, shapes and data."""
        digest = hashlib.sha256()
        for part in (pairs, *([] if held_out is None else [held_out])):
            for tensor in part.tensors().values():
                digest.update(tensor.cpu().contiguous().numpy().tobytes())
        shapes = {name: list(value.shape) for name, value in self.modules.state_dict().items()}
        return {"config": dataclasses.asdict(config), "shapes": shapes, "data": digest.hexdigest()}

    def save(self, path: Path, mark: dict[str, Any]) -> None:
        tensors = {f"now/{k}": v for k, v in self.full_state().items()}
        tensors |= {f"good/{k}": v for k, v in self.good.items()} | {f"best/{k}": v for k, v in self.best.items()}
        tensors |= {"total": self.total, "rng": torch.get_rng_state()}
        if self.total.is_cuda:
            tensors["rng_cuda"] = torch.cuda.get_rng_state(self.total.device)
        save_state(path, tensors, {"mark": mark, "state": {name: getattr(self, name) for name in PLAIN}})

    def load(self, path: Path, mark: dict[str, Any]) -> None:
        tensors, meta = load_state(path)
        if meta.get("mark") != mark:
            raise ArtifactError(
                f"{path}: was written under another configuration or for other data. Resume with what the run was begun with, or begin anew in another directory."
            )
        for name in PLAIN:
            setattr(self, name, meta["state"][name])
        self.outcome = tuple(self.outcome) if self.outcome else None  # type: ignore[assignment]
        self.set_rate(self.rate)
        self.restore(under("now/", tensors))
        self.good, self.best = under("good/", tensors), under("best/", tensors)
        self.total = tensors["total"].to(self.total.device)
        torch.set_rng_state(tensors["rng"])
        if "rng_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng_cuda"], self.total.device)


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
