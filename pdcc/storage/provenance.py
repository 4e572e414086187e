"""What a result was made with: versions of packages, and the state of this source."""

import hashlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path


def package_versions() -> dict[str, str]:
    """Versions a result depends on."""
    return {name: version(name) for name in ("pdcc", "torch", "pyro-ppl", "numpy", "scikit-learn")}


def source_hash() -> str:
    """Twelve digits that tell one state of pdcc's source from another: versions do not change with every commit."""
    parts = {"models": "pdcc.models", "inference": "pdcc.inference", "": "pdcc"}
    digest = hashlib.sha256()
    for name, package in parts.items():
        found = find_spec(package)  # where it lies, without importing it
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError(f"{package}: expected an installed package, found none. Install pdcc again.")
        root = Path(found.submodule_search_locations[0])
        for path in sorted(root.rglob("*.py")):
            within = path.relative_to(root)
            # Installed, models and inference lie inside pdcc; in a checkout, beside it.
            if name or within.parts[0] not in parts:
                digest.update(f"{name}/{within.as_posix()}".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
