"""How often 90 % intervals covered the truth in simulation, for the configurations that were measured (``pdcc simulate posterior``)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Covered:
    """Shares of true entries of B and of memberships inside their 90 % intervals, over simulated sets fitted from their answers."""

    agreement: float
    memberships: float
    sets: int

    def __str__(self) -> str:
        words = f"90 % intervals covered {self.agreement:.0%} of the entries of B and {self.memberships:.0%} of the memberships over {self.sets} simulated sets, fitted and all"
        narrow = min(self.agreement, self.memberships) < 0.85
        return f"{words}: too narrow, read them as lower bounds on the uncertainty" if narrow else words


# By engine, for 200 items, 3,000 answers and 3 clusters, a stochastic confusion, fitted without a volume; and, the volume kept, by it.
# Standard errors: hmc .015 (B) and .01 (memberships); the others, of few and harder sets (docs/results.md), .08 and up to .05.
MEASURED = {
    "hmc": Covered(0.869, 0.883, 98),
    "svi": Covered(0.778, 0.809, 6),
    "svi, normal guide": Covered(0.542, 0.697, 4),
}
REGULARISED = {1e-2: Covered(0.533, 0.561, 5)}


def calibration(engine: str, confusion: str, volume: float, regularised: bool) -> str:
    """What is known about the intervals of a configuration: its figure, or "not measured" with that of the nearest one."""
    found = (
        REGULARISED.get(volume) if regularised and engine == "svi" else None if regularised else MEASURED.get(engine)
    )
    if found is None:
        return "not measured for this configuration"
    if confusion != "stochastic" or (volume > 0 and not regularised):
        return f"not measured for confusion {confusion} fitted with volume {volume:g} (for a stochastic one without: {found})"
    return str(found)
