"""pdcc: probabilistic deep constrained clustering."""

from importlib.metadata import version

from pdcc import datasets, metrics
from pdcc.checks import PairDataError
from pdcc.estimator import VanillaDCC, VolMaxDCC
from pdcc.inference.checkpoint import ArtifactError
from pdcc.pairs import PairData

__version__ = version("pdcc")
__all__ = ["ArtifactError", "PairData", "PairDataError", "VanillaDCC", "VolMaxDCC", "datasets", "metrics"]
