"""pdcc: probabilistic deep constrained clustering."""

from importlib.metadata import version

from pdcc import datasets, metrics
from pdcc.checks import PairDataError
from pdcc.estimator import VanillaDCC, VolMaxDCC
from pdcc.identifiability.diagnose import Diagnosis, diagnose
from pdcc.identifiability.ssc import SSCResult, check_ssc
from pdcc.inference.checkpoint import ArtifactError
from pdcc.pairs import PairData
from pdcc.tuning import Selection, select_dropout, select_n_clusters, select_volume

__version__ = version("pdcc")
__all__ = [
    "ArtifactError",
    "Diagnosis",
    "PairData",
    "PairDataError",
    "SSCResult",
    "Selection",
    "VanillaDCC",
    "VolMaxDCC",
    "check_ssc",
    "datasets",
    "diagnose",
    "metrics",
    "select_dropout",
    "select_n_clusters",
    "select_volume",
]
