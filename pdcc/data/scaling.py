"""Feature scalings, fitted on the seen items and kept with the run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdcc.arrays import Float32

# In the order of preference among equals: directions carry the clusters in most learned features.
SCALES = ("unit", None, "standard")


@dataclass(frozen=True)
class Scaler:
    """x -> (x - shift) / spread, then, for "unit", to length 1. ``shift`` and ``spread`` are (d,).

    Items of another shape (n, ...) are scaled as rows of their d numbers and keep their shape.
    """

    kind: str | None
    shift: NDArray[np.float32]
    spread: NDArray[np.float32]

    @classmethod
    def fit(cls, X: Float32, kind: str | None) -> "Scaler":
        """Learn what ``kind`` (None, "unit" or "standard") needs from X (N, d)."""
        X = X.reshape(len(X), -1)
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
        flat = X.reshape(len(X), -1)
        out: Float32 = (flat - self.shift) / self.spread if self.kind == "standard" else flat
        if self.kind == "unit":
            length = np.linalg.norm(out.astype(np.float64), axis=1, keepdims=True)
            out = (out / np.where(length > 0, length, 1.0)).astype(np.float32)
        return out.reshape(X.shape)
