"""What a machine must have to answer pairs, and what it may reply."""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pdcc.errors import OracleError


@dataclass(frozen=True)
class Reply:
    """answers: one for each pair, 1 the same, 0 different, a probability in between, None for no opinion. cost: what they cost together, or one number for each."""

    answers: Sequence[float | None]
    cost: float | Sequence[float] = 0.0


class Oracle(Protocol):
    """A machine that answers pairs: a language model, a rule, a table.

    name, version: its answers are kept under these; change the version whenever the answers may change (another prompt, another model).
    It may have a ``price``, the most that one answer can cost, which a budget needs. ``answer`` may raise ``TemporaryOracleError``
    where asking again later may help.
    """

    name: str
    version: str

    def answer(self, pairs: Sequence[tuple[int, int]], items: Sequence[Any]) -> "Reply | Sequence[float | None]":
        """Answers to pairs of row numbers; ``items[i]`` is what is known of item i. A plain sequence costs its price, or nothing."""
        ...


@dataclass(frozen=True)
class Answered:
    """One answer: ``degree`` from 0, different, to 1, the same; None for no opinion. What it cost."""

    degree: float | None
    cost: float


def check_oracle(oracle: Any) -> tuple[str, str, float | None]:
    """(name, version, price) of an oracle; price is None where it has none."""
    name, version, price = (getattr(oracle, part, None) for part in ("name", "version", "price"))
    for part, value in (("name", name), ("version", version)):
        if not isinstance(value, str) or not value.strip():
            raise OracleError(
                "oracle", f"a {part}, text that is not empty", repr(value), f"Give it one: {part} = '...'."
            )
    if not callable(getattr(oracle, "answer", None)):
        raise OracleError(
            "oracle", "a method answer(pairs, items)", f"a {type(oracle).__name__} without one", "Write it."
        )
    if price is not None and not _is_cost(price):
        raise OracleError(
            "oracle", "a price of at least 0", repr(price), "Set it to the most that one answer can cost."
        )
    return str(name), str(version), None if price is None else float(price)


def check_reply(reply: Any, n: int, name: str, price: float | None) -> list[Answered]:
    """What an oracle replied about ``n`` pairs, one by one."""
    argument = f"answers of oracle {name!r}"
    given = reply.answers if isinstance(reply, Reply) else reply
    if isinstance(given, str | bytes) or not hasattr(given, "__len__") or not hasattr(given, "__iter__"):
        raise OracleError(
            argument, f"a sequence of {n} answers, or a Reply", f"{given!r:.80}", "Return one answer for each pair."
        )
    answers = list(given)
    if len(answers) != n:
        raise OracleError(argument, f"one for each of {n} pairs", f"{len(answers)}", "Return None for no opinion.")
    for row, value in enumerate(answers):
        if not _is_answer(value):
            raise OracleError(
                argument, "1, 0, a probability in between, or None", f"{value!r:.80}", "Return one of these.", row
            )
    degrees = [None if value is None else float(value) for value in answers]
    return [Answered(d, c) for d, c in zip(degrees, _costs(reply, n, argument, price), strict=True)]


def _costs(reply: Any, n: int, argument: str, price: float | None) -> list[float]:
    if not isinstance(reply, Reply):
        return [price or 0.0] * n
    cost: Any = reply.cost
    alone = np.ndim(cost) == 0
    costs: list[Any] = [cost] if alone else list(cost)
    if not all(_is_cost(one) for one in costs) or len(costs) != (1 if alone else n):
        raise OracleError(
            argument, f"a cost of at least 0, or one for each of {n} pairs", f"{cost!r:.80}", "Return what was paid."
        )
    return [float(cost) / n] * n if alone else [float(one) for one in costs]


def _is_answer(value: Any) -> bool:
    return value is None or (isinstance(value, numbers.Real | np.bool_) and 0 <= float(value) <= 1)


def _is_cost(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, numbers.Real) and 0 <= float(value) < math.inf
