"""Several fits that a study of one fit needs: at once where nets are small and the fits alike, else one by one."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pdcc.inference.batches import index_batches
from pdcc.inference.processes import Processes
from pdcc.inference.rows import Items
from pdcc.inference.together import fit_together, warm_start_together
from pdcc.models import Membership
from pdcc.models.modules import seeded
from pdcc.training import OWN, OwnParts, Specification, TrainConfig, Trainer, Trial, first_net, make_net

# Nets of fewer weights are trained at once: ten of them, of up to 6,200 weights, took a third of the time or less, of 12,000 about half
# (benchmarks/ensemble.py, docs/results.md). Wider ones gain little, and would need their activations many times over.
SMALL = 50_000


@dataclass(frozen=True)
class Job:
    """One fit to be made: arguments of ``Trainer.train``."""

    trainer: Trainer
    chosen: Specification
    net: Membership
    labels: Tensor | None
    seed: int
    title: str
    agreement: Tensor | None = None
    exactly: int | None = None

    def run(self) -> Trial:
        """The fit, by itself."""
        return self.trainer.train(
            self.chosen, self.net, self.labels, self.seed, self.title,
            agreement=self.agreement, exactly=self.exactly,
        )  # fmt: skip

    def kind(self) -> Hashable | None:
        """What those that can be trained at once have in common; None: this one is trained by itself."""
        trainer, config = self.trainer, self.trainer.config
        how = trainer.how(0, self.exactly)
        if not is_small(self.net) or trainer.own.network is not None or self.chosen.confusion == OWN:
            return None
        if not isinstance(trainer.pairs.x, Tensor):  # rows that are read as they are needed
            return None
        if trainer.judge is not None or config.optimizer != "adam" or how.exact_volume or how.epochs == 0:
            return None
        order = torch.arange(len(trainer.pairs))
        steps = len(index_batches(order, config.batch_size, least=2 * config.n_clusters))
        parts = (trainer.held_out is None, trainer.pairs.annotator is None, id(trainer.pairs.x))
        return self.chosen, how, steps, trainer.n_annotators, self.labels is None, parts


def is_small(net: Membership) -> bool:
    """Whether nets like this one train faster at once."""
    return type(net) is Membership and not net.mixed and sum(p.numel() for p in net.parameters()) < SMALL


def trained_side_by_side(config: TrainConfig, item_shape: tuple[int, ...], own: OwnParts) -> bool:
    """Whether nets for such items are small enough for that."""
    if own.network is not None:
        return False
    with seeded():
        return is_small(make_net(config, item_shape, own))


def train_all(jobs: Sequence[Job], done: Callable[[int], object] = lambda count: None) -> list[Trial]:
    """The trials of all jobs; ``done`` is told how many are new. Those at once end where they would alone, but for rounding and which units dropout drops."""
    groups: dict[Hashable, list[int]] = {}
    for number, job in enumerate(jobs):
        kind = job.kind()
        groups.setdefault(("alone", number) if kind is None else kind, []).append(number)
    found: dict[int, Trial] = {}
    for numbers in groups.values():
        some = [jobs[number] for number in numbers]
        found |= zip(numbers, [job.run() for job in some] if len(some) == 1 else _at_once(some), strict=True)
        done(len(some))
    return [found[number] for number in range(len(jobs))]


def _at_once(jobs: Sequence[Job]) -> list[Trial]:
    where = [job.trainer.checkpoint(job.chosen, job.seed, job.title) for job in jobs]
    # Several processes make these fits whole, each for itself, and keep nothing of them.
    kept = [path for path in where if path is not None] if Processes.here(jobs[0].trainer.pairs.x.device).alone else []
    if kept and all(path.exists() for path in kept):
        return [job.run() for job in jobs]
    programs = [job.trainer.program(job.chosen, job.net, job.labels, job.agreement) for job in jobs]
    first = jobs[0]
    how = first.trainer.how(0, first.exactly)
    held = [job.trainer.held_out for job in jobs if job.trainer.held_out is not None]
    results = fit_together(
        [model for model, _ in programs], [guide for _, guide in programs], [job.trainer.pairs for job in jobs],
        held or None, [replace(how, seed=job.seed) for job in jobs],
        progress=first.trainer.progress, label=f"{first.title} and {len(jobs) - 1} more", checkpoints=kept,
    )  # fmt: skip
    return [
        job.run() if result is None else job.trainer.judged(*program, result)
        for job, program, result in zip(jobs, programs, results, strict=True)
    ]


def first_nets(
    config: TrainConfig, x: Items, labels: Sequence[Tensor | None], seeds: Sequence[int], own: OwnParts
) -> list[Membership]:
    """``first_net`` for every seed and its labels (N,), at once where nets are small."""
    given = [one for one in labels if one is not None]
    nets = []
    if own.network is None and len(given) == len(seeds) > 1:
        for seed in seeds:
            with seeded(seed):
                nets.append(make_net(config, tuple(x.shape[1:]), own).to(x.device))
    if not isinstance(x, Tensor) or not nets or not is_small(nets[0]):
        return [first_net(config, x, one, seed, own) for one, seed in zip(labels, seeds, strict=True)]
    warm_start_together(nets, x, torch.stack(given), seeds)
    return nets
