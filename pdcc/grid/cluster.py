"""Cells on an existing Dask cluster: handed back as they come, tried again where a worker was lost."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pdcc.errors import PairDataError
from pdcc.storage.provenance import source_hash

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

Cell = TypeVar("Cell")
Record = dict[str, Any]

# How long a scheduler may take to answer.
CONNECT_SECONDS = 10
# A worker may have several threads, but torch's random numbers and a process's peak memory are one cell's at a time.
_ONE_CELL = threading.Lock()
_source = cache(source_hash)


def on_cluster(
    address: str,
    task: Callable[[Cell], Record],
    cells: Sequence[Cell],
    failed: Callable[[Cell, Exception], Record] | None,
) -> Iterator[Record]:
    """``task(cell)`` of every cell, as they come, from the workers of the Dask scheduler at ``address``.

    The scheduler gives a lost worker's cells to others. One that lost more workers than its
    ``distributed.scheduler.allowed-failures`` (three, unless the cluster says otherwise) is handed to ``failed``.
    """
    try:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise PairDataError(
            "dask", "the package distributed", "none installed", "Install it: pip install 'pdcc[scale]'."
        ) from error

    with _connected(address) as client:
        cell_of = {
            future: cell
            for cell, future in zip(
                cells, client.map(_run, cells, task=task, source=_source(), pure=False), strict=True
            )
        }
        for future in as_completed(list(cell_of), loop=client.loop):
            cell, raised = cell_of.pop(future), future.exception()
            if future.cancelled():
                raise ConnectionError(
                    f"dask: expected the scheduler at {address} to stay, found it gone or its work cancelled. What was done is on record: run the same again to go on."
                )
            if raised is None:
                yield future.result()
            elif failed is not None and isinstance(raised, KilledWorker):
                yield failed(cell, raised)
            else:
                raise raised
            future.release()


def _run(cell: Cell, task: Callable[[Cell], Record], source: str) -> Record:
    """On a worker, which may have joined only now: the task, if its source is the client's."""
    if _source() != source:
        raise _other_source("a worker")
    with _ONE_CELL:
        return task(cell)


def _connected(address: str) -> "Client":
    """A client of the scheduler at ``address``, which and whose workers have the source that this process has."""
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise PairDataError(
            "dask", "the address of a running Dask scheduler", f"{address!r} ({error})",
            "Start one with `dask scheduler` and workers with `dask worker ADDRESS --nthreads 1`.",
        ) from error  # fmt: skip
    try:
        there = {"the scheduler": client.run_on_scheduler(source_hash), **client.run(source_hash)}
    except Exception as error:
        client.close()
        raise _other_source("the scheduler or a worker", f" ({type(error).__name__}: {error})") from error
    odd = next((name for name, source in there.items() if source != _source()), None)
    if odd is not None:
        client.close()
        raise _other_source(odd)
    if len(there) == 1:
        logger.warning("dask: the cluster has no worker yet; waiting for one.")
    return client


def _other_source(where: str, why: str = "") -> PairDataError:
    return PairDataError(
        "dask", "the same pdcc on the scheduler and all workers as here", f"another, or none, at {where}{why}",
        "Install this one there and start them again: records of different sources do not belong in one table.",
    )  # fmt: skip
