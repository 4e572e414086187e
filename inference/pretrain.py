"""Autoencoder pretraining: minibatch Adam on the squared error, and a file that saves doing it again."""

import hashlib
import json
import logging
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from tqdm.auto import tqdm

from pdcc.errors import ArtifactError
from pdcc.inference.batches import epoch_order
from pdcc.inference.epoch_loop import descend, snapshot
from pdcc.inference.isolation import isolated
from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.modules import seeded
from pdcc.storage.files import load_state, save_state

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PretrainConfig:
    """All that pretraining depends on beside the features.

    ``corruption``: share of entries of x set to 0 in the input. ``unit_codes``: whether codes have length 1.
    """

    hidden: tuple[int, ...] = (500, 500, 2000)
    latent: int = 10
    epochs: int = 30
    batch_size: int = 256
    corruption: float = 0.0
    seed: int = 0
    lr: float = 1e-3
    unit_codes: bool = False


def fingerprint(x: Tensor, config: PretrainConfig) -> dict[str, Any]:
    """What a stored autoencoder must share with the one asked for, as plain JSON."""
    data = hashlib.sha256(x.cpu().contiguous().numpy().tobytes()).hexdigest()
    mark: dict[str, Any] = json.loads(json.dumps({"pretrain": asdict(config), "shape": list(x.shape), "data": data}))
    return mark


def pretrained_autoencoder(
    x: Tensor, config: PretrainConfig, *, dropout: float = 0.0, store: Path | None = None, progress: bool = False
) -> Autoencoder:
    """An autoencoder fitted to features x (N, d), on their device.

    The directory ``store`` keeps one file for each combination of features and configuration: it is read where it
    exists and written where it does not. ``dropout`` is for later: the corruption is pretraining's own noise.
    """
    with seeded(config.seed):
        net = Autoencoder(x.shape[1], config.hidden, config.latent, dropout, config.unit_codes)
    if store is None:
        pretrain(net.to(x.device), x, config, progress=progress)
        return net
    mark = fingerprint(x, config)
    path = store / f"autoencoder-{hashlib.sha256(json.dumps(mark).encode()).hexdigest()[:16]}.safetensors"
    if path.exists():
        tensors, found = load_state(path)
        if found != mark:
            raise ArtifactError(f"{path}: was made from other features or settings than its name says. Delete it.")
        net.load_state_dict(tensors)
        return net.to(x.device)
    pretrain(net.to(x.device), x, config, progress=progress)
    save_state(path, net.state_dict(), mark)
    return net


def pretrain(net: Autoencoder, x: Tensor, config: PretrainConfig, *, progress: bool = False) -> list[float]:
    """Fit ``net`` to x (N, d), in place and without dropout; returns each epoch's mean squared error.

    Should the error stop being finite, the epoch before is the last.
    """
    errors: list[float] = []
    with isolated(config.seed, x.device):
        net.eval()
        optimizer = torch.optim.Adam(net.parameters(), lr=config.lr, fused=True)
        for epoch in tqdm(range(config.epochs), desc="pretraining", disable=not progress, leave=False):
            good, total = snapshot(net), torch.zeros((), dtype=torch.float64, device=x.device)
            for rows in epoch_order(len(x), config.seed, epoch, x.device).split(config.batch_size):
                batch = x[rows]
                kept = torch.rand_like(batch) >= config.corruption
                total += descend(optimizer, mse_loss(net(batch * kept), batch)) * len(rows) / len(x)
            if not math.isfinite(float(total)):
                net.load_state_dict(good)
                logger.warning(
                    "pretraining: the error stopped being finite in epoch %d; kept the one before", epoch + 1
                )
                break
            errors.append(float(total))
    return errors
