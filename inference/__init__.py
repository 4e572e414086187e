"""Training and point prediction. Nothing here knows what a cluster is for."""

from pdcc.inference.batches import PairTensors, epoch_order, index_batches
from pdcc.inference.checkpoint import ArtifactError
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.evaluate import memberships, pair_nll, point_agreement, point_values, probe
from pdcc.inference.fit import FitResult, fit, make_optimizer
from pdcc.inference.guide import map_guide
from pdcc.inference.state import FitConfig
from pdcc.inference.warmstart import warm_start

__all__ = [
    "ArtifactError",
    "FitConfig",
    "FitResult",
    "PairTensors",
    "epoch_order",
    "fit",
    "index_batches",
    "make_optimizer",
    "map_guide",
    "memberships",
    "negative_elbo",
    "pair_nll",
    "point_agreement",
    "point_values",
    "probe",
    "warm_start",
]
