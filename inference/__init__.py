"""Training and point prediction. Nothing here knows what a cluster is for."""

from pdcc.inference.batches import PairTensors, batches, epoch_order
from pdcc.inference.checkpoint import ArtifactError
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.evaluate import memberships, pair_nll, point_agreement, point_values, probe
from pdcc.inference.fit import FitConfig, FitResult, fit, make_optimizer
from pdcc.inference.guide import map_guide
from pdcc.inference.warmstart import warm_start

__all__ = [
    "ArtifactError",
    "FitConfig",
    "FitResult",
    "PairTensors",
    "batches",
    "epoch_order",
    "fit",
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
