"""Training and point prediction. Nothing here knows what a cluster is for."""

from pdcc.inference.batches import PairTensors, epoch_order, index_batches
from pdcc.inference.elbo import negative_elbo
from pdcc.inference.guides import map_guide
from pdcc.inference.predict import memberships, pair_agreement, pair_nll, point_agreement, point_values, probe
from pdcc.inference.svi import FitResult, fit, make_optimizer
from pdcc.inference.training_state import FitConfig, FitStatus
from pdcc.inference.warmstart import warm_start

__all__ = [
    "FitConfig",
    "FitResult",
    "FitStatus",
    "PairTensors",
    "epoch_order",
    "fit",
    "index_batches",
    "make_optimizer",
    "map_guide",
    "memberships",
    "negative_elbo",
    "pair_agreement",
    "pair_nll",
    "point_agreement",
    "point_values",
    "probe",
    "warm_start",
]
