"""The one training loop: stochastic variational inference of any Pyro model of pair batches."""

import contextlib
import dataclasses
import logging
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyro
import torch
from pyro.nn import PyroModule
from torch import Tensor
from tqdm.auto import tqdm

from pdcc.inference.batches import PairTensors, batches, epoch_order
from pdcc.inference.checkpoint import ArtifactError, flatten_optimizer, load_state, restore_optimizer, save_state
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.evaluate import Probe, probe

logger = logging.getLogger(__name__)

MAX_RECOVERIES = 3
RECOVERY_RATE = 0.3
# A Gram whose smallest eigenvalue is this close to the volume's jitter has lost a cluster altogether.
COLLAPSED = 1e-9
# Seconds between checkpoints.
CHECKPOINT_SECONDS = float(os.environ.get("PDCC_CHECKPOINT_SECONDS", "5"))


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


@dataclass(frozen=True)
class FitResult:
    """What training came to. The model and guide hold the best state found (the last good one on divergence).

    status: "converged" (held-out answers stopped improving), "epochs used" or "diverged"; message: a sentence.
    """

    status: str
    message: str
    held_out: float
    best_epoch: int
    history: list[dict[str, float]]
    resumed_at: int | None = None


@dataclass
class _Run:
    """Everything a checkpoint must hold for a resumed run to end at the same bits."""

    modules: torch.nn.ModuleDict
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
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
        self.modules.load_state_dict(_under("module/", state))
        restore_optimizer(self.optimizer, _under("optimizer/", state))

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] *= rate / self.rate
        self.rate = rate

    def save(self, path: Path, config: FitConfig) -> None:
        tensors = {f"now/{k}": v for k, v in self.full_state().items()}
        tensors |= {f"good/{k}": v for k, v in self.good.items()} | {f"best/{k}": v for k, v in self.best.items()}
        tensors |= {"total": self.total, "rng": torch.get_rng_state()}
        if self.total.is_cuda:
            tensors["rng_cuda"] = torch.cuda.get_rng_state(self.total.device)
        plain = ("epoch", "step", "rate", "recoveries", "best_epoch", "best_held_out", "history", "outcome")
        save_state(path, tensors, {"config": dataclasses.asdict(config)} | {name: getattr(self, name) for name in plain})

    def load(self, path: Path, config: FitConfig) -> None:
        tensors, meta = load_state(path)
        if meta.pop("config") != dataclasses.asdict(config):
            raise ArtifactError(f"{path}: was written under another configuration. Resume with the settings the run was begun with, or begin anew.")
        rate = meta.pop("rate")
        for name, value in meta.items():
            setattr(self, name, value)
        self.outcome = tuple(self.outcome) if self.outcome else None  # type: ignore[assignment]
        self.set_rate(rate)
        self.restore(_under("now/", tensors))
        self.good, self.best = _under("good/", tensors), _under("best/", tensors)
        self.total = tensors["total"].to(self.total.device)
        torch.set_rng_state(tensors["rng"])
        if "rng_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng_cuda"], self.total.device)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def make_optimizer(model: PyroModule, guide: PyroModule, config: FitConfig, *, fused: bool = True) -> torch.optim.Optimizer:
    """One optimiser, two rates: the memberships' and, for everything else (confusions), ``confusion_lr``."""
    net = list(model.membership.parameters())
    rest = [p for module in (model, guide) for name, p in module.named_parameters() if not name.startswith("membership.")]
    groups = [{"params": net, "lr": config.lr}] + ([{"params": rest, "lr": config.confusion_lr}] if rest else [])
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[config.optimizer]
    return kind(groups, lr=config.lr, fused=fused)


@contextlib.contextmanager
def quiet_pyro(seed: int, device: torch.device) -> Iterator[None]:
    """No validation, and a private random stream: the caller's global state is left as it was."""
    devices = [device] if device.type == "cuda" else []
    with (
        pyro.settings.context(validate_distributions_pyro=False, validate_distributions_torch=False, validate_poutine=False, validate_infer=False),
        torch.random.fork_rng(devices=devices),
    ):
        torch.manual_seed(seed)
        yield


