"""Every call of ArviZ: the only module that imports it or knows how its containers are built (versions 0.20 to 0.23)."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcc.arrays import Float64


def import_arviz() -> Any:
    """ArviZ, imported when it is needed, and without what versions before 1.0 say about their own future each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


def build(
    groups: Mapping[str, Mapping[str, NDArray[Any]]],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any],
) -> Any:
    """A container of ``groups`` {group: {variable: array}}; arrays of draws are (chain, draw, ...). Empty groups are left out.

    ``attrs`` are those of the whole and of its posterior.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="More chains")  # an ensemble's chains may be single members
        return import_arviz().from_dict(
            **{name: dict(group) for name, group in groups.items() if group},
            coords=dict(coords),
            dims={name: list(axes) for name, axes in dims.items()},
            attrs=dict(attrs),
            posterior_attrs=dict(attrs),
        )


def has(idata: Any, group: str, name: str) -> bool:
    """Whether a container has this variable in this group."""
    return hasattr(idata, group) and name in getattr(idata, group)


def group_names(idata: Any) -> str:
    """The groups of a container, or what else it is, for messages."""
    return ", ".join(idata.groups()) if hasattr(idata, "groups") else type(idata).__name__


def array(idata: Any, group: str, name: str) -> NDArray[Any]:
    """A variable's values; draws come as (chain, draw, ...)."""
    return np.asarray(getattr(idata, group)[name].values)


def effective_draws(values: Float64, *, method: str = "bulk") -> float:
    """How many independent draws (chain, draw) are worth; NaN where that cannot be told."""
    with np.errstate(divide="ignore", invalid="ignore"):  # draws that do not vary
        return float(import_arviz().ess(values, method=method))


def r_hat(values: Float64) -> float:
    """Rank-normalised split r_hat of draws (chain, draw)."""
    return float(import_arviz().rhat(values))


@dataclass(frozen=True)
class LeaveOneOut:
    """PSIS-LOO as ArviZ gives it: sums and what each of M answers adds to them, (M,); Pareto k may be infinite or NaN."""

    elpd: float
    se: float
    p_loo: float
    pointwise: Float64
    pareto_k: Float64
    good_k: float
    warnings: tuple[str, ...]


def leave_one_out(idata: Any, name: str, efficiency: float) -> LeaveOneOut:
    """PSIS-LOO of the log-likelihood ``name``, in nats; ``efficiency``: effective over actual draws."""
    arviz = import_arviz()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = arviz.loo(idata, pointwise=True, var_name=name, scale="log", reff=efficiency)
    return LeaveOneOut(
        elpd=float(found["elpd_loo"]),
        se=float(found["se"]),
        p_loo=float(found["p_loo"]),
        pointwise=np.asarray(found["loo_i"], dtype=np.float64).ravel(),
        pareto_k=np.asarray(found["pareto_k"], dtype=np.float64).ravel(),
        good_k=float(found["good_k"]),
        warnings=tuple(dict.fromkeys(" ".join(str(w.message).split()) for w in caught)),
    )
