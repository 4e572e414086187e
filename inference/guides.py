"""The point-estimate guide: with it, SVI is maximum a posteriori estimation."""

from pyro.infer.autoguide import AutoDelta, init_to_mean, init_to_uniform, init_to_value
from pyro.nn import PyroModule

from pdcc.models.confusion import (
    AnnotatorConfusion,
    Confusion,
    PooledConfusion,
    PooledPriorConfusion,
    RatesPriorConfusion,
    SigmoidPriorConfusion,
    StochasticConfusion,
)
from pdcc.models.modules import Module
from pdcc.models.objective import two_rates


class MapGuide(Module, AutoDelta):  # type: ignore[misc]
    """A delta at every latent site."""


def map_guide(model: PyroModule) -> MapGuide:
    """A delta at every latent site of an ``AnnotationModel``, confusions starting near the identity.

    Sites that do not exist in the model (no stochastic confusion, no partition) cost nothing; those of a confusion that is not
    ours start at the mean of their prior: from anywhere else "similar" and "different" may end up exchanged.
    """
    start = StochasticConfusion(model.membership.n_clusters).initial.to(model.partition_concentration)
    values = {"confusion_columns": start, "partition_columns": start}
    confusion = model.confusion
    if isinstance(confusion, StochasticConfusion):
        values["confusion_columns"] = confusion.initial
    if isinstance(confusion, AnnotatorConfusion):  # no annotator departs from the shared one until answers say so
        values["annotator_shift"] = start.new_zeros(confusion.n_annotators, *start.shape)
    if isinstance(confusion, SigmoidPriorConfusion):
        values["agreement_logits"] = confusion.centre
    if isinstance(confusion, PooledConfusion):
        values["agreement_logits"] = confusion.initial
    if isinstance(confusion, RatesPriorConfusion):
        values["rate_logits"] = confusion.mean
    if isinstance(confusion, PooledPriorConfusion):
        values["agreement_logits"] = two_rates(confusion.mean, confusion.identity)
    fallback = init_to_uniform if isinstance(confusion, Confusion) else init_to_mean
    guide = MapGuide(model, init_loc_fn=init_to_value(values=values, fallback=fallback))
    if model._pyro_name:  # a named program's guide has parameters of its own too
        guide._pyro_name = f"{model._pyro_name}.{guide._pyro_name}"
    return guide