def fit(
    model: PyroModule,
    guide: PyroModule,
    pairs: PairTensors,
    held_out: PairTensors | None,
    config: FitConfig,
    *,
    checkpoint: Path | None = None,
    progress: bool = False,
    label: str = "fit",
) -> FitResult:
    """Maximise the ELBO (for a delta guide: the log joint, which is the paper's eq. 13) over model and guide.

    With ``checkpoint``, the state is written there every few seconds; a run that finds such a file goes on
    from it and, on the same machine, ends at the same bits as one that was never stopped.
    """
    n_batches = math.ceil(len(pairs) / config.batch_size)
    with quiet_pyro(config.seed, pairs.x.device), tqdm(total=config.epochs, desc=label, disable=not progress, leave=False) as bar:
        guide(pairs.batch(torch.arange(min(2, len(pairs)), device=pairs.x.device)))  # lays out the guide's parameters
        run = _Run(torch.nn.ModuleDict({"model": model, "guide": guide}), make_optimizer(model, guide, config))
        run.total = torch.zeros((), dtype=torch.float64, device=pairs.x.device)
        run.good = run.full_state()
        resumed_at = None
        if checkpoint is not None and checkpoint.exists():
            run.load(checkpoint, config)
            resumed_at = run.epoch * n_batches + run.step
            if run.outcome is None:
                logger.info("%s: resumed at step %d of at most %d", label, resumed_at, config.epochs * n_batches)
            bar.update(run.epoch)
        saved = time.monotonic()

        while run.outcome is None:
            model.train()
            order = epoch_order(len(pairs), config.seed, run.epoch, pairs.x.device)
            for batch in batches(pairs, order, config.batch_size, exact_volume=config.exact_volume, start=run.step):
                run.optimizer.zero_grad(set_to_none=True)
                loss = negative_elbo(model, guide, batch) / len(pairs)
                loss.backward()
                run.optimizer.step()
                run.total += loss.detach()
                run.step += 1
                if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    run.save(checkpoint, config)
                    saved = time.monotonic()

            now = probe(model, guide, pairs if held_out is None else held_out)
            _close_epoch(run, now, float(run.total) / n_batches, held_out is not None, model.volume > 0, config)
            if run.history:
                bar.set_postfix({k: f"{v:.4f}" for k, v in run.history[-1].items() if k != "epoch"})
            bar.update(1)

        run.modules.load_state_dict(run.best or _under("module/", run.good))
        model.eval()
        if checkpoint is not None:
            run.save(checkpoint, config)
    status, message = run.outcome
    (logger.warning if status == "diverged" else logger.info)("%s: %s", label, message)
    return FitResult(status, message, run.best_held_out, run.best_epoch, run.history, resumed_at)


def _close_epoch(run: _Run, now: Probe, loss: float, early: bool, wants_volume: bool, config: FitConfig) -> None:
    """Judge the epoch just done: keep it, go back to the last good one at a lower rate, or end the run."""
    collapsed = wants_volume and now.smallest_eigenvalue < COLLAPSED
    if collapsed or not (math.isfinite(loss) and math.isfinite(now.nll)):
        what = "the memberships collapsed onto fewer clusters" if collapsed else "the loss stopped being finite"
        run.recoveries += 1
        run.restore(run.good)
        if run.recoveries > MAX_RECOVERIES:
            run.outcome = ("diverged", f"In epoch {run.epoch + 1} {what}, {run.recoveries} time(s) in all; kept the last good state. Lower lr (now {config.lr:g}) or confusion_lr ({config.confusion_lr:g}), or lower volume.")
        else:
            run.set_rate(run.rate * RECOVERY_RATE)
            logger.warning("In epoch %d %s: went back to the last good state with learning rates times %.2g.", run.epoch + 1, what, run.rate)
    else:
        run.history.append({"epoch": run.epoch, "loss": loss, "held_out": now.nll, "log_volume": now.log_volume})
        run.good = run.full_state()
        if not early or now.nll < run.best_held_out:
            run.best, run.best_epoch, run.best_held_out = run.snapshot(), run.epoch, now.nll
        elif config.patience is not None and run.epoch - run.best_epoch >= config.patience:
            run.outcome = ("converged", f"Held-out answers stopped improving after epoch {run.best_epoch + 1}.")
    run.epoch, run.step = run.epoch + 1, 0
    run.total.zero_()
    if run.outcome is None and run.epoch >= config.epochs:
        run.outcome = ("epochs used", f"All {config.epochs} epochs used; best held-out state from epoch {run.best_epoch + 1}.")
