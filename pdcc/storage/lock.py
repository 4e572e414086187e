"""One process at a time in a run directory, or at a file. The kernel gives the lock back when its holder dies, however it dies."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from pdcc.errors import BusyError

try:
    import fcntl
except ImportError:  # no POSIX: nothing keeps two processes apart there
    fcntl = None  # type: ignore[assignment]

LOCK = ".pdcc-lock"


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Hold ``directory``, made if need be, until the block ends. Raises ``BusyError`` at once where another process has it."""
    if directory.exists() and not directory.is_dir():
        raise BusyError(f"{directory}: expected a directory for results, found a file. Choose another one.")
    new = not directory.exists()
    try:
        with _held(directory / LOCK, directory, "directory"):
            yield
    finally:
        if new:
            with suppress(OSError):  # nothing came of it
                directory.rmdir()


@contextmanager
def claimed_file(path: Path) -> Iterator[None]:
    """Hold the file ``path``, by another one beside it, until the block ends. Raises ``BusyError`` at once where another process has it."""
    with _held(path.with_name(f".{path.name}{LOCK}"), path, "file"):
        yield


@contextmanager
def _held(path: Path, place: Path, kind: str) -> Iterator[None]:
    """Hold the lock file ``path`` of ``place``, a directory or a file."""
    handle = _take(path, place, kind)
    try:
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now(UTC):%F %T} UTC"}
        os.truncate(handle, 0)
        os.write(handle, json.dumps(holder).encode())
        yield
    finally:
        try:
            path.unlink(
                missing_ok=True
            )  # while it is held: who opened it before finds that it is no longer the one there
        finally:
            os.close(handle)


def _take(path: Path, place: Path, kind: str) -> int:
    """A locked handle of the file that is at ``path``. Whoever had it before may have removed it, and the directory, meanwhile."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            handle = os.open(path, flags, 0o666)
            try:
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
            except BlockingIOError as error:
                found = _holder(handle)
                os.close(handle)
                raise BusyError(
                    f"{place}: expected a {kind} that no other command is writing to, found one in use by {found}. Wait for it, end it, or choose another {kind}."
                ) from error
            except FileNotFoundError:
                pass
            except OSError:  # a file system without locks
                os.close(handle)
                raise
            os.close(handle)


def _holder(handle: int) -> str:
    """Who wrote the lock file, for people."""
    try:
        told = json.loads(os.pread(handle, 4096, 0))
        return f"process {told['process']} on {told['host']} since {told['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
