"""One thread at a time: what Pyro, torch and BLAS keep for the whole process is changed by one thread alone, and put back before the next.

Pyro has one stack of handlers, one set of settings and one store, torch one stream of random numbers, BLAS one number of threads. Every
block of ours that touches any of them holds one lock, so that fits in several threads end at the same bits as one after the other.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from threadpoolctl import threadpool_limits

_LOCK = threading.RLock()
# One entry for each block of ``one_core`` that is open, by the thread that holds the lock.
_LIMITED: list[bool] = []


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock; a thread that holds it already goes on."""
    with _LOCK:
        yield


@contextmanager
def one_core() -> Iterator[None]:
    """Linear algebra on one thread: sums in one order, and no threads that wait for each other.

    A block inside another costs nothing: to look for every library that has threads takes milliseconds.
    """
    with _LOCK, nullcontext() if _LIMITED else threadpool_limits(limits=1):
        _LIMITED.append(True)
        try:
            yield
        finally:
            _LIMITED.pop()
