"""Files written whole or not at all: bytes, and named tensors with a JSON header (safetensors). Nothing read here can run code."""

import hashlib
import json
import os
import re
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from pdcc.errors import ArtifactError

FORMAT = "pdcc-state-1"


def _machine() -> Iterator[str]:
    """What tells processes apart whose numbers may be the same: the host and, on Linux, its start and the space of process numbers."""
    yield socket.gethostname()
    with suppress(OSError):
        yield Path("/proc/sys/kernel/random/boot_id").read_text()
    with suppress(OSError):
        yield os.readlink("/proc/self/ns/pid")


# A run directory is known by this file; the others of a run are named by what they hold and their content.
RUN_MARK = "run.json"
RUN_FILE = re.compile(r"(model|pairs|features|reading)-[0-9a-f]{12}\.(safetensors|npy|json)")
# Files that are being written carry the machine and the process, so that those of a dead one are known.
HOST = hashlib.sha256("".join(_machine()).encode()).hexdigest()[:8]
PARTIAL = re.compile(r"\.pdcc-([0-9a-f]{8})-([0-9]+)-.*\.partial")


def write_atomic(path: Path, payload: bytes | Iterable[bytes]) -> None:
    """Put ``payload``, or its parts one after the other, at ``path`` so that a reader, or a crash, sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".pdcc-{HOST}-{os.getpid()}-", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in [payload] if isinstance(payload, bytes) else payload:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())  # temporary files are private; results are not
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path) -> None:
    """Remove what processes of this machine that are no more had begun to write there."""
    with suppress(OSError):  # someone else's, say: tidying up must not be in the way
        for name in os.listdir(directory):
            found = PARTIAL.fullmatch(name)
            if found and found[1] == HOST and not _alive(int(found[2])):
                with suppress(OSError):
                    (directory / name).unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # someone else's
    return True


def as_path(path: Any) -> Path:
    """A path that the system can hold."""
    try:
        os.fsencode(found := Path(path))
    except (TypeError, UnicodeEncodeError) as error:
        raise TypeError(f"path: expected a path, found {path!a} ({error}). Pass text or a Path.") from error
    if "\0" in str(found):
        raise ValueError(f"path: expected one without zero bytes, found {path!a}. Check how it was made.")
    return found


def check_output(path: Path, inputs: Sequence[Path] = ()) -> Path:
    """Where a result is to be written, behind symbolic links. Raises ``ArtifactError`` for what must not be replaced.

    That is: anything but an ordinary file, what is read from (``inputs``), and a run's own files.
    """
    target = path.resolve()
    what = None
    if target.is_dir():
        what = "a directory"
    elif target.exists() and not target.is_file():
        what = "a device or a pipe"
    elif target.exists() and any(given.exists() and target.samefile(given) for given in inputs):
        what = "what is to be read"
    elif (target.parent / RUN_MARK).exists() and (target.name == RUN_MARK or RUN_FILE.fullmatch(target.name)):
        what = "a file of a run"
    if what is not None:
        raise ArtifactError(
            f"{path}: expected a new or an ordinary file to write to, found {what}. Choose another path."
        )
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_state(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write named tensors and a JSON-able ``meta`` to one file."""
    write_atomic(path, pack_state(tensors, meta))


def pack_state(tensors: dict[str, Tensor], meta: dict[str, Any]) -> bytes:
    """The content of such a file; one metadata key, since several come in an order that differs between processes."""
    owned = {name: value.detach().to("cpu").contiguous().clone() for name, value in tensors.items()}
    return cast(bytes, save(owned, metadata={FORMAT: json.dumps(meta)}))


def unpack_state(payload: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Undo ``pack_state``, for bytes that this program made: the header of safetensors is its length and JSON."""
    length = int.from_bytes(payload[:8], "little")
    header = json.loads(payload[8 : 8 + length])["__metadata__"]
    return load(payload), json.loads(header[FORMAT])


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_state`` wrote; no code in the file can run. Raises ``ArtifactError`` on anything else."""
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            if FORMAT not in header:
                raise ArtifactError(f"{path}: expected a file of format {FORMAT}, found one with {sorted(header)}.")
            meta = json.loads(header[FORMAT])
            if not isinstance(meta, dict):
                raise KeyError(FORMAT)
            # Copies: what comes out of the file is mapped to it, and would change or break off with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    except (SafetensorError, OSError, json.JSONDecodeError, KeyError, RecursionError) as error:
        raise ArtifactError(f"{path}: not a readable pdcc state file ({error}). Restore it or train again.") from error
    return tensors, meta


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ``ArtifactError`` for anything else, however deep it is nested."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{path}: not readable as JSON ({error}). Restore it or fit again.") from error
    if not isinstance(body, dict):
        raise ArtifactError(f"{path}: expected a JSON object, found a {type(body).__name__}. Restore it or fit again.")
    return body


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
