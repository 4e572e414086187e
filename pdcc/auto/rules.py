"""Pure rules: what is compared, and which of it held-out answers choose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pdcc.arrays import Float64, Ints
from pdcc.auto.calibration import AUTO_VOLUME
from pdcc.training import Specification


@dataclass(frozen=True)
class Choice:
    """The chosen specification's number, the sentence that says why, and the table of what was compared."""

    index: int
    reason: str
    table: tuple[dict[str, Any], ...]


def specifications(
    confusion: str, volume: float | str, partition_weight: float, *, annotators: bool, enough: bool
) -> list[Specification]:
    """What is to be compared, of one confusion's volumes the larger first: see ``choose``.

    Args:
        annotators: whether they are told apart; if not, all share one confusion.
        enough: whether held-out answers are enough to choose by; if not, one specification is all there is.
    """
    if confusion == "per-annotator" and not annotators:
        confusion = "stochastic"
    if confusion == "auto" and not enough:
        confusion = "per-annotator" if annotators else "stochastic"
    every = ["sigmoid", "per-annotator", "none"] if annotators else ["sigmoid", "none"]
    forms = every if confusion == "auto" else [confusion]
    if volume != "auto":
        models = [(form, float(volume)) for form in forms]
    elif confusion == "auto":
        models = [(form, 0.0 if form == "none" else AUTO_VOLUME) for form in forms]
    else:
        models = [(confusion, v) for v in (AUTO_VOLUME, 0.0)]
    return [Specification(form, v, partition_weight) for form, v in (models if enough else models[:1])]


def with_free_b(chosen: Specification, confusion: str, volume: float | str) -> Specification:
    """The specification with the free B where "auto" chose no confusion at all."""
    if confusion != "auto" or chosen.confusion != "none":
        return chosen
    return replace(chosen, confusion="sigmoid", volume=AUTO_VOLUME if volume == "auto" else float(volume))


def standard_error(difference: Float64, groups: Ints | None) -> float:
    """Standard error of the mean of per-pair differences (M,); pairs of one annotator (``groups``) count as one."""
    centred = difference - difference.mean()
    alone = float(np.sqrt((centred**2).sum()) / len(centred))
    n_groups = 0 if groups is None else len(np.unique(groups))
    if groups is None or n_groups < 2:
        return alone
    together = float(np.sqrt((np.bincount(groups, weights=centred) ** 2).sum()) / len(centred))
    # Few groups understate their own spread: correct as for a variance, and never claim more than independence would.
    return max(alone, together * float(np.sqrt(n_groups / (n_groups - 1))))


def choose(options: Sequence[Specification], nll: Sequence[Float64], groups: Ints | None) -> Choice:
    """The confusion of the option that predicts held-out answers best, at the first volume within one standard error of it.

    The volume picks among states that answers cannot tell apart (theorem 4.1), so it wins ties; whether there is
    a confusion, answers can tell, and no tie-break applies. ``nll[c]`` (M,): negative log-likelihood of every held-out answer under option c.
    """
    means = np.array([n.mean() for n in nll])
    best = int(means.argmin())
    behind = means - means[best]
    errors = np.array([standard_error(n - nll[best], groups) for n in nll])
    same = np.array([o.confusion == options[best].confusion for o in options])
    index = int(np.flatnonzero(same & (behind <= errors))[0])
    table = tuple(
        {"setting": str(o), "held_out_nll": float(m), "behind_best": float(b), "standard_error": float(e)}
        for o, m, b, e in zip(options, means, behind, errors, strict=True)
    )
    if index == best:
        why = f"it predicts held-out answers best ({means[best]:.4f} nats per answer)"
    else:
        why = f"it is within one standard error ({behind[index]:.4f} <= {errors[index]:.4f} nats per answer) of the best, {options[best]}, and prefers the volume"
    return Choice(index, f"Chose {options[index]}: {why}.", table)
