"""A training run on disk: a resumed run ends at the same bits as one that was never stopped."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdcc.errors import ArtifactError, LostProcessError
from pdcc.inference.batches import PairTensors
from pdcc.inference.processes import Processes
from pdcc.inference.rows import RowSource
from pdcc.inference.training_state import FitConfig, FitStatus, TrainingState, under
from pdcc.storage.files import load_state, pack_state, save_state, unpack_state

PLAIN = (
    "epoch",
    "step",
    "steps",
    "rate",
    "recoveries",
    "best_epoch",
    "best_held_out",
    "start_held_out",
    "history",
    "outcome",
)


def fingerprint(
    run: TrainingState, config: FitConfig, pairs: PairTensors, held_out: PairTensors | None
) -> dict[str, Any]:
    """What a checkpoint must share with a run to go on with it: configuration, shapes and data."""
    digest = hashlib.sha256(pairs.x.fingerprint if isinstance(pairs.x, RowSource) else b"")
    for part in (pairs, *([] if held_out is None else [held_out])):
        for tensor in part.tensors().values():
            digest.update(tensor.cpu().contiguous().numpy().data)
    shapes = {name: list(value.shape) for name, value in run.modules.state_dict().items()}
    mark = {"config": dataclasses.asdict(config), "shapes": shapes, "data": digest.hexdigest()}
    rounded = any(getattr(module, "mixed", False) for module in run.modules.modules())
    return mark | ({"mixed_precision": True} if rounded else {})


def save_checkpoint(run: TrainingState, path: Path, mark: dict[str, Any]) -> None:
    """Write all of ``run`` and torch's random state to one file."""
    save_state(path, *_described(run, mark))


def _described(run: TrainingState, mark: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {f"now/{k}": v for k, v in run.full_state().items()}
    tensors |= {f"good/{k}": v for k, v in run.good.items()} | {f"best/{k}": v for k, v in run.best.items()}
    tensors |= {"total": run.total, "rng": torch.get_rng_state()}
    if run.total.is_cuda:
        tensors["rng_cuda"] = torch.cuda.get_rng_state(run.total.device)
    return tensors, {"mark": mark, "state": {name: getattr(run, name) for name in PLAIN}}


def load_checkpoint(run: TrainingState, path: Path, mark: dict[str, Any]) -> None:
    """Undo ``save_checkpoint``; raises ``ArtifactError`` for a file of another run."""
    tensors, meta = load_state(path)
    if meta.get("mark") != mark:
        raise ArtifactError(
            f"{path}: was written under another configuration or for other data. Resume with what the run was begun with, or begin anew in another directory."
        )
    _put_back(run, tensors, meta["state"])


def go_on_together(run: TrainingState, checkpoint: Path | None, mark: dict[str, Any], processes: Processes) -> None:
    """Go on from ``checkpoint`` where there is such a file. Of several processes the first reads it, and all set out from its state."""
    digest = hashlib.sha256(json.dumps(mark, sort_keys=True).encode()).digest()
    processes.check_same(digest, "data and configuration of a fit")

    def read() -> bytes:
        if checkpoint is not None and checkpoint.exists():
            load_checkpoint(run, checkpoint, mark)
        return b"" if processes.alone else pack_state(*_described(run, mark))

    told = processes.once(read)
    if not processes.first:
        tensors, meta = unpack_state(told)
        _put_back(run, tensors, meta["state"])


@contextmanager
def kept_when_lost(run: TrainingState, checkpoint: Path | None, mark: dict[str, Any]) -> Iterator[None]:
    """Where another process is lost, write what this one has: an exchange that fails comes before the step it was for."""
    try:
        yield
    except LostProcessError as error:
        kept = checkpoint is not None and run.steps > 0
        if checkpoint is not None and kept:
            save_checkpoint(run, checkpoint, mark)
        what = str(error).partition("\n")[0]  # Pyro writes the shapes of a trace below any error that passes it
        raise LostProcessError(what + (f" The state after step {run.steps} is kept." if kept else "")) from error


def end_together(run: TrainingState, processes: Processes) -> None:
    """Put the first process's modules into all: what a net counts for itself, as batch normalisation does, differs between them."""
    if not processes.alone:
        told = processes.once(lambda: pack_state(run.snapshot(), {}))
        run.modules.load_state_dict(unpack_state(told)[0])


def _put_back(run: TrainingState, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    for name in PLAIN:
        setattr(run, name, state[name])
    if run.outcome is not None:
        run.outcome = FitStatus(run.outcome[0]), run.outcome[1]
    run.set_rate(run.rate)
    run.restore(under("now/", tensors))
    run.good, run.best = under("good/", tensors), under("best/", tensors)
    run.total = tensors["total"].to(run.total.device)
    torch.set_rng_state(tensors["rng"])
    if "rng_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng_cuda"], run.total.device)
