"""What a result was made with: versions of packages, and the state of this source."""

import hashlib
from importlib.metadata import version
from pathlib import Path


def package_versions() -> dict[str, str]:
    """Versions a result depends on."""
    return {name: version(name) for name in ("pdcc", "torch", "pyro-ppl", "numpy", "scikit-learn")}


def source_hash() -> str:
    """Twelve digits that tell one state of pdcc's source from another: versions do not change with every commit."""
    import pdcc.inference
    import pdcc.models

    parts = {"models": pdcc.models, "inference": pdcc.inference, "": pdcc}
    digest = hashlib.sha256()
    for name, package in parts.items():
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            within = path.relative_to(root)
            # Installed, models and inference lie inside pdcc; in a checkout, beside it.
            if name or within.parts[0] not in parts:
                digest.update(f"{name}/{within.as_posix()}".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
