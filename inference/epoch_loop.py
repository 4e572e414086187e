"""Epochs of anything that gives items memberships: stop when nothing changes or improves, keep what was good."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from pdcc.inference.training_state import FitStatus

logger = logging.getLogger(__name__)


@dataclass
class Run:
    """What training came to: the module holds the best state found (the last good one where nothing was held out).

    status: how it ended; message: a sentence about that; history: one dict per epoch.
    """

    status: FitStatus = FitStatus.EPOCHS_USED
    message: str = ""
    history: list[dict[str, float]] = field(default_factory=list)


# Sums the gradients of all processes, in place, and their losses.
Together = Callable[[torch.optim.Optimizer, Tensor], Tensor]


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, together: Together | None = None) -> Tensor:
    """One step down ``loss``, or down the sum of all processes' losses; returns it without its graph."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    loss = loss.detach() if together is None else together(optimizer, loss.detach())
    optimizer.step()
    return loss


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the module's state."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def run_epochs(
    module: nn.Module,
    train: Callable[[int, Tensor], Tensor],
    look: Callable[[], Tensor],
    *,
    epochs: int,
    tol: float = 0.0,
    score: Callable[[Tensor], float] | None = None,
    patience: int | None = None,
    progress: bool = False,
    label: str = "fit",
) -> Run:
    """Call ``train(epoch, log_memberships)``, which returns the epoch's mean loss, up to ``epochs`` times.

    ``look()`` gives log memberships (N, K). Stops when fewer than ``tol`` of the N labels change in an epoch, or
    after ``patience`` epochs without a lower ``score(memberships)``; with a score, the epoch with the lowest is kept.
    """
    run, seen = Run(), look()
    good, best_score, best_epoch = snapshot(module), math.inf, -1
    best = good
    for epoch in tqdm(range(epochs), desc=label, disable=not progress, leave=False):
        module.train()
        loss = float(train(epoch, seen))
        module.eval()
        before, seen = seen.argmax(1), look()
        if not (math.isfinite(loss) and bool(seen.isfinite().all())):
            run.status = FitStatus.DIVERGED
            run.message = f"In epoch {epoch + 1} the loss or the memberships stopped being finite; kept the {'last' if best_epoch < 0 else 'best'} state before. Lower lr."
            break
        changed = float((seen.argmax(1) != before).double().mean())
        run.history.append({"epoch": epoch, "loss": loss, "changed": changed})
        good = snapshot(module)
        if score is not None:
            now = score(seen.double().exp())
            run.history[-1]["held_out"] = now
            if now < best_score:
                best, best_score, best_epoch = good, now, epoch
            elif patience is not None and epoch - best_epoch >= patience:
                run.status, run.message = (
                    FitStatus.CONVERGED,
                    f"Held-out answers stopped improving after epoch {best_epoch + 1}.",
                )
                break
        if changed < tol:
            run.status = FitStatus.CONVERGED
            run.message = f"In epoch {epoch + 1} {changed:.2%} of the labels changed, fewer than {tol:.2%}."
            break
    module.load_state_dict(best if best_epoch >= 0 else good)
    module.eval()
    if run.status is FitStatus.EPOCHS_USED:
        kept = f"kept the best held-out state, of epoch {best_epoch + 1}" if score else "kept the last state"
        run.message = f"All {epochs} epochs used; {kept}."
    (logger.warning if run.status is FitStatus.DIVERGED else logger.info)("%s: %s", label, run.message)
    return run


@torch.no_grad()
def in_parts(function: Callable[[Tensor], Tensor], x: Tensor, rows_at_once: int = 8192) -> Tensor:
    """``function(x)`` for many rows x (n, d), a part at a time."""
    return torch.cat([function(part) for part in x.split(rows_at_once)])
