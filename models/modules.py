"""What all our Pyro modules share: weights that are param sites for any Pyro program, and plain tensors for our own loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from pyro.nn.module import to_pyro_module_
from torch import nn

from pdcc.exclusive import exclusive

_PLAIN: ContextVar[bool] = ContextVar("plain_weights", default=False)


@contextmanager
def plain_weights() -> Iterator[None]:
    """Within, modules of ours read their weights directly: the same densities, no param sites, no parameter store.

    Used the ordinary way, every weight is a param site of the program, as Pyro's own tools expect. A loop that hands the
    modules' parameters to a torch optimiser needs no such sites, and they cost a step of small nets a tenth of its time.
    """
    token = _PLAIN.set(True)
    try:
        with exclusive(), pyro.settings.context(module_local_params=True):  # for modules that are not ours
            yield
    finally:
        _PLAIN.reset(token)


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Torch's random numbers from ``seed`` on within, and as they were afterwards: for new weights."""
    with exclusive(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Module(PyroModule):  # type: ignore[misc]
    """A PyroModule that heeds ``plain_weights``."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not hasattr(self._pyro_context, "param_state"):
            # What Pyro keeps for modules in local mode, in which ``plain_weights`` runs modules that are not ours.
            self._pyro_context.param_state = {"params": {}, "constraints": {}}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``; outside ``plain_weights`` every weight it reads is a param site."""
        return nn.Module.__call__(self, *args, **kwargs) if _PLAIN.get() else super().__call__(*args, **kwargs)


def stacked(drawn: torch.Tensor) -> torch.Tensor:
    """A matrix site (K, K) as it is, and its vectorised draws as (S, 1, K, K), so that they broadcast against b pairs.

    Plates that vectorise particles or posterior draws put a dimension for the pairs between S and the matrix; Pyro's
    ``Predictive`` leaves it out where a site has more event dimensions than the model has plates.
    """
    return drawn.unsqueeze(-3) if drawn.ndim == 3 else drawn


def normal_weights_(net: nn.Module, deviation: float = 1.0) -> None:
    """Put a Normal(0, deviation / sqrt(fan in)) prior on every weight of ``net``, in place, and Normal(0, deviation) on biases.

    The net then has latent sites instead of parameters: any guide or MCMC kernel infers all of it.
    """
    to_pyro_module_(net)
    for module in net.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            fan_in = value[0].numel() if value.ndim > 1 else 1
            zeros = torch.zeros_like(value.detach())
            setattr(module, name, PyroSample(dist.Normal(zeros, deviation / fan_in**0.5).to_event(value.ndim)))
