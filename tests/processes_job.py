"""One process of a job that fits together: python processes_job.py RANK SIZE DIRECTORY. The test that starts it runs the same fits alone."""

import dataclasses
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import distributed
from torch.optim.optimizer import register_optimizer_step_post_hook

from pdcc import VolMaxDCC
from pdcc.errors import FirstProcessError, LostProcessError
from pdcc.inference import FitConfig, PairTensors, fit, map_guide
from pdcc.inference.processes import Processes
from pdcc.models import AnnotationModel, Membership, make_confusion

STEPS = 50
# Fifty steps of 33 answers each, which two processes cannot halve.
WHOLE = FitConfig(epochs=5, batch_size=33, lr=1e-2, patience=None, seed=3)
# form of the confusion, settings of training, answers
CASES = {
    "stochastic": ("stochastic", WHOLE, 330),
    "per-annotator, all items": ("per-annotator", dataclasses.replace(WHOLE, epochs=1, exact_volume=True), 70),
    "pooled, by descent": ("pooled", dataclasses.replace(WHOLE, epochs=1, optimizer="sgd", lr=0.1), 100),
    "batches of one": ("sigmoid", dataclasses.replace(WHOLE, epochs=1, batch_size=1, exact_volume=True), 7),
}
# After so many steps a process is killed, or a run interrupted.
EARLY = 7


def problem(n_pairs: int, n: int = 61):
    """Weighted answers of three annotators about ``n`` items, in double precision; some of them held out."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    x = torch.randn(n, 4, generator=g).double() + 4 * torch.eye(4).double()[y]
    i, j = torch.randint(n, (2, n_pairs + 40), generator=g)
    who, weight = torch.randint(3, (len(i),), generator=g), 0.5 + torch.rand(len(i), generator=g).double()
    every = (i, j, (y[i] == y[j]).double(), who, weight)
    return PairTensors(x, *(part[40:] for part in every)), PairTensors(x, *(part[:40] for part in every))


def model_and_guide(form: str, pairs: PairTensors, dropout: float = 0.0):
    torch.manual_seed(0)
    model = AnnotationModel(
        Membership(4, 3, (16,), dropout), make_confusion(form, 3, 3), n_pairs=len(pairs), volume=0.05,
        total_weight=pairs.total_weight, partition=torch.arange(len(pairs.x)) % 3, partition_weight=0.3,
    ).double()  # fmt: skip
    return model, map_guide(model)


class Interrupted(Exception):
    pass


def steps_of(
    form: str, config: FitConfig, n_pairs: int, *, stop=None, checkpoint: Path | None = None, dropout: float = 0.0
):
    """All parameters after every step of a fit, (steps, P), its history, and those it ended with. stop: called after ``EARLY`` steps."""
    train, held = problem(n_pairs)
    model, guide = model_and_guide(form, train, dropout)
    seen: list[torch.Tensor] = []

    def note(optimizer, *_):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        seen.append(torch.cat([p.detach().reshape(-1) for p in parameters]).clone())
        if stop is not None and len(seen) == EARLY + 1:
            stop()

    handle = register_optimizer_step_post_hook(note)
    try:
        result = fit(model, guide, train, held, config, checkpoint=checkpoint)
    finally:
        handle.remove()
    history = np.array([[epoch["loss"], epoch["held_out"]] for epoch in result.history])
    end = torch.cat([value.reshape(-1).double() for value in model.state_dict().values()])
    return {"steps": torch.stack(seen).numpy(), "history": history, "end": end.numpy()}


def estimator() -> VolMaxDCC:
    """From a random start, so that something is left to be learned."""
    how = {"confusion": "sigmoid", "scale": "standard", "init": "random", "epochs": 4, "batch_size": 25, "lr": 1e-2}
    return VolMaxDCC(3, volume=0.01, hidden=(8,), dropout=0.0, random_state=0, progress=False, **how)


def blobs():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    pairs = rng.integers(60, size=(150, 2))
    return 3 * np.eye(3)[y] + rng.normal(size=(60, 3)), pairs, y[pairs[:, 0]] == y[pairs[:, 1]]


def fails() -> bytes:
    raise Interrupted


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(rank: int, size: int, place: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{place / 'store'}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    found = {}
    for name, case in CASES.items():
        found |= {f"{name}/{part}": value for part, value in steps_of(*case).items()}
    found |= {
        f"resumed/{part}": v for part, v in steps_of(*CASES["stochastic"], checkpoint=place / "alone.state").items()
    }
    found |= {f"dropout/{part}": v for part, v in steps_of(*CASES["pooled, by descent"], dropout=0.5).items()}
    found["estimator"] = estimator().fit(*blobs()).memberships_
    try:
        steps_of("stochastic", WHOLE, 100 + rank)
    except ValueError as error:
        found["other data"] = np.array(str(error))
    here = Processes.here(torch.device("cpu"))
    found["told"] = np.array(here.once(lambda: b"by the first").decode())
    try:
        here.once(fails)
    except (Interrupted, FirstProcessError) as error:
        found["failed"] = np.array(type(error).__name__)
    np.savez(place / f"{rank}.npz", **found)
    try:
        steps_of(*CASES["stochastic"], stop=die if rank else None, checkpoint=place / "together.state")
    except LostProcessError as error:
        (place / "lost.txt").write_text(str(error))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
