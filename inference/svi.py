"""The one training loop: stochastic variational inference of any Pyro model of pair batches."""

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from pyro.nn import PyroModule
from torch import nn
from tqdm.auto import tqdm

from pdcc.inference.batches import PairTensors, ahead, epoch_order, index_batches
from pdcc.inference.checkpoint import end_together, fingerprint, go_on_together, kept_when_lost, save_checkpoint
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.inference.predict import Probe, probe
from pdcc.inference.processes import Processes
from pdcc.inference.training_state import FitConfig, FitStatus, TrainingState, under
from pdcc.models.membership import NetworkMembership

logger = logging.getLogger(__name__)

MAX_RECOVERIES = 3
RECOVERY_RATE = 0.3
# A Gram whose smallest eigenvalue is this close to the volume's jitter has lost a cluster altogether.
COLLAPSED = 1e-9
# Seconds between checkpoints.
CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True)
class FitResult:
    """What training came to. The model and guide hold the best state found (the last good one on divergence).

    status: how it ended; message: a sentence about that. start_held_out: nats per held-out answer before the first step.
    """

    status: FitStatus
    message: str
    held_out: float
    best_epoch: int
    history: list[dict[str, float]]
    resumed_at: int | None = None
    start_held_out: float = math.nan


def make_optimizer(
    model: PyroModule, guide: PyroModule, config: FitConfig, *, fused: bool = True
) -> torch.optim.Optimizer:
    """One optimiser, two rates: the memberships' and, for everything else (confusions), ``confusion_lr``."""
    net = list(model.membership.parameters())
    rest = [
        p for module in (model, guide) for name, p in module.named_parameters() if not name.startswith("membership.")
    ]
    groups = [{"params": net, "lr": config.lr}] + ([{"params": rest, "lr": config.confusion_lr}] if rest else [])
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[config.optimizer]
    return cast(torch.optim.Optimizer, kind(groups, lr=config.lr, fused=fused))


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
    judge: Callable[[nn.Module], float] | None = None,
) -> FitResult:
    """Maximise the ELBO (for a delta guide: the log joint, which is the paper's eq. 13) over model and guide.

    The epoch kept is the one that predicts ``held_out`` best, or the last where there is none; with ``judge``, the one whose model
    it scores lowest. With ``checkpoint``, the state is written there every few seconds; a run that finds such a file goes on
    from it and, on the same machine, ends at the same bits as one that was never stopped. In a process group of torch, all
    processes must call this with the same arguments: they share each batch, and the first one writes the checkpoint.
    """
    processes = Processes.here(pairs.x.device)
    if not processes.first:
        checkpoint, progress = None, False
    with (
        isolated(config.seed, pairs.x.device, small=not isinstance(model.membership, NetworkMembership)),
        tqdm(total=config.epochs, desc=label, disable=not progress, leave=False) as bar,
        contextlib.ExitStack() as ending,
    ):
        guide(pairs.batch(torch.arange(min(2, len(pairs)), device=pairs.x.device)))  # lays out the guide's parameters
        run = TrainingState(torch.nn.ModuleDict({"model": model, "guide": guide}), make_optimizer(model, guide, config))
        run.total = torch.zeros((), dtype=torch.float64, device=pairs.x.device)
        run.good = run.full_state()
        mark = {} if checkpoint is None and processes.alone else fingerprint(run, config, pairs, held_out)
        go_on_together(run, checkpoint, mark, processes)
        ending.enter_context(kept_when_lost(run, checkpoint, mark))
        resumed_at = run.steps if run.steps or run.outcome is not None else None
        if resumed_at is not None:
            if run.outcome is None:
                logger.info(
                    "%s: resumed at step %d, in epoch %d of at most %d", label, resumed_at, run.epoch + 1, config.epochs
                )
            bar.update(run.epoch)
        elif held_out is not None and not config.keep_last and judge is None:
            # A start that no epoch improves on is kept.
            (run.start_held_out,) = processes.agree([probe(model, guide, held_out).nll])
            run.best, run.best_held_out = run.snapshot(), _finite(run.start_held_out)
        if config.epochs == 0:
            run.outcome = (FitStatus.START_KEPT, "Kept the start as it is.")
        saved, weight, exact = time.monotonic(), pairs.total_weight, config.exact_volume

        while run.outcome is None:
            model.train()
            order = epoch_order(len(pairs), config.seed, run.epoch, pairs.x.device)
            parts = index_batches(order, config.batch_size, least=2 * model.membership.n_clusters)
            for batch, share in ahead(partial(processes.batch, pairs, exact_volume=exact), parts[run.step :], pairs.x):
                processes.draw_own_noise(config.seed, run.steps)
                loss = negative_elbo(model, guide, batch) / (weight / share)
                run.total += descend(run.optimizer, loss, processes.sum_gradients)
                run.step += 1
                run.steps += 1
                if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    save_checkpoint(run, checkpoint, mark)
                    saved = time.monotonic()

            now = probe(model, guide, pairs if held_out is None else held_out)
            if judge is not None:
                now = replace(now, nll=judge(model))
            now, mean_loss = _agreed(processes, now, float(run.total) / len(parts))
            early = (held_out is not None or judge is not None) and not config.keep_last
            probed = held_out is not None or judge is not None
            close_epoch(run, now, mean_loss, early, probed, model.volume > 0, config)
            if run.history:
                bar.set_postfix({k: f"{v:.4f}" for k, v in run.history[-1].items() if k != "epoch"})
            bar.update(1)

        run.modules.load_state_dict(run.best or under("module/", run.good))
        end_together(run, processes)
        model.eval()
        if checkpoint is not None:
            save_checkpoint(run, checkpoint, mark)
    status, message = run.outcome
    (logger.warning if status is FitStatus.DIVERGED else logger.debug)("%s: %s", label, message)
    return FitResult(status, message, run.best_held_out, run.best_epoch, run.history, resumed_at, run.start_held_out)


