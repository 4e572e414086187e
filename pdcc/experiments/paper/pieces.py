"""A file, or the pieces it was cut into: NAME.part1, NAME.part2, ... hold its bytes in this order."""

import re
from pathlib import Path

from pdcc.errors import PairDataError

_PIECE = re.compile(r"\.part([1-9]\d*)")


def there(path: Path) -> bool:
    """Whether a file, or any piece of it, is there."""
    return path.is_file() or bool(_numbered(path))


def whole_bytes(path: Path, max_bytes: int) -> bytes:
    """The bytes of a file or of all its pieces; the file itself is taken where both are there.

    Raises ``PairDataError`` where nothing is there, a piece is missing, or it is longer than ``max_bytes``. That pieces are
    missing at the end does not show in their names: what reads the bytes finds them cut short.
    """
    found = _numbered(path)
    if not path.is_file() and not found:
        raise PairDataError(str(path), "a file, or its pieces .part1, .part2, ...", "none there", "Check the path.")
    missing = [n for n in range(1, max(found, default=0)) if n not in found]
    if not path.is_file() and missing:
        raise PairDataError(
            str(path), f"all pieces from .part1 to .part{max(found)}", f"no .part{missing[0]}", "Obtain it, too."
        )
    files = [path] if path.is_file() else [found[n] for n in sorted(found)]
    size = sum(file.stat().st_size for file in files)
    if size > max_bytes:
        raise PairDataError(str(path), f"at most {max_bytes} bytes", f"{size}", "Raise max_bytes if that is right.")
    return b"".join(file.read_bytes() for file in files)


def _numbered(path: Path) -> dict[int, Path]:
    """The pieces of a file that are there, by their numbers."""
    if not path.parent.is_dir():
        return {}
    beside = [file for file in path.parent.iterdir() if file.name.startswith(f"{path.name}.part") and file.is_file()]
    matched = {file: _PIECE.fullmatch(file.name[len(path.name) :]) for file in beside}
    return {int(match[1]): file for file, match in matched.items() if match}
