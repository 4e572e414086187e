"""The estimators' parameters, checked in ``fit`` with the same care as data."""

import math
import numbers
import sys
from typing import Any

import numpy as np
import torch

from pdcc.models.confusion import CONFUSIONS
from pdcc.scaling import SCALES

INITS = ("pairs", "kmeans", "random")


def check_one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``allowed``."""
    if not any(value is a or (isinstance(value, str) and value == a) for a in allowed):
        raise ValueError(
            f"{name}: expected one of {', '.join(map(repr, allowed))}, found {value!r}. Pass one of these."
        )


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, auto: bool = False, open_low: bool = False
) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``value`` is a number from ``low`` to below ``high``, or "auto" where allowed."""
    if auto and isinstance(value, str) and value == "auto":
        return
    expected = (
        f"a number {'above' if open_low else 'of at least'} {low:g}"
        + (f" and below {high:g}" if high < math.inf else "")
        + (' or "auto"' if auto else "")
    )
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected {expected}, found {value!r} ({type(value).__name__}). Pass a number.")
    number = float(value)
    if not math.isfinite(number) or number < low or number >= high or (open_low and number == low):
        raise ValueError(f"{name}: expected {expected}, found {value!r}. Choose a value in that range.")


def check_count(name: str, value: Any, low: int = 1) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``value`` is a whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name}: expected a whole number of at least {low}, found {value!r} ({type(value).__name__}). Pass an int."
        )
    if int(value) < low:
        raise ValueError(f"{name}: expected a whole number of at least {low}, found {value!r}. Raise it.")


def check_settings(params: dict[str, Any]) -> None:
    """Raise ``ValueError`` or ``TypeError`` for the first parameter that training could not use."""
    p = params
    check_one_of("confusion", p["confusion"], ("auto", *CONFUSIONS))
    check_number("volume", p["volume"], 0.0, auto=True)
    check_number("partition", p["partition"], 0.0, auto=True)
    if isinstance(p["hidden"], str) or not isinstance(p["hidden"], list | tuple):
        raise TypeError(
            f"hidden: expected a tuple of layer widths such as (512, 512), found {p['hidden']!r}. Pass a tuple."
        )
    for width in p["hidden"]:
        check_count("hidden", width)
    check_number("dropout", p["dropout"], 0.0, 1.0)
    check_one_of("scale", p["scale"], ("auto", *SCALES))
    check_one_of("init", p["init"], INITS)
    for name in ("n_init", "epochs", "batch_size"):
        if not (name == "epochs" and p[name] == "auto"):
            check_count(name, p[name])
    if 2 * p["batch_size"] < p["n_clusters"]:
        raise ValueError(
            f"batch_size: expected at least half of n_clusters={p['n_clusters']} (a batch's volume needs K items), found {p['batch_size']}. Raise it."
        )
    if p["patience"] is not None:
        check_count("patience", p["patience"])
    check_number("lr", p["lr"], 0.0, open_low=True)
    check_number("confusion_lr", p["confusion_lr"], 0.0, open_low=True)
    check_one_of("optimizer", p["optimizer"], ("adam", "sgd"))
    check_one_of("volume_estimator", p["volume_estimator"], ("minibatch", "full"))
    check_number("validation_fraction", p["validation_fraction"], 0.0, 1.0)
    if p["progress"] not in (None, True, False):
        raise TypeError(f"progress: expected None, True or False, found {p['progress']!r}. Pass one of these.")
    check_device(p["device"])


def check_device(device: Any) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU; anything else must be a device torch can use here."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu', 'cuda' or a torch device, found {device!r}. Pass one of these."
        ) from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device: expected a device this machine has, found {device!r} but no CUDA. Pass device='cpu' or 'auto'."
        )
    return found


# Restarts and K-means tries add to the seed, and numpy takes 32 bits.
LARGEST_SEED = 2**31 - 1


def check_random_state(random_state: Any) -> None:
    """Raise ``ValueError`` unless it is None, a whole number from 0 to 2^31 - 1 or a numpy random generator."""
    if random_state is None or isinstance(random_state, np.random.RandomState | np.random.Generator):
        return
    whole = isinstance(random_state, int | np.integer) and random_state is not True and random_state is not False
    if not whole or not 0 <= int(random_state) <= LARGEST_SEED:
        raise ValueError(
            f"random_state: expected None, a whole number from 0 to {LARGEST_SEED} or a numpy random generator, found {random_state!r}. Pass an int."
        )


def seed_of(random_state: Any) -> int:
    """One integer seed from a checked ``random_state``; None gives a fresh one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0] & LARGEST_SEED)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(LARGEST_SEED))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    return int(random_state)


def show_progress(progress: bool | None) -> bool:
    """None means: at a terminal."""
    return sys.stderr.isatty() if progress is None else bool(progress)