def _agreed(processes: Processes, now: Probe, loss: float) -> tuple[Probe, float]:
    """What the first process found at the end of an epoch, in all."""
    nll, log_volume, smallest, loss = processes.agree([now.nll, now.log_volume, now.smallest_eigenvalue, loss])
    return Probe(nll, log_volume, smallest), loss


def _finite(nll: float) -> float:
    return nll if math.isfinite(nll) else math.inf


def _stopped(best_epoch: int) -> tuple[FitStatus, str]:
    if best_epoch < 0:
        return FitStatus.START_KEPT, "Kept the start: no epoch of training predicted held-out answers better."
    return FitStatus.CONVERGED, f"Held-out answers stopped improving after epoch {best_epoch + 1}."


def trouble(now: Probe, loss: float, wants_volume: bool) -> str | None:
    """What went wrong in an epoch, if anything did."""
    if not (math.isfinite(loss) and math.isfinite(now.nll)):
        return "the loss stopped being finite"
    # Without a volume term, leaving a cluster empty is a legitimate optimum.
    collapsed = wants_volume and now.smallest_eigenvalue < COLLAPSED
    return "the memberships collapsed onto fewer clusters" if collapsed else None


def close_epoch(
    run: TrainingState, now: Probe, loss: float, early: bool, probed: bool, wants_volume: bool, config: FitConfig
) -> None:
    """Judge the epoch just done: keep it, go back to the last good one at a lower rate, or end the run."""
    what = trouble(now, loss, wants_volume)
    if what is not None:
        run.recoveries += 1
        run.restore(run.good)
        if run.recoveries > MAX_RECOVERIES:
            run.outcome = (
                FitStatus.DIVERGED,
                f"In epoch {run.epoch + 1} {what}, {run.recoveries} time(s) in all; kept the best state before. Lower lr (now {config.lr:g}) or confusion_lr ({config.confusion_lr:g}), or lower volume.",
            )
        else:
            run.set_rate(run.rate * RECOVERY_RATE)
            logger.warning(
                "In epoch %d %s: went back to the last good state with learning rates times %.2g.",
                run.epoch + 1,
                what,
                run.rate,
            )
    else:
        name = "held_out" if probed else "nll"  # with nothing held out, the pairs themselves are probed
        run.history.append({"epoch": run.epoch, "loss": loss, name: now.nll, "log_volume": now.log_volume})
        run.good = run.full_state()
        if not early or now.nll < run.best_held_out:
            run.best, run.best_epoch, run.best_held_out = run.snapshot(), run.epoch, now.nll
        elif config.patience is not None and run.epoch - run.best_epoch >= config.patience:
            run.outcome = _stopped(run.best_epoch)
    run.epoch, run.step = run.epoch + 1, 0
    run.total.zero_()
    if run.outcome is None and run.epoch >= config.epochs:
        kept = "kept the last state"
        if early:
            kept = (
                "kept the start, which none improved on"
                if run.best_epoch < 0
                else f"kept the best held-out state, of epoch {run.best_epoch + 1}"
            )
        run.outcome = (FitStatus.EPOCHS_USED, f"All {config.epochs} epochs used; {kept}.")
