"""A fitted estimator on disk: a directory with tensors (safetensors) and a description (JSON). Never pickle."""

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from pdcc.errors import ArtifactError
from pdcc.storage.files import RUN_FILES, file_hash, load_state, pack_state, read_json, write_atomic
from pdcc.storage.provenance import package_versions

FORMAT = "pdcc-run-1"
DESCRIPTION, BEGUN, PAIRS, FEATURES = RUN_FILES
# Tensors whose numbers are all finite in a fit that can be used.
LEARNED = ("model/", "guide/", "memberships", "agreement")


def save_run(
    path: Path, tensors: dict[str, Tensor], description: dict[str, Any], *, extra: dict[str, Any] | None = None
) -> None:
    """Write tensors and description into the directory ``path``; an interrupted save leaves what was there.

    A directory that holds anything but a pdcc run is not touched. Other files of a run (pairs, checkpoints) stay.
    """
    if path.exists() and not path.is_dir():
        raise ArtifactError(f"{path}: expected a directory to save to, found a file. Choose another path.")
    if path.is_dir() and any(path.iterdir()) and not any((path / own).exists() for own in (DESCRIPTION, BEGUN, PAIRS)):
        raise ArtifactError(
            f"{path}: expected an empty directory or an earlier pdcc run, found other files. Choose another path."
        )
    payload = pack_state(tensors, {})
    digest = hashlib.sha256(payload).hexdigest()
    # Named by content: the description switches from the old tensors to the new in one rename.
    name = f"model-{digest[:12]}.safetensors"
    body = {
        "format": FORMAT,
        "versions": package_versions(),
        "tensors": name,
        "sha256": digest,
        **description,
        **(extra or {}),
    }
    text = json.dumps(body | {"description_sha256": _body_hash(body)}, indent=1, allow_nan=False)
    write_atomic(path / name, payload)
    write_atomic(path / DESCRIPTION, text.encode())
    for old in path.glob("model-*.safetensors"):
        if old.name != name:
            old.unlink()


def _body_hash(body: dict[str, Any]) -> str:
    """SHA-256 of a description in canonical form, its own hash left out."""
    plain = {k: v for k, v in body.items() if k != "description_sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def load_run(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_run`` wrote. Anything missing, foreign or altered raises ``ArtifactError``."""
    if (path / BEGUN).is_file() and not (path / DESCRIPTION).is_file():
        raise ArtifactError(
            f"{path}: expected a finished run, found one that was interrupted. Finish it: pdcc fit ... --resume."
        )
    if not (path / DESCRIPTION).is_file():
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
    name = str(body.get("tensors", ""))
    file = path / Path(name).name
    if Path(name).name != name or not file.is_file():
        raise ArtifactError(f"{path}: its tensors ({name!r}) are missing. Restore them or fit again.")
    if file_hash(file) != body.get("sha256"):
        raise ArtifactError(
            f"{file}: its content is not what {DESCRIPTION} recorded. It was altered or damaged; restore it or fit again."
        )
    tensors, _ = load_state(file)
    odd = [name for name, value in tensors.items() if name.startswith(LEARNED) and not bool(value.isfinite().all())]
    if odd:
        raise ArtifactError(f"{file}: expected finite numbers, found others in {odd[0]}. Restore it or fit again.")
    return tensors, body
