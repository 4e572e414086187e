"""Choosing confusion, volume and partition weight from held-out answers alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcc.checks import Ints

# The volume "auto" tries: between the synthetic study's best, 1e-3, and 1e-2 (docs/results.md).
AUTO_VOLUME = 3e-3
# The weight "auto" gives a start that is fit to be an annotator (partition.Start.annotates): as much say as all
# answers together (docs/results.md). A start that the answers guided gets none: it would count them twice.
AUTO_PARTITION = 1.0
# Where answers tear items from their neighbours, a stable partition is held on to by these weights, one after the other.
HOLD_ON = (0.3, 1.0)
# Fewer held-out answers than this cannot tell settings apart.
FEWEST_HELD_OUT = 50


@dataclass(frozen=True)
class Candidate:
    """One setting of what "auto" leaves open."""

    confusion: str
    volume: float
    partition: float

    def __str__(self) -> str:
        return f"confusion {self.confusion}, volume {self.volume:g}, partition {self.partition:g}"


@dataclass(frozen=True)
class Choice:
    """The chosen candidate's number, the sentence that says why, and the table of what was compared."""

    index: int
    reason: str
    table: tuple[dict[str, Any], ...]


def candidates(
    confusion: str, volume: float | str, partition: float, *, annotators: bool, enough: bool
) -> list[Candidate]:
    """What is to be compared, of one confusion's volumes the larger first: see ``choose``.

    Args:
        annotators: whether they are told apart; if not, all share one confusion.
        enough: whether held-out answers are enough to choose by; if not, one candidate is all there is.
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
    return [Candidate(form, v, partition) for form, v in (models if enough else models[:1])]


def freed(candidate: Candidate, confusion: str, volume: float | str) -> Candidate:
    """The candidate with the free B where "auto" chose no confusion at all."""
    if confusion != "auto" or candidate.confusion != "none":
        return candidate
    return replace(candidate, confusion="sigmoid", volume=AUTO_VOLUME if volume == "auto" else float(volume))


def standard_error(difference: NDArray[np.float64], groups: Ints | None) -> float:
    """Standard error of the mean of per-pair differences (M,); pairs of one annotator (``groups``) count as one."""
    centred = difference - difference.mean()
    alone = float(np.sqrt((centred**2).sum()) / len(centred))
    n_groups = 0 if groups is None else len(np.unique(groups))
    if groups is None or n_groups < 2:
        return alone
    together = float(np.sqrt((np.bincount(groups, weights=centred) ** 2).sum()) / len(centred))
    # Few groups understate their own spread: correct as for a variance, and never claim more than independence would.
    return max(alone, together * float(np.sqrt(n_groups / (n_groups - 1))))


def choose(options: Sequence[Candidate], nll: Sequence[NDArray[np.float64]], groups: Ints | None) -> Choice:
    """The confusion of the option that predicts held-out answers best, at the first volume within one standard error of it.

    The volume picks among states that answers cannot tell apart (theorem 4.1), so it has the benefit of the doubt; whether there is
    a confusion, answers can tell, and neither side has. ``nll[c]`` (M,): negative log-likelihood of every held-out answer under option c.
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
        why = f"it predicts held-out answers best ({means[best]:.4f} nats an answer)"
    else:
        why = f"it is within one standard error ({behind[index]:.4f} <= {errors[index]:.4f} nats an answer) of the best, {options[best]}, and prefers the volume"
    return Choice(index, f"Chose {options[index]}: {why}.", table)
