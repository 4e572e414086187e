"""Fits that are alike, trained at once: each ends where ``fit`` alone would have taken it, but for rounding and dropout's draws."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

from pdcc.inference.batches import PairTensors
from pdcc.inference.checkpoint import fingerprint, save_checkpoint
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.inference.members import MemberStack
from pdcc.inference.stack import Layers, scores
from pdcc.inference.svi import FitResult, close_epoch, trouble
from pdcc.inference.training_state import FitConfig, TrainingState
from pdcc.inference.warmstart import SMOOTHING, START_RATE, start_batches
from pdcc.models.annotation import AnnotationModel
from pdcc.models.membership import Membership

logger = logging.getLogger(__name__)


@dataclass
class Member(TrainingState):
    """One of the fits: what it must remember is its own, its tensors are a slice of the stack's."""

    stack: MemberStack | None = None
    number: int = 0
    alone: bool = False

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the member's tensors, as its own modules hold them."""
        if self.stack is not None:
            self.stack.hand_back(self.number)
        return super().snapshot()

    def full_state(self) -> dict[str, Tensor]:
        """Its own modules' tensors once it has ended. Before, nothing: a member that would have to go back to an earlier state is trained alone."""
        return {} if self.outcome is None else {f"module/{k}": v for k, v in super().snapshot().items()}


def fit_together(
    models: Sequence[AnnotationModel],
    guides: Sequence[PyroModule],
    pairs: Sequence[PairTensors],
    held_out: Sequence[PairTensors] | None,
    configs: Sequence[FitConfig],
    *,
    progress: bool = False,
    label: str = "fits",
    checkpoints: Sequence[Path] = (),
) -> list[FitResult | None]:
    """``fit`` of every model, at once: perceptrons of one shape, one confusion form, Adam, as many batches an epoch for each.

    ``configs`` differ by seed alone. Every member sees its answers in its own order, keeps its own best epoch and stops by itself.
    None for one whose loss stopped being finite or whose clusters collapsed: it must be trained alone, from its start.
    checkpoints: where each member's last state is written in the end, as ``fit`` would have: it goes on from there, which is the end.
    """
    config, seeds, device = configs[0], [c.seed for c in configs], pairs[0].x.device
    early = held_out is not None and not config.keep_last
    probed = pairs if held_out is None else held_out
    with (
        isolated(config.seed, device),
        tqdm(total=config.epochs, desc=label, disable=not progress, leave=False) as bar,
    ):
        for guide, own in zip(guides, pairs, strict=True):
            guide(own.batch(torch.arange(min(2, len(own)), device=device)))  # lays out the guide's parameters
        stack = MemberStack(models, guides, pairs)
        optimizer = _adam(stack, config)
        members = [
            Member(nn.ModuleDict({"model": model, "guide": guide}), optimizer, stack=stack, number=r)
            for r, (model, guide) in enumerate(zip(models, guides, strict=True))
        ]
        constant = _constant(stack, models, guides, pairs)
        if early:
            for member, now in zip(members, stack.probe(probed), strict=True):
                # A start that no epoch improves on is kept.
                member.start_held_out = now.nll
                member.best, member.best_held_out = member.snapshot(), now.nll if math.isfinite(now.nll) else math.inf
        for epoch in range(config.epochs):
            total, steps = torch.zeros(len(models), dtype=torch.float64, device=device), 0
            for part in stack.parts(seeds, epoch, config.batch_size):
                losses = stack.step_losses(part)
                # Members do not meet in the sum of their losses, so one Adam is as many as there are members.
                descend(optimizer, losses.sum())
                total, steps = total + losses.detach(), steps + 1
            going = [member for member in members if member.outcome is None and not member.alone]
            found, means = stack.probe(probed), (total / steps + constant).tolist()
            for member in going:
                now, loss = found[member.number], means[member.number]
                if trouble(now, loss, stack.like.volume > 0) is not None:
                    member.alone = True
                else:
                    close_epoch(member, now, loss, early, held_out is not None, stack.like.volume > 0, config)
            bar.update(1)
            if all(member.outcome is not None or member.alone for member in members):
                break
    results = [_result(member, config, label) for member in members]
    for r, path in enumerate(checkpoints):
        if results[r] is not None:
            mark = fingerprint(members[r], configs[r], pairs[r], None if held_out is None else held_out[r])
            save_checkpoint(members[r], path, mark)
    return results


def _adam(stack: MemberStack, config: FitConfig) -> torch.optim.Optimizer:
    rest = [t for t in stack.confusions() if t.requires_grad]
    groups = [{"params": [t for layer in stack.layers for t in layer], "lr": config.lr}]
    groups += [{"params": rest, "lr": config.confusion_lr}] if rest else []
    return torch.optim.Adam(groups, lr=config.lr, fused=True)


@torch.no_grad()
def _constant(
    stack: MemberStack, models: Sequence[AnnotationModel], guides: Sequence[PyroModule], pairs: Sequence[PairTensors]
) -> Tensor:
    """What densities of the program have and the stack's objective leaves out, per answer, (R,)."""
    some = [torch.arange(min(len(own), 64), device=own.i.device) for own in pairs]
    dropout, stack.dropout = stack.dropout, 0.0
    ours = stack.step_losses(stack.part(some)).double()
    stack.dropout = dropout
    theirs = []
    for model, guide, own, index in zip(models, guides, pairs, some, strict=True):
        model.eval()
        theirs.append(negative_elbo(model, guide, own.batch(index)).double() / own.total_weight)
    return torch.stack(theirs) - ours


def _result(member: Member, config: FitConfig, label: str) -> FitResult | None:
    if member.alone or member.outcome is None:
        return None
    member.modules.load_state_dict(member.best)
    member.modules.eval()
    status, message = member.outcome
    logger.debug("%s: %s", label, message)
    history, start = member.history, member.start_held_out
    return FitResult(status, message, member.best_held_out, member.best_epoch, history, None, start)


def warm_start_together(nets: Sequence[Membership], x: Tensor, labels: Tensor, seeds: Sequence[int]) -> None:
    """``warm_start`` of perceptrons of one shape, in place, each to labels of its own, (R, N), of the items x (N, d)."""
    linear = [[m for m in net.modules() if isinstance(m, nn.Linear)] for net in nets]
    dropout = next((m.p for m in nets[0].modules() if isinstance(m, nn.Dropout)), 0.0)
    with isolated(seeds[0], x.device):
        layers: Layers = tuple(
            (
                torch.stack([m.weight.detach().mT for m in same]).clone().requires_grad_(),
                torch.stack([m.bias.detach()[None] for m in same]).clone().requires_grad_(),
            )
            for same in zip(*linear, strict=True)
        )
        optimizer = torch.optim.Adam([t for layer in layers for t in layer], lr=START_RATE, fused=True)
        for each in zip(*(start_batches(len(x), seed, x.device) for seed in seeds), strict=True):
            rows = torch.stack(each)
            found, wanted = scores(layers, x[rows], dropout), labels.gather(1, rows)
            loss = cross_entropy(found.flatten(0, 1), wanted.flatten(), label_smoothing=SMOOTHING)
            descend(optimizer, len(nets) * loss)
        with torch.no_grad():
            for r, own in enumerate(linear):
                for m, (w, b) in zip(own, layers, strict=True):
                    m.weight.copy_(w[r].mT)
                    m.bias.copy_(b[r, 0])
    for net in nets:
        net.eval()
