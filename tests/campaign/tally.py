"""What is counted, and what counts as a fault."""

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pdcc

PACKAGE = Path(pdcc.__file__).resolve().parent
# Errors that may reach a user; those in whose own words scikit-learn speaks are raised in its validation.
TYPED = (ValueError, TypeError, OSError)
OTHERS_WORDS = ("sklearn/utils", "sklearn/base")
SECONDS = 60


class Hung(BaseException):
    """An attempt took more than ``SECONDS``."""


@dataclass
class Tally:
    """Attempts, refusals and faults, by kind."""

    attempts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def fault(self, kind: str, number: int, what: str) -> None:
        """Note what went wrong in the attempt of this number."""
        self.faults.append({"kind": kind, "number": number, "what": what[-2000:]})

    def attempt(self, kind: str, number: int, call: Callable[[], str | None]) -> None:
        """``call`` returns None, or what does not hold together in what came out."""
        self.attempts[kind] += 1
        try:
            with limited(SECONDS):
                wrong = call()
            if wrong:
                self.fault(kind, number, wrong)
        except TYPED as error:
            self.refused[kind] += 1
            if not _ours(error):
                self.fault(kind, number, "raised elsewhere: " + "".join(traceback.format_exception(error)))
        except (Exception, Hung, SystemExit) as error:
            self.fault(kind, number, "".join(traceback.format_exception(error)))


def _ours(error: BaseException) -> bool:
    """Raised on purpose: by the package itself, or by scikit-learn's own checks, with a message."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    by_us = Path(last).resolve().is_relative_to(PACKAGE) or any(part in last for part in OTHERS_WORDS)
    return (by_us or (isinstance(error, OSError) and error.errno is not None)) and len(str(error)) > 10


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise ``Hung`` after so many seconds."""

    def ring(*_: Any) -> None:
        raise Hung(f"more than {seconds} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
