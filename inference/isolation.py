"""Our own computations leave no trace in the caller's process: no parameters in Pyro's store, no random numbers taken, no threads changed."""

import contextlib
from collections.abc import Iterator

import pyro
import torch

from pdcc.exclusive import exclusive
from pdcc.models.modules import plain_weights


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def isolated(seed: int, device: torch.device, *, small: bool = True) -> Iterator[None]:
    """Weights read past Pyro's store, no validation, and a private random stream: global state is left as it was.

    small: steps are too short to be shared by threads, which on a busy machine wait for each other most of the time.
    """
    devices = [device] if device.type == "cuda" else []
    with (
        exclusive(),
        one_thread() if small else contextlib.nullcontext(),
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
