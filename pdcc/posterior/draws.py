"""What every engine returns: draws whose clusters carry the names of the fitted ones."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcc.arrays import Float32, Float64, Ints
from pdcc.inference.variational import GUIDES, SampleStatus
from pdcc.metrics import align
from pdcc.validation import check_count, check_number, check_one_of

METHODS = ("hmc", "svi", "nuts", "ensemble")
SITES = ("last-layer", "confusion")
# (chains, draws per chain) where not asked for.
SIZES = {"hmc": (16, 48), "svi": (1, 500), "nuts": (4, 500), "ensemble": (4, 5)}
# Of data too large to be looked at as a whole (``pdcc.sampled``), about so many items: 768 draws of ten clusters then take .6 GB.
POSTERIOR_ITEMS = 20_000
# Moves before the first draw that is kept, where not asked for.
WARMUP = {"hmc": 20, "nuts": 500}


@dataclass(frozen=True)
class SampleConfig:
    """How to draw; see ``VolMaxDCC.posterior`` for what each means. Checked when it is made."""

    method: str
    chains: int
    draws: int
    seed: int = 0
    sites: str = "last-layer"
    guide: str = "low-rank"
    prior_scale: float | None = None
    regularised: bool = False
    warmup: int = 1
    steps: int = 2000

    def __post_init__(self) -> None:
        check_one_of("method", self.method, METHODS)
        for name in ("chains", "draws", "warmup", "steps"):
            check_count(name, getattr(self, name), 0)
        check_count("random_state", self.seed, 0)
        if self.prior_scale is not None:
            check_number("prior_scale", self.prior_scale, 0.0, open_low=True)
        if not isinstance(self.regularised, bool):
            raise TypeError(f"regularised: expected True or False, found {self.regularised!r}. Pass one of these.")
        check_one_of("sites", self.sites, SITES)
        check_one_of("guide", self.guide, GUIDES)
        least = 4 if self.method == "nuts" else 1  # split r_hat halves a chain
        if self.chains < 1 or least > self.draws or (self.method == "svi" and self.chains != 1):
            raise ValueError(
                f"draws, chains: expected at least {least} and 1 (and one chain for 'svi'), found draws={self.draws}, chains={self.chains}. Ask for more draws."
            )
        if self.steps < 20 or self.warmup < 1:
            raise ValueError(
                f"steps, warmup: expected at least 20 and 1, found {self.steps} and {self.warmup}. Use the defaults."
            )

    @classmethod
    def of(cls, *, method: str, chains: int | None, draws: int | None, seed: int, **options: Any) -> "SampleConfig":
        """With the method's own numbers of chains and draws where None, and a sentence about an option there is not."""
        check_one_of("method", method, METHODS)
        known = ("sites", "guide", "prior_scale", "regularised", "warmup", "steps")
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(
                f"posterior: expected options among {', '.join(known)}, found {unknown[0]!r}. Check the spelling."
            )
        C, S = SIZES[method]
        options.setdefault("warmup", WARMUP.get(method, 1))
        return cls(method, C if chains is None else chains, S if draws is None else draws, seed, **options)


@dataclass(frozen=True)
class Sampled:
    """Aligned draws: memberships (C, S, N, K) float32, agreement (C, S, K, K), confusion A[observed, true] or None.

    engine: what drew them.

    by_annotator: where annotators are told apart, B of each and, last, the shared one, (C, S, R + 1, K, K); else None.
    pair_agreement: where B depends on the items, that of each of the M pairs, (C or 1, S or 1, M, K, K), clusters as they were
    drawn; else None. order: (C, S, K), how the drawn clusters were put in order.
    """

    memberships: Float32
    agreement: Float64
    confusion: Float64 | None
    status: SampleStatus
    message: str
    engine: str
    stats: dict[str, NDArray[Any]]
    by_annotator: Float64 | None = None
    pair_agreement: Float64 | None = None
    order: Ints | None = None


def draw_agreement(drawn: Sampled, c: int, s: int) -> Float64:
    """B of one draw as answers meet it: (K, K), one per annotator (R + 1, K, K), or one per pair (M, K, K)."""
    if drawn.by_annotator is not None:
        return np.asarray(drawn.by_annotator[c, s])
    if drawn.pair_agreement is None or drawn.order is None:
        return np.asarray(drawn.agreement[c, s])
    C, S = drawn.pair_agreement.shape[:2]
    order = drawn.order[c, s]
    return np.asarray(drawn.pair_agreement[min(c, C - 1), min(s, S - 1)][:, order][:, :, order])


def aligned(drawn: Sampled, reference: Float64) -> Sampled:
    """Clusters of every draw renamed after the memberships ``reference`` (N, K) they resemble."""
    F, B = drawn.memberships, drawn.agreement
    A, by_annotator = (None if part is None else part.copy() for part in (drawn.confusion, drawn.by_annotator))
    orders = np.empty((*F.shape[:2], F.shape[-1]), dtype=np.int64)
    for c, s in np.ndindex(F.shape[:2]):
        orders[c, s] = order = align(reference, F[c, s])
        F[c, s] = F[c, s][:, order]
        B[c, s] = B[c, s][np.ix_(order, order)]
        if A is not None:  # observed and true clusters carry the same names
            A[c, s] = A[c, s][np.ix_(order, order)]
        if by_annotator is not None:
            by_annotator[c, s] = by_annotator[c, s][:, order][:, :, order]
    return replace(drawn, confusion=A, by_annotator=by_annotator, order=orders)
