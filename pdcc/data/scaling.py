"""Feature scalings, fitted on the seen items and kept with the run: what is centred does not depend on the units of X."""

import logging
from dataclasses import dataclass, replace

import numpy as np

from pdcc.arrays import Bools, Float32, Float64, Floats, Ints
from pdcc.errors import PairDataError
from pdcc.exclusive import one_core
from pdcc.rows import FeatureRows, blocks_of, sample_size, some_rows

logger = logging.getLogger(__name__)

# "standard": columns of one size, for measurements. "unit": centred rows of one length, for embeddings. None: as they are.
SCALES = ("standard", "unit", None)
# Tukey's "far out": values this many interquartile ranges beyond the quartiles are moved to that fence.
FENCE = 3.0
# A column whose deviation is below this many units in the last place of its values is rounding.
ROUNDING = 64
ROWS_AT_ONCE = 8192
# Of features that are too large to be copied, what a scaling is learned from is drawn with this seed, whatever the fit's is.
SCALING_SEED = 0


@dataclass(frozen=True)
class Scaler:
    """x -> (clip(x, low, high) - shift) / spread, then, for "unit", rows to length sqrt(d). All four are (d,).

    axes (d, p): unit rows are projected on them, and p numbers are left of an item; (d, 0): they are not.

    Computed in float64, so that a shift of X costs no digits; constant columns have an infinite spread and become 0.
    Items of another shape (n, ...) are scaled as rows of their d numbers and keep their shape.
    """

    kind: str | None
    shift: Float64
    spread: Float64
    low: Float64
    high: Float64
    axes: Float64

    @classmethod
    def fit(cls, X: Floats | FeatureRows, kind: str | None, most: int | None = None) -> "Scaler":
        """Learn what ``kind`` (one of ``SCALES``) needs from X (N, d). Of unit rows, keep the ``most`` leading components.

        Of ``FeatureRows``, some are looked at (``pdcc.rows.sample_size``). The last of hundreds of components are noise to a handful of answers per item: a net learns them by heart.
        """
        if isinstance(X, FeatureRows):
            X = some_rows(X, sample_size(X.shape), SCALING_SEED)
        X = X.reshape(len(X), -1)
        d = X.shape[1]
        shift, spread, low, high = np.zeros(d), np.ones(d), np.full(d, -np.inf), np.full(d, np.inf)
        whole = cls(kind, shift, spread, low, high, np.zeros((d, 0)))
        if kind is None:
            return whole
        digits = np.finfo(X.dtype).eps
        constant, lost = np.zeros(d, bool), np.zeros(d, bool)
        for c in range(d):
            column = X[:, c].astype(np.float64)
            if kind == "standard":
                q1, q3 = np.quantile(column, (0.25, 0.75))
                if q3 > q1:  # else one value makes up half of the column, as in a one-hot one: nothing is far out
                    low[c], high[c] = q1 - FENCE * (q3 - q1), q3 + FENCE * (q3 - q1)
                    column = column.clip(low[c], high[c])
            # Divided by a power of two first, exactly: the squares of huge or tiny numbers are not representable.
            largest = float(np.abs(column).max())
            unit = float(2.0 ** np.frexp(largest)[1]) if largest > 0 else 1.0
            column = column / unit
            middle, deviation = float(column.mean()), float(column.std())
            shift[c], spread[c] = middle * unit, deviation * unit
            rounding = digits * largest / unit
            constant[c] = deviation <= rounding or column.min() == column.max()
            lost[c] = not constant[c] and deviation <= ROUNDING * rounding
        if constant.all():
            raise PairDataError(
                "X", "items that differ", "the same numbers for all of them", "Check how the features were read."
            )
        if constant.any():
            logger.info("%d of %d columns of X are constant: they are left out.", int(constant.sum()), d)
        if lost.any():
            logger.warning(
                "X: %d of %d columns lie so far from 0 that %s keeps fewer than two digits of their spread. Subtract the column means before converting to it.",
                int(lost.sum()), d, X.dtype,
            )  # fmt: skip
        if kind == "unit":  # rows lose their length anyway: one size for all columns
            spread[:] = float(2.0 ** np.frexp(float(spread[~constant].max()))[1])
        spread[constant] = np.inf
        return replace(whole, axes=_leading(whole(X), most)) if kind == "unit" and most and most < d else whole

    def scaled(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a scaled item, for one of this shape."""
        return (self.axes.shape[1],) if self.axes.size else shape

    def __call__(self, X: Floats) -> Float32:
        """Scale X (n, d)."""
        flat = X.reshape(len(X), -1)
        out = np.empty((len(X), *self.scaled(flat.shape[1:])), np.float32)
        if self.kind is None:
            with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused later
                out[:] = flat
            return out.reshape(X.shape)
        for begin in range(0, len(flat), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            part = flat[rows].astype(np.float64)
            np.clip(part, self.low, self.high, out=part)
            part -= self.shift
            part /= self.spread
            if self.kind == "unit":
                length = np.linalg.norm(part, axis=1, keepdims=True)
                part *= np.sqrt(part.shape[1]) / np.where(length > 0, length, 1.0)
            out[rows] = part @ self.axes if self.axes.size else part
        return out.reshape(len(X), *self.scaled(X.shape[1:]))


def fits_float32(x: Floats | FeatureRows) -> Bools:
    """Which items x (n, ...) float32 can hold, with the square of their length, (n,)."""
    with np.errstate(over="ignore"):
        flat = (part.reshape(len(part), -1).astype(np.float32) for part in blocks_of(x))
        return np.concatenate([np.isfinite(np.square(part).sum(axis=1)) for part in flat])


def check_scaled(x: Float32, rows: Ints | None = None) -> Float32:
    """Scaled items x (n, ...), numbered ``rows`` (n,) where they are some of many, unless float32 cannot hold them and the length of an item: raises ``PairDataError`` then."""
    fits = fits_float32(x)
    if not fits.all():
        first = int(np.flatnonzero(~fits)[0])
        raise PairDataError(
            "X", "numbers whose squares float32 can hold", "larger ones", "Use scale='standard', or other units.",
            first if rows is None else int(rows[first]),
        )  # fmt: skip
    return x


def _leading(rows: Float32, most: int) -> Float64:
    """Axes (d, p) of the ``most`` leading components of rows (N, d), of a length that keeps numbers about 1 in size."""
    second = np.zeros((rows.shape[1], rows.shape[1]))
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[begin : begin + ROWS_AT_ONCE].astype(np.float64)
        second += part.T @ part
    with one_core():
        values, axes = np.linalg.eigh(second / len(rows))
    values, axes = values[-most:], axes[:, -most:]
    # An eigenvector's sign is arbitrary; a rule for it keeps results the same under rounding.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return np.asarray(axes * np.sqrt(most / max(float(values.sum()), np.finfo(np.float64).tiny)))
