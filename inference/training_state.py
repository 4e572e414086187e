"""Everything a training run is made of at one moment."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor


class FitStatus(StrEnum):
    """How a training run ended."""

    CONVERGED = "converged"  # held-out answers stopped improving
    EPOCHS_USED = "epochs used"
    START_KEPT = "start kept"  # no epoch was wanted, or none was better than the start
    NOT_USEFUL = "not useful"  # predicts no better than a constant, or a cluster is empty: see the message
    DIVERGED = "diverged"


@dataclass(frozen=True)
class FitConfig:
    """How to train; ``patience`` counts epochs without a better held-out likelihood (None: never stop early).

    keep_last: the state kept is the last one, and held-out answers are only looked at.
    """

    epochs: int = 60
    batch_size: int = 128
    lr: float = 1e-3
    confusion_lr: float = 1e-2
    optimizer: str = "adam"
    exact_volume: bool = False
    patience: int | None = 8
    seed: int = 0
    keep_last: bool = False


@dataclass
class TrainingState:
    """What a run must remember to go on: the modules, the optimiser, where it is, and what was good so far."""

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
    start_held_out: float = math.nan
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    good: dict[str, Tensor] = field(default_factory=dict)
    outcome: tuple[FitStatus, str] | None = None

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the modules' tensors."""
        return {name: value.detach().clone() for name, value in self.modules.state_dict().items()}

    def full_state(self) -> dict[str, Tensor]:
        """A copy of the modules' and the optimiser's tensors."""
        moments = {f"optimizer/{k}": v.clone() for k, v in _flatten(self.optimizer).items()}
        return {f"module/{k}": v for k, v in self.snapshot().items()} | moments

    def restore(self, state: dict[str, Tensor]) -> None:
        """Undo ``full_state``; rates and groups stay those of the optimiser."""
        self.modules.load_state_dict(under("module/", state))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimizer/", state).items():
            number, kind = name.split(".", 1)
            moments.setdefault(int(number), {})[kind] = value.clone()
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def set_rate(self, rate: float) -> None:
        """Put every learning rate at ``rate`` times what it was in the beginning."""
        self.rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.setdefault("initial_lr", group["lr"])


def _flatten(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors for each parameter, named ``number.field``."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{kind}": value
        for number, fields in state.items()
        for kind, value in fields.items()
        if isinstance(value, Tensor)
    }


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
