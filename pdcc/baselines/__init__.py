"""K-means, COP-KMeans and PCKMeans, each with ``fit(X, pairs, similar, annotators=None)`` or ``fit(X, y)``.

They need nothing that is trained, so the code that chooses for VolMaxDCC can compare them. The deep methods of the
paper's comparison and SpherePair are in modules of their own: ``pdcc.baselines.dcgmm``, ``cidec`` and ``spherepair``.
"""

from pdcc.baselines.cop_kmeans import COPKMeans
from pdcc.baselines.kmeans import KMeans
from pdcc.baselines.pck_means import PCKMeans
from pdcc.errors import InfeasibleError

__all__ = ["COPKMeans", "InfeasibleError", "KMeans", "PCKMeans"]
