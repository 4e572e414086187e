"""A training run on disk: a resumed run ends at the same bits as one that was never stopped."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import torch

from pdcc.errors import ArtifactError
from pdcc.inference.batches import PairTensors
from pdcc.inference.rows import RowSource
from pdcc.inference.training_state import FitConfig, FitStatus, TrainingState, under
from pdcc.storage.files import load_state, save_state

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
    return {"config": dataclasses.asdict(config), "shapes": shapes, "data": digest.hexdigest()}


def save_checkpoint(run: TrainingState, path: Path, mark: dict[str, Any]) -> None:
    """Write all of ``run`` and torch's random state to one file."""
    tensors = {f"now/{k}": v for k, v in run.full_state().items()}
    tensors |= {f"good/{k}": v for k, v in run.good.items()} | {f"best/{k}": v for k, v in run.best.items()}
    tensors |= {"total": run.total, "rng": torch.get_rng_state()}
    if run.total.is_cuda:
        tensors["rng_cuda"] = torch.cuda.get_rng_state(run.total.device)
    save_state(path, tensors, {"mark": mark, "state": {name: getattr(run, name) for name in PLAIN}})


def load_checkpoint(run: TrainingState, path: Path, mark: dict[str, Any]) -> None:
    """Undo ``save_checkpoint``; raises ``ArtifactError`` for a file of another run."""
    tensors, meta = load_state(path)
    if meta.get("mark") != mark:
        raise ArtifactError(
            f"{path}: was written under another configuration or for other data. Resume with what the run was begun with, or begin anew in another directory."
        )
    for name in PLAIN:
        setattr(run, name, meta["state"][name])
    if run.outcome is not None:
        run.outcome = FitStatus(run.outcome[0]), run.outcome[1]
    run.set_rate(run.rate)
    run.restore(under("now/", tensors))
    run.good, run.best = under("good/", tensors), under("best/", tensors)
    run.total = tensors["total"].to(run.total.device)
    torch.set_rng_state(tensors["rng"])
    if "rng_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng_cuda"], run.total.device)
