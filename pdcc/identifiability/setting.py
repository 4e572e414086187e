"""What the theorems' bounds ask about one fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from pdcc.errors import expect
from pdcc.identifiability.complexity import r_net, sigma_max_v
from pdcc.validation import check_memberships


@dataclass(frozen=True)
class Setting:
    """What the bounds ask about one fit.

    Attributes:
        n_items: N.
        n_pairs: M; ``math.inf`` is the limit of Theorems 3.7 and 4.1.
        n_clusters: K.
        alpha: every p_ij lies in [alpha, 1 - alpha]; 0 is allowed and makes the bounds infinite.
        complexity: R_NET, see ``r_net``.
        row_norm: root mean square of |x| over pair endpoints, so that |S_X|_F = row_norm sqrt(2M). Pairs are uniform
            in Lemma 3.3, so the same number gives |X|_F = row_norm sqrt(N).
        sigma_v: largest singular value of the memberships without the anchors, see ``sigma_max_v``.
        nu: distance of the true f from the function class (Assumption 3.2).
        delta: probability with which Lemma 3.3 may fail.
    """

    n_items: int
    n_pairs: float
    n_clusters: int
    alpha: float
    complexity: float
    row_norm: float
    sigma_v: float
    nu: float = 0.0
    delta: float = 0.05

    def __post_init__(self) -> None:
        expect(self.n_items >= 2, "n_items", "at least 2", self.n_items, "Count the items the pairs are drawn from.")
        expect(self.n_pairs >= 2, "n_pairs", "at least 2", self.n_pairs, "Count the answered pairs.")
        expect(self.n_clusters >= 2, "n_clusters", "at least 2", self.n_clusters, "One cluster needs no bound.")
        expect(0 <= self.alpha < 0.5, "alpha", "a number in [0, 0.5)", self.alpha, "Use observed_alpha.")
        expect(0 <= self.nu < 1, "nu", "a number in [0, 1)", self.nu, "Use 0 for a class that holds the truth.")
        expect(0 < self.delta < 1, "delta", "a probability in (0, 1)", self.delta, "0.05 is usual.")
        for name in ("complexity", "row_norm", "sigma_v"):
            value = getattr(self, name)
            expect(0 <= value < math.inf, name, "a finite number, at least 0", value, "Check how it was computed.")

    @classmethod
    def from_fit(
        cls,
        weights: Sequence[ArrayLike],
        memberships: ArrayLike,
        *,
        x_norm: float,
        n_pairs: int,
        alpha: float,
        nu: float = 0.0,
        delta: float = 0.05,
    ) -> "Setting":
        """The setting of one fitted net.

        Args:
            weights: the net's matrices, (out, in) each, see ``net_weights``.
            memberships: F (N, K), the fitted ones: sigma_max(V) of the truth is not observable, so this is a plug-in.
            x_norm: |S_X|_F, the Frobenius norm over the 2M pair endpoints, of features as the net sees them; with a 1 appended
                to every row where the matrices count biases, as ``net_weights`` has them.
            n_pairs: M.
            alpha: see ``observed_alpha``.
            nu, delta: as in ``Setting``.
        """
        F = check_memberships(memberships)
        expect(n_pairs >= 2, "n_pairs", "at least 2", n_pairs, "Count the answered pairs.")
        return cls(
            n_items=len(F),
            n_pairs=n_pairs,
            n_clusters=F.shape[1],
            alpha=alpha,
            complexity=r_net(weights),
            row_norm=float(x_norm) / math.sqrt(2 * n_pairs),
            sigma_v=sigma_max_v(F),
            nu=nu,
            delta=delta,
        )
