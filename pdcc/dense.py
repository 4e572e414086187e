"""A sparse matrix as the dense array that a network takes, where memory allows."""

import os
from typing import Any

import numpy as np

from pdcc.arrays import Float32
from pdcc.errors import PairDataError

# Scaling, training and its checkpoints each keep a copy, and others use the machine too.
SHARE_OF_MEMORY = 0.25
# Where the system does not say how much memory there is.
ASSUMED_MEMORY = 16 * 2**30
GIGABYTE = 1e9


def memory_limit() -> float:
    """The most bytes that a dense form may take here."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = ASSUMED_MEMORY
    return SHARE_OF_MEMORY * memory


def densified(X: Any) -> Float32:
    """A scipy sparse matrix (N, d) as float32, row by row; only its non-zero values are ever copied at another precision."""
    if np.dtype(X.dtype).kind == "c":
        raise PairDataError(
            "X", "real numbers", "Complex data not supported", "Pass real and imaginary parts as separate columns."
        )
    size, limit = 4.0 * np.prod(X.shape, dtype=np.float64), memory_limit()
    if size > limit:
        raise PairDataError(
            "X",
            f"a sparse matrix whose dense form (float32) takes at most {limit / GIGABYTE:.3g} GB, a quarter of the memory here",
            f"shape {X.shape}, which takes {size / GIGABYTE:.3g} GB",
            "Reduce it first: make_pipeline(TruncatedSVD(100), VolMaxDCC(...)) with scikit-learn's TruncatedSVD, or keep fewer columns.",
        )
    with np.errstate(over="ignore"):  # what is beyond float32 is found as infinite
        return np.asarray(X.astype(np.float32).toarray(order="C"))
