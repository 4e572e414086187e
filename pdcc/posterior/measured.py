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


# By engine, confusion and volume of the fit, and whether the volume was kept; for 200 items, 3,000 answers and 3 clusters (docs/results.md).
MEASURED = {
    ("hmc", "stochastic", 0.0, False): Covered(0.869, 0.883, 98),
    ("hmc", "pooled", 0.01, False): Covered(0.723, 0.773, 80),
    ("hmc", "stochastic", 0.01, False): Covered(0.817, 0.890, 20),
    ("hmc", "stochastic", 0.003, True): Covered(0.775, 0.864, 20),
    ("hmc", "stochastic", 0.01, True): Covered(0.692, 0.689, 20),
    ("svi", "stochastic", 0.0, False): Covered(0.725, 0.772, 20),
    ("svi, normal guide", "stochastic", 0.0, False): Covered(0.717, 0.761, 20),
    ("nuts", "stochastic", 0.0, False): Covered(0.825, 0.905, 20),
    ("ensemble", "stochastic", 0.0, False): Covered(0.483, 0.385, 20),
}


def calibration(engine: str, confusion: str, volume: float, regularised: bool) -> str:
    """What is known about the intervals of a configuration: its figure, or "not measured" with that of the nearest one."""
    found = MEASURED.get((engine, confusion, volume, regularised))
    if found is not None:
        return str(found)
    words = f"not measured for confusion {confusion} fitted with volume {volume:g}" + ", which was kept" * regularised
    near = None if regularised else MEASURED.get((engine, "stochastic", 0.0, False))
    return words if near is None else f"{words} (for a stochastic one without: {near})"
