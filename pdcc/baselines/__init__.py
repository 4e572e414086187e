"""The methods of the paper's comparison and SpherePair, each with ``fit(X, pairs, similar, annotators=None)`` or ``fit(X, y)``, ``predict`` and ``score``."""

from pdcc.baselines.cidec import CIDEC
from pdcc.baselines.cop_kmeans import COPKMeans
from pdcc.baselines.dcgmm import DCGMM
from pdcc.baselines.kmeans import KMeans
from pdcc.baselines.pck_means import PCKMeans
from pdcc.baselines.spherepair import SpherePair
from pdcc.errors import InfeasibleError

__all__ = ["CIDEC", "DCGMM", "COPKMeans", "InfeasibleError", "KMeans", "PCKMeans", "SpherePair"]
