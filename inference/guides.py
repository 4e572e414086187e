"""The point-estimate guide: with it, SVI is maximum a posteriori estimation."""

from pyro.infer.autoguide import AutoDelta, init_to_value
from pyro.nn import PyroModule

from pdcc.models.confusion import AnnotatorConfusion, StochasticConfusion
from pdcc.models.modules import Module


class MapGuide(Module, AutoDelta):  # type: ignore[misc]
    """A delta at every latent site."""


def map_guide(model: PyroModule) -> MapGuide:
    """A delta at every latent site of an ``AnnotationModel``, confusions starting near the identity.

    Sites that do not exist in the model (no stochastic confusion, no partition) cost nothing.
    """
    start = StochasticConfusion(model.membership.n_clusters).initial.to(model.partition_concentration)
    values = {"confusion_columns": start, "partition_columns": start}
    if isinstance(model.confusion, AnnotatorConfusion):  # nobody departs from the shared one until answers say so
        values["annotator_shift"] = start.new_zeros(model.confusion.n_annotators, *start.shape)
    return MapGuide(model, init_loc_fn=init_to_value(values=values))
