"""The evidence lower bound, without waiting for the host or leaving the device."""

from typing import Any, cast

from pyro import poutine
from pyro.infer.autoguide import AutoDelta
from pyro.nn import PyroModule
from pyro.poutine.util import site_is_subsample
from torch import Tensor


def negative_elbo(model: PyroModule, guide: PyroModule, *args: Any) -> Tensor:
    """log q - log p at one draw of a reparameterised guide: what ``Trace_ELBO().differentiable_loss`` returns for it.

    Pyro's own version reads the loss back twice per step (a NaN check and an ``.item()``), which stalls a GPU;
    divergence is looked for once per epoch instead.
    """
    drawn = poutine.trace(guide).get_trace(*args)
    replayed = poutine.trace(poutine.replay(model, trace=drawn)).get_trace(*args)
    model_density = sum(_log_densities(replayed))
    if isinstance(guide, AutoDelta):  # log q is 0 at every value it draws
        return cast(Tensor, -model_density)
    return cast(Tensor, sum(_log_densities(drawn)) - model_density)


def _log_densities(trace: poutine.Trace) -> list[Tensor]:
    # Subsampling sites have no density, and Pyro puts their zero on the CPU.
    trace.compute_log_prob(lambda _, site: not site_is_subsample(site))
    sites = (site for site in trace.nodes.values() if site["type"] == "sample" and not site_is_subsample(site))
    return [site["log_prob_sum"] for site in sites]
