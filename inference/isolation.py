"""Our own computations leave no trace in the caller's process: no parameters in Pyro's store, no random numbers taken."""

import contextlib
from collections.abc import Iterator

import pyro
import torch

from pdcc.models.modules import plain_weights


@contextlib.contextmanager
def isolated(seed: int, device: torch.device) -> Iterator[None]:
    """Weights read past Pyro's store, no validation, and a private random stream: global state is left as it was."""
    devices = [device] if device.type == "cuda" else []
    with (
        plain_weights(),
        pyro.settings.context(
            validate_distributions_pyro=False,
            validate_distributions_torch=False,
            validate_poutine=False,
            validate_infer=False,
        ),
        torch.random.fork_rng(devices=devices),
    ):
        torch.manual_seed(seed)
        yield
