"""pdcc fit in several processes at once, as torchrun starts them: who says what, who writes, and how they end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdcc.errors import LostProcessError

if TYPE_CHECKING:
    from pdcc.storage.run import Source

# What torchrun, or any other launcher that torch understands, tells each process.
TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Seconds from being told to end until the end: enough to notice that the others are gone, and to write what there is.
GRACE = 10


def n_processes() -> int:
    """How many processes this command is one of."""
    told = [os.environ.get(name, "") for name in TOLD]
    return int(told[1]) if all(told) and told[1].isdecimal() and told[0].isdecimal() else 1


def rank() -> int:
    """The number of this process, the first is 0."""
    return int(os.environ["RANK"]) if n_processes() > 1 else 0


def speaks(error: BaseException | None = None) -> bool:
    """This process prints: the first one what comes of it; of errors one line per machine; that others were lost, whoever is left."""
    first_here = os.environ.get("LOCAL_RANK", str(rank())) == "0"
    return rank() == 0 or (error is not None and (first_here or isinstance(error, LostProcessError)))


@contextmanager
def joined(command: str) -> Iterator[None]:
    """Join the others for the block, if ``command`` is one that several processes share and there are any."""
    if n_processes() == 1 or command != "fit":
        yield
        return
    import torch
    from torch import distributed

    from pdcc.inference.processes import TIMEOUT

    backend = "gloo"
    if torch.cuda.is_available() and distributed.is_nccl_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    try:
        distributed.init_process_group(backend, timeout=TIMEOUT)
    except RuntimeError as error:
        what = f"Not all {n_processes()} processes of this job came together within {TIMEOUT.seconds} seconds."
        raise LostProcessError(what) from error
    if rank() == 0 and hasattr(signal, "SIGALRM"):
        # torchrun tells all to end as soon as one has died: time enough for the first to write a checkpoint.
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(GRACE))
    try:
        yield
    finally:
        with suppress(RuntimeError):
            distributed.destroy_process_group()


@contextmanager
def begun(run: Path, source: "Source", options: dict[str, Any], *, resume: bool, overwrite: bool) -> Iterator[bool]:
    """Hold a run directory for the block, and begin a run there. True: there is work to do. The first process does it for all."""
    from pdcc.storage.lock import claimed
    from pdcc.storage.run import begin

    with ExitStack() as held:

        def work() -> bool:
            held.enter_context(claimed(run))
            return begin(run, source, options, resume=resume, overwrite=overwrite)

        yield _once(work)


def _once(work: Callable[[], bool]) -> bool:
    """What ``work`` returns in the first process, which alone does it."""
    if n_processes() == 1:
        return work()
    import torch

    from pdcc.inference.processes import Processes

    return Processes.here(torch.device("cpu")).once(lambda: bytes([work()])) == b"\1"
