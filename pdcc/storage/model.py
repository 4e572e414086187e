"""A fitted estimator on disk: a directory with tensors (safetensors) and a description (JSON). Never pickle."""

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from pdcc.errors import ArtifactError
from pdcc.storage.files import (
    PARTIAL,
    RUN_FILE,
    RUN_MARK,
    file_hash,
    load_state,
    pack_state,
    read_json,
    remove_leftovers,
    write_atomic,
)
from pdcc.storage.lock import LOCK
from pdcc.storage.provenance import package_versions

FORMAT = "pdcc-run-3"
DESCRIPTION, UNFINISHED, BEGUN, CHECKPOINTS = RUN_MARK, "unfinished", "begun.json", "checkpoints"
MODEL = "model.safetensors"
SAVED_ALONE = "It was saved from Python, which keeps the model alone: use the estimator's own method there, with the data, or fit with pdcc fit."
# Tensors whose numbers are all finite in a fit that can be used.
LEARNED = ("model/", "guide/", "memberships", "agreement")


def check_place(path: Path) -> None:
    """Raise ``ArtifactError`` unless ``path`` is new, empty, a run, or what is left of one."""
    if path.exists() and not path.is_dir():
        raise ArtifactError(f"{path}: expected a directory for the run, found a file. Choose another path.")
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    own = {n for n in names if n == LOCK or RUN_FILE.fullmatch(n) or PARTIAL.fullmatch(n)}
    own |= {UNFINISHED} if _is_ours(path / UNFINISHED) else set()
    if names - own and not (path / DESCRIPTION).exists() and not (path / UNFINISHED / BEGUN).exists():
        raise ArtifactError(
            f"{path}: expected an empty directory or a pdcc run, found other files. Choose another path."
        )


def check_no_answers(path: Path) -> None:
    """Raise ``ArtifactError`` where the run ``path`` keeps more than a model: answers would be lost with it."""
    kept: Any = None
    if (path / DESCRIPTION).is_file():
        with suppress(ArtifactError):
            kept = read_description(path).get("files")
    if isinstance(kept, dict) and set(kept) - {MODEL}:
        raise ArtifactError(
            f"{path}: expected a new directory, or one that save made, found a run of pdcc fit, whose answers would be lost. Choose another path."
        )


def _is_ours(unfinished: Path) -> bool:
    """It holds nothing but what a fit writes there."""
    entries = [entry.name for entry in unfinished.iterdir()] if unfinished.is_dir() else []
    return all(name in (BEGUN, CHECKPOINTS) or PARTIAL.fullmatch(name) for name in entries)


def save_run(
    path: Path,
    tensors: dict[str, Tensor],
    description: dict[str, Any],
    *,
    extra: dict[str, Any] | None = None,
    files: dict[str, bytes] | None = None,
) -> None:
    """Put a run into the directory ``path``, in the place of an earlier one: at every moment there is one of the two.

    ``files``: the content of further files by their names, such as pairs.safetensors; each is kept under a name that
    carries its hash, so that the description switches from the old files to the new in one rename.
    """
    check_place(path)
    contents = {MODEL: pack_state(tensors, {}), **(files or {})}
    kept = {}
    for name, payload in contents.items():
        digest = hashlib.sha256(payload).hexdigest()
        stem, end = name.split(".")
        kept[name] = {"name": f"{stem}-{digest[:12]}.{end}", "sha256": digest}
    body = {"format": FORMAT, "versions": package_versions(), "files": kept, **description, **(extra or {})}
    text = json.dumps(body | {"description_sha256": _body_hash(body)}, indent=1, allow_nan=False)
    for name, payload in contents.items():
        write_atomic(path / kept[name]["name"], payload)
    write_atomic(path / DESCRIPTION, text.encode())
    tidy(path)


def tidy(path: Path) -> None:
    """Remove what is left of earlier runs and of processes that are no more; beside a damaged description nothing is touched."""
    remove_leftovers(path)
    try:
        kept = read_description(path)["files"] if (path / DESCRIPTION).exists() else {}
        named = {file["name"] for file in kept.values()}
    except (ArtifactError, KeyError, TypeError, AttributeError):
        return
    for old in path.iterdir():
        if RUN_FILE.fullmatch(old.name) and old.name not in named:
            old.unlink()
    if not (path / UNFINISHED / BEGUN).exists() and _is_ours(path / UNFINISHED):
        shutil.rmtree(path / UNFINISHED, ignore_errors=True)


def _body_hash(body: dict[str, Any]) -> str:
    """SHA-256 of a description in canonical form, its own hash left out."""
    plain = {k: v for k, v in body.items() if k != "description_sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_description(path: Path) -> dict[str, Any]:
    """run.json of a finished run. Anything missing, foreign or altered raises ``ArtifactError``."""
    if not (path / DESCRIPTION).is_file():
        if (path / UNFINISHED / BEGUN).is_file():
            raise ArtifactError(
                f"{path}: expected a finished run, found one that was interrupted. Finish it: pdcc fit ... --resume."
            )
        raise ArtifactError(
            f"{path}: expected a pdcc run (a directory with {DESCRIPTION}), found none. Check the path."
        )
    body = read_json(path / DESCRIPTION)
    if body.get("format") != FORMAT:
        raise ArtifactError(
            f"{path}: expected a run of format {FORMAT}, found {body.get('format')!r}. It was written by another program or version."
        )
    if body.get("description_sha256") != _body_hash(body):
        raise ArtifactError(f"{path / DESCRIPTION}: was altered after it was written. Restore it or fit again.")
    return body


def file_of(path: Path, body: dict[str, Any], name: str) -> Path:
    """Where the run ``path``, described by ``body``, keeps ``name``; ``ArtifactError`` unless it is there, and is what was recorded."""
    files = body.get("files")
    kept = files.get(name) if isinstance(files, dict) else None
    if not isinstance(kept, dict) or not RUN_FILE.fullmatch(str(kept.get("name"))):
        fix = "Fit again." if name == MODEL else SAVED_ALONE
        raise ArtifactError(f"{path}: keeps no {name}. {fix}")
    file = path / str(kept["name"])
    if not file.is_file():
        raise ArtifactError(f"{file}: missing. Restore it or fit again.")
    if file_hash(file) != kept.get("sha256"):
        raise ArtifactError(
            f"{file}: its content is not what {DESCRIPTION} recorded. It was altered or damaged; restore it or fit again."
        )
    return file


def load_run(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_run`` wrote. Anything missing, foreign or altered raises ``ArtifactError``."""
    body = read_description(path)
    try:
        file = file_of(path, body, MODEL)
    except ArtifactError:
        again = read_description(path)  # it may just have been replaced
        if again == body:
            raise
        body, file = again, file_of(path, again, MODEL)
    tensors, _ = load_state(file)
    odd = [name for name, value in tensors.items() if name.startswith(LEARNED) and not bool(value.isfinite().all())]
    if odd:
        raise ArtifactError(f"{file}: expected finite numbers, found others in {odd[0]}. Restore it or fit again.")
    return tensors, body
