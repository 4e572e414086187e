"""How well features support a partition: what an item's neighbours say about its cluster."""

import numpy as np
from scipy.sparse import csr_array

from pdcc.arrays import Float64, Ints


def support(neighbours: "csr_array[np.float64]", labels: Ints, n_clusters: int) -> Float64:
    """Nats that the neighbours of each item (N,) tell about its cluster: log P(own cluster | neighbours) - log P(own cluster).

    neighbours (N, N): 1 where the column's item is one of the row's nearest. Each cluster counts for one more neighbour,
    in proportion to its size. The mean is an estimate of the information that features have about the partition: 0 for a
    partition that has nothing to do with them, or has one cluster, and log K for K separate clusters of one size.
    """
    share = np.bincount(labels, minlength=n_clusters) / len(labels)
    counted = neighbours @ np.eye(n_clusters)[labels] + share
    own = counted[np.arange(len(labels)), labels] / counted.sum(axis=1)
    return np.asarray(np.log(own) - np.log(share[labels]))
