"""Feature scalings, fitted on the seen items and kept with the run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdcc.arrays import Float32

# In the order of preference among equals: directions carry the clusters in most learned features.
SCALES = ("unit", None, "standard")


@dataclass(frozen=True)
class Scaler:
    """x -> (x - shift) / spread, then, for "unit", to length 1. ``shift`` and ``spread`` are (d,)."""

    kind: str | None
    shift: NDArray[np.float32]
    spread: NDArray[np.float32]

    @classmethod
    def fit(cls, X: Float32, kind: str | None) -> "Scaler":
        """Learn what ``kind`` (None, "unit" or "standard") needs from X (N, d)."""
        d = X.shape[1]
        if kind != "standard":
            return cls(kind, np.zeros(d, np.float32), np.ones(d, np.float32))
        spread = X.std(axis=0, dtype=np.float64)
        return cls(
            kind,
            X.mean(axis=0, dtype=np.float64).astype(np.float32),
            np.where(spread > 0, spread, 1.0).astype(np.float32),
        )

    def __call__(self, X: Float32) -> Float32:
        """Scale X (n, d)."""
        out: Float32 = (X - self.shift) / self.spread if self.kind == "standard" else X
        if self.kind == "unit":
            length = np.linalg.norm(out.astype(np.float64), axis=1, keepdims=True)
            out = (out / np.where(length > 0, length, 1.0)).astype(np.float32)
        return out
