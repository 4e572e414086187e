"""Features and classes from the files that people obtain themselves, in every form they are kept in; no file's code is run."""

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pdcc.datasets import data_directory
from pdcc.errors import PairDataError
from pdcc.experiments.paper.pieces import there
from pdcc.experiments.paper.restricted_unpickle import read_pickle

AMT = "imagenet10-amt"
AMT_FILE = "pair_8994_real_imagenet10-cc-10k_trial_0.pkl"


def _features(epochs: int) -> str:
    return f"as features of the network of Contrastive Clustering (Li et al. 2021) trained without labels for {epochs} epochs, 512 per image in the paper"


_IMAGENET = "the 13,000 images of ten ImageNet classes that Chang et al. (2017) call ImageNet-10"
SOURCES = {
    "stl10": f"the 13,000 labelled images of STL-10 (Coates et al. 2011), {_features(1000)}",
    "cifar10": f"the 60,000 images of CIFAR-10 (Krizhevsky 2009), {_features(1000)}",
    "imagenet10": f"{_IMAGENET}, {_features(1000)}",
    "imagenet10-600": f"{_IMAGENET}, {_features(600)}",
    "cifar100": f"the 60,000 images of CIFAR-100 with its 20 superclasses, {_features(1000)}",
    AMT: f"the answers to 8,994 pairs that the authors release with their code, VolMaxDCC, as {AMT_FILE}",
}


def directory_of(name: str) -> Path:
    """PDCC_DATA/paper, or an error that says what it must hold."""
    directory = data_directory()
    if directory is None:
        raise FileNotFoundError(
            f"PDCC_DATA is not set. Set it to the directory whose folder paper/ holds {SOURCES[name]}."
        )
    return directory / "paper"


def find_arrays(name: str) -> tuple[Path, dict[str, NDArray[Any]]]:
    """The file of a data set and its arrays: X_seen and so on, or X and y of all rows."""
    directory = directory_of(name)
    npz, npy = directory / f"{name}.npz", directory / name / "feature.npy"
    pickles = [
        directory / part for part in (f"{name}.pkl", f"{name}_pretrained_dataset.pkl", f"{name}/{name}_pretrained_dataset.pkl")
    ]  # fmt: skip
    path = next((path for path in (npz, *pickles, npy) if path.is_file() or (path in pickles and there(path))), None)
    if path is None:
        raise FileNotFoundError(
            f"{directory} has none of {npz.name} (X_seen, y_seen, X_unseen, y_unseen; or X, y), {name}.pkl (X, Y), {name}_pretrained_dataset.pkl (X, y), whole or in pieces .part1, .part2, ..., and {name}/feature.npy with label.npy. They hold {SOURCES[name]}."
        )
    try:
        if path in pickles:
            found = _named(read_pickle(path))
        elif path == npy:
            found = {
                "X": np.load(path, allow_pickle=False),
                "y": np.load(path.parent / "label.npy", allow_pickle=False),
            }
        else:
            with np.load(path, allow_pickle=False) as archive:
                found = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        if isinstance(error, PairDataError):
            raise
        raise PairDataError(str(path), "plain arrays", f"{error}", "Save them with np.savez.") from error
    if "X_seen" not in found and (found.get("X") is None or found.get("y") is None):
        raise PairDataError(str(path), "X and y", f"{', '.join(found)}", "Save the arrays under these names.")
    return path, found


def _named(found: Any) -> dict[str, Any]:
    """X and y of a dict with X and Y (the authors' files) or of a tuple of the two (SpherePair's)."""
    if isinstance(found, tuple) and len(found) == 2:
        return {"X": found[0], "y": found[1]}
    found = {str(k): v for k, v in found.items()} if isinstance(found, dict) else {}
    return {"X": found.get("X"), "y": found.get("Y", found.get("y"))}


def checked_rows(
    path: Path, X: Any, y: Any, n: int, name: str, suffix: str = "", n_clusters: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features (n, d) float32 and classes (n,) int64, or an error that says what the file must hold."""
    X, y = np.asarray(X), np.asarray(y)
    if X.ndim != 2 or len(X) != n or y.shape != (n,):
        expected = f"X{suffix} ({n}, d) and y{suffix} ({n},)"
        raise PairDataError(str(path), expected, f"shapes {X.shape} and {y.shape}", f"The paper has {SOURCES[name]}.")
    if X.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
        raise PairDataError(
            str(path), f"numbers in X{suffix} and y{suffix}", f"{X.dtype} and {y.dtype}", "Save them as numbers."
        )
    if n_clusters is not None and len(np.unique(y)) != n_clusters:
        raise PairDataError(
            str(path),
            f"{n_clusters} classes in y{suffix}",
            f"{len(np.unique(y))}",
            "Shuffle the rows before you split.",
        )
    return X.astype(np.float32), y.astype(np.int64)
