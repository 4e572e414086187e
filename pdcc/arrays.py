"""Types of arrays and seeds: one name, one precision."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import sparray, spmatrix

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]  # of either precision
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# What a ``random_state`` may be: a seed, a numpy generator, or None for a fresh one.
RandomState = int | np.random.RandomState | np.random.Generator | None
# Features (N, d) as they are handed in: arrays, tables and sparse matrices.
Features = ArrayLike | sparray | spmatrix
