"""A run directory: the model, its configuration, the pairs, and where the features came from."""

import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Floats
from pdcc.data.columns import column_names
from pdcc.data.io import read_features
from pdcc.data.pairs import PairData
from pdcc.errors import ArtifactError
from pdcc.storage.files import file_hash, load_state, read_json, save_state, write_atomic
from pdcc.storage.model import BEGUN, DESCRIPTION, FEATURES, PAIRS, load_run, save_run
from pdcc.validation import check_features

CHECKPOINTS = "checkpoints"
# What users call what a run remembers.
WORDS = {"features_sha256": "the features file", "pairs_sha256": "the pairs file", "random_state": "the seed"}


@dataclass(frozen=True)
class Source:
    """Where a run's data came from: paths and SHA-256 of the two files."""

    features: str
    features_sha256: str
    pairs: str
    pairs_sha256: str
    id_column: str | None

    @classmethod
    def of(cls, features: Path, pairs: Path, id_column: str | None) -> "Source":
        """Look at the files now."""
        return cls(str(features.resolve()), file_hash(features), str(pairs.resolve()), file_hash(pairs), id_column)


def begin(run: Path, source: Source, params: dict[str, Any], *, resume: bool, overwrite: bool) -> bool:
    """Claim the directory for a fit. True: there is work to do; False: a resumed run had already finished."""
    plan = {"source": vars(source), "params": params}
    if run.exists() and not run.is_dir():
        raise ArtifactError(f"{run}: expected a directory for the run, found a file. Choose another one.")
    finished, begun = (run / DESCRIPTION).exists(), (run / BEGUN).exists()
    if overwrite and (finished or begun):
        for old in [run / DESCRIPTION, run / BEGUN, run / PAIRS, *run.glob("model-*.safetensors")]:
            old.unlink(missing_ok=True)
        shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
        finished = begun = False
    if (finished or begun) and not resume:
        what = "a finished run" if finished else "an interrupted run"
        go_on = "Replace" if finished else "Go on with --resume, replace"
        raise ArtifactError(f"{run}: already holds {what}. {go_on} it with --overwrite, or choose another directory.")
    if finished and not begun:
        raise ArtifactError(
            f"{run}: holds a run that was not made by this command. Choose another directory, or replace it with --overwrite."
        )
    if begun:
        earlier = read_json(run / BEGUN)
        known = {part: earlier[part] if isinstance(earlier.get(part), dict) else {} for part in plan}
        changed = [k for part in plan for k in plan[part] if _relevant(k) and known[part].get(k) != plan[part][k]]
        if changed:
            raise ArtifactError(
                f"{run}: cannot resume, since {', '.join(WORDS.get(k, k) for k in changed)} changed since the run began. Use the same data and options, or --overwrite."
            )
        return not finished
    if run.is_dir() and any(run.iterdir()):
        raise ArtifactError(f"{run}: expected an empty directory or a pdcc run, found other files. Choose another one.")
    write_atomic(run / BEGUN, json.dumps(plan, indent=1).encode())
    return True


def _relevant(name: str) -> bool:
    # A moved file with the same content is the same data.
    return name not in ("features", "pairs", "progress")


def finish(
    run: Path, tensors: dict[str, Tensor], description: dict[str, Any], data: PairData, source: Source | str
) -> None:
    """Write a described estimator and its pairs and drop the checkpoints; from here on the run counts as finished."""
    parts = {"i": torch.as_tensor(data.i), "j": torch.as_tensor(data.j), "similar": torch.as_tensor(data.similar)}
    if data.annotator is not None:
        parts["annotator"] = torch.as_tensor(data.annotator)
    names = [str(name) for name in data.annotator_names]
    save_state(run / PAIRS, parts, {"annotator_names": names})
    extra = {"source": source if isinstance(source, str) else vars(source), "answers_sha256": file_hash(run / PAIRS)}
    save_run(run, tensors, description, extra=extra)
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)


def keep_features(run: Path, X: Floats) -> None:
    """Put the features into a run whose data came from no file."""
    file = io.BytesIO()
    np.save(file, X, allow_pickle=False)
    write_atomic(run / FEATURES, file.getvalue())


def read_data(run: Path, features: Path | None = None) -> PairData:
    """The data a finished run was fitted to: its own pairs, and the features from where they were (or ``features``).

    The features' hash must be the one recorded, where one was: other numbers would be diagnosed as if they had been fitted.
    """
    body = load_run(run)[1]
    source = body.get("source")
    if not (run / PAIRS).is_file() or file_hash(run / PAIRS) != body.get("answers_sha256"):
        raise ArtifactError(
            f"{run / PAIRS}: not the answers this run was fitted to. They were altered or damaged; restore them or fit again."
        )
    own = run / FEATURES
    if isinstance(source, dict):
        path = Path(str(source.get("features"))) if features is None else features
        id_column, digest = source.get("id_column"), source.get("features_sha256")
    elif own.is_file() and features is None:
        path, id_column, digest = own, None, file_hash(own)
    elif features is not None:
        path, id_column, digest = features, None, file_hash(features)
    else:
        raise ArtifactError(f"{run}: does not say where its features are. Name them with --features.")
    if not path.is_file():
        raise ArtifactError(f"{path}: the run's features are no longer there. Say where they are now with --features.")
    if file_hash(path) != digest:
        raise ArtifactError(
            f"{path}: not the features this run was fitted to (their content differs). Name the right file with --features."
        )
    X, ids = read_features(path, id_column=id_column)
    stored, meta = load_state(run / PAIRS)
    # As they were fitted, codes of annotators included: the held-out annotators are drawn by their codes.
    return PairData(
        features=check_features(X),
        i=stored["i"].numpy(),
        j=stored["j"].numpy(),
        similar=stored["similar"].numpy(),
        annotator=stored["annotator"].numpy() if "annotator" in stored else None,
        annotator_names=tuple(meta["annotator_names"]),
        item_ids=ids,
        feature_names=column_names(X),
    )
