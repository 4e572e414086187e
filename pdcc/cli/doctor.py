"""pdcc doctor: what this installation is made of, what it can compute on, and which data it sees."""

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from pdcc.cli.app import app, say

# Extras of use to people who run pdcc, and what each is for.
EXTRAS = {
    "parquet": "Parquet tables",
    "label": "the answering page, pdcc label",
    "scale": "studies on a Dask cluster, --dask",
    "graph": "pictures of the model",
    "notebooks": "running the notebooks",
}


@app.command()
def doctor() -> None:
    """Say which versions are installed, what can be computed on, and which data is seen: for when something is amiss.

    Example: pdcc doctor
    """
    for line in findings():
        say(line)


def findings() -> Iterator[str]:
    """What there is to say, line by line."""
    import torch

    from pdcc.storage.provenance import package_versions, source_hash

    versions = package_versions()
    yield f"pdcc {versions.pop('pdcc')} (source {source_hash()}), Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield ", ".join(f"{name} {number}" for name, number in versions.items())
    gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    where = f"CUDA, {', '.join(gpus)}" if gpus else "the CPU (no CUDA device)"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f'Computes on {where} with device="auto"; cores: {cores}, threads: {torch.get_num_threads()}.'
    for extra, use in EXTRAS.items():
        lacking = [name for name in packages_of(extra) if not installed(name)]
        found = f"not installed ({', '.join(lacking)}): pip install 'pdcc[{extra}]'" if lacking else "installed"
        yield f"Extra {extra}, for {use}: {found}."
    yield data_seen()


def packages_of(extra: str) -> list[str]:
    """Names of what an extra asks for."""
    asked = [line.split(";") for line in requires("pdcc") or [] if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    return [re.split(r"[^\w.-]", what.strip())[0] for what, *_ in asked]


def installed(name: str) -> bool:
    """Whether a package is there."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def data_seen() -> str:
    """What of the benchmark data is found."""
    from pdcc.datasets import ARCHIVES, data_directory

    directory = data_directory()
    if directory is None:
        return "Benchmark data: PDCC_DATA is not set; only benchmarks with human answers, measurements or the paper's features need it (docs/benchmark.md)."
    found = [name for name in ARCHIVES if (directory / name).is_file()]
    found += ["paper/"] if (directory / "paper").is_dir() else []
    lacking = [name for name in (*ARCHIVES, "paper/") if name not in found]
    words = f"Benchmark data in {directory}: {', '.join(found) or 'none'}"
    return f"{words}; not there: {', '.join(lacking)}." if lacking else f"{words}."
