"""A run directory: the model, its configuration, the pairs, and where the features came from."""

import io
import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Floats
from pdcc.data.columns import column_names
from pdcc.data.io import read_features
from pdcc.data.pairs import PairData, plain_name
from pdcc.data.reading import ReadAnswers
from pdcc.errors import ArtifactError
from pdcc.storage import model
from pdcc.storage.files import RUN_FILE, file_hash, load_state, pack_state, read_json, write_atomic
from pdcc.storage.model import BEGUN, DESCRIPTION, UNFINISHED, check_place, file_of, read_description, save_run, tidy
from pdcc.validation import check_features

CHECKPOINTS = f"{UNFINISHED}/{model.CHECKPOINTS}"
PAIRS, FEATURES, READING = "pairs.safetensors", "features.npy", "reading.json"
# What users call what a run remembers.
WORDS = {
    "features_sha256": "the features file", "pairs_sha256": "the pairs file", "random_state": "the seed",
    "reading": "how the pairs file is read", "earlier": "the earlier run or the added answers",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where a run's data came from: paths and SHA-256 of the two files. reading: options of ``read_answers`` that are not the usual ones, or None.

    earlier: of a run that goes on from another, whose answers it has too, the SHA-256 of that one and of further files of answers.
    """

    features: str
    features_sha256: str
    pairs: str
    pairs_sha256: str
    id_column: str | None
    reading: dict[str, Any] | None = None
    earlier: dict[str, Any] | None = None

    @classmethod
    def of(cls, features: Path, pairs: Path, id_column: str | None, reading: dict[str, Any] | None = None) -> "Source":
        """Look at the files now."""
        return cls(
            features=str(features.resolve()),
            features_sha256=file_hash(features),
            pairs=str(pairs.resolve()),
            pairs_sha256=file_hash(pairs),
            id_column=id_column,
            reading=reading or None,
        )

    def going_on(self, description: dict[str, Any], more: list[Path]) -> "Source":
        """The same of a run that goes on from the one described, with further files of answers."""
        known = {"run_sha256": description["description_sha256"], "more_sha256": [file_hash(file) for file in more]}
        return replace(self, earlier=known)


def check_apart(run: Path, inputs: list[Path]) -> None:
    """Raise ``ValueError`` for input files that a new run in this directory would replace."""
    for file in inputs:
        if file.resolve().parent == run.resolve() and RUN_FILE.fullmatch(file.resolve().name):
            raise ValueError(
                f"{file}: expected data that stay, found a file of the run that is to be replaced. Copy it elsewhere first."
            )


def begin(run: Path, source: Source, options: dict[str, Any], *, resume: bool, overwrite: bool) -> bool:
    """Begin a fit in a directory that is ``claimed``. True: there is work to do; False: the run to resume had already finished.

    What is begun lives in a directory of its own, beside the finished run that it replaces in the end (``finish``).
    """
    plan = {"source": vars(source), "options": options}
    check_place(run)
    work = run / UNFINISHED
    finished, begun = (run / DESCRIPTION).exists(), (work / BEGUN).exists()
    if (finished or begun) and not (resume or overwrite):
        what = "a finished run" if finished else "an interrupted run"
        go_on = "Go on with --resume, replace" if begun else "Replace"
        raise ArtifactError(f"{run}: already holds {what}. {go_on} it with --overwrite, or choose another directory.")
    tidy(run)
    if resume and begun and overwrite:  # the same command again, after an overwrite was interrupted
        with suppress(ArtifactError):
            if not _changed(plan, read_json(work / BEGUN)):
                return True
    if not overwrite and (finished or begun):
        since_begun = _changed(plan, read_json(work / BEGUN)) if begun else list(plan)
        if begun and not since_begun and not _readable(run):
            return True
        since_finished = _changed(plan, read_description(run)) if finished else list(plan)
        if since_begun and since_finished:
            changed = since_begun if begun else since_finished
            raise ArtifactError(
                f"{run}: cannot resume, since {', '.join(WORDS.get(k, k) for k in changed)} changed since the run began. Use the same data and options, or --overwrite."
            )
        if not since_finished and not since_begun:
            shutil.rmtree(work, ignore_errors=True)
        return bool(since_finished)
    shutil.rmtree(work, ignore_errors=True)
    write_atomic(work / BEGUN, json.dumps(plan, indent=1).encode())
    return True


def _readable(run: Path) -> bool:
    try:
        read_description(run)
    except ArtifactError:
        return False
    return True


def _changed(plan: dict[str, Any], earlier: dict[str, Any]) -> list[str]:
    """What differs from an earlier plan, by name. A moved file with the same content is the same data."""
    known = {part: earlier[part] if isinstance(earlier.get(part), dict) else {} for part in plan}
    names = [(part, k) for part in plan for k in plan[part] if k not in ("features", "pairs", "progress")]
    return [k for part, k in names if known[part].get(k) != plan[part][k]]


def finish(
    run: Path,
    tensors: dict[str, Tensor],
    description: dict[str, Any],
    data: PairData,
    source: Source | str,
    options: dict[str, Any] | None = None,
    X: Floats | None = None,
    read: ReadAnswers | None = None,
) -> None:
    """Put a described estimator, its pairs, and features that came from no file (X) in place, and drop what was unfinished.

    read: how the answers were read; what it says of them, and those that it set aside, are kept too.
    """
    parts = {"i": torch.as_tensor(data.i), "j": torch.as_tensor(data.j), "similar": torch.as_tensor(data.similar)}
    more = {"annotator": data.annotator, "soft": data.soft, "weight": data.weight, "random": data.random}
    parts |= {name: torch.as_tensor(part) for name, part in more.items() if part is not None}
    names = [plain_name(name) for name in data.annotator_names]  # numbers stay numbers, as the fit knows them
    files = {PAIRS: pack_state(parts, {"annotator_names": names})}
    if X is not None:
        file = io.BytesIO()
        np.save(file, X, allow_pickle=False)
        files[FEATURES] = file.getvalue()
    if read is not None and (read.notes or len(read.unreadable)):
        aside = {name: getattr(read, name).astype(object).to_dict("records") for name in ("unsure", "unreadable")}
        told = {"format": read.format, "n_rows": read.n_rows, "notes": read.notes, **aside}
        files[READING] = json.dumps(told, indent=1, default=str).encode()
    extra = {"source": source if isinstance(source, str) else vars(source), "options": options}
    save_run(run, tensors, description, extra=extra, files=files)
    shutil.rmtree(run / UNFINISHED, ignore_errors=True)


def read_data(run: Path, features: Path | None = None, *, same: bool = True) -> PairData:
    """The data a finished run was fitted to: its own pairs, and the features from where they were (or ``features``).

    The features' hash must be the one recorded, where one was: other numbers would be diagnosed as if they had been fitted. With
    ``same=False`` it is for who calls to see that items are those of the run: there may be new ones.
    """
    body = read_description(run)
    answers = file_of(run, body, PAIRS)
    path, id_column, digest = features_of(run, body)
    path = path if features is None else features
    if same:
        check_features_file(path, digest)
    X, ids = read_features(path, id_column=id_column, beside=run)
    stored, meta = load_state(answers)
    optional = ("annotator", "soft", "weight", "random")
    more = {name: stored[name].numpy() if name in stored else None for name in optional}
    # As they were fitted, codes of annotators included: the held-out annotators are drawn by their codes.
    return PairData(
        features=check_features(X),
        i=stored["i"].numpy(),
        j=stored["j"].numpy(),
        similar=stored["similar"].numpy(),
        annotator=more["annotator"],
        soft=more["soft"],
        weight=more["weight"],
        random=more["random"],
        annotator_names=tuple(float(a["float"]) if isinstance(a, dict) else a for a in meta["annotator_names"]),
        item_ids=ids,
        feature_names=column_names(X),
    )


def check_features_file(path: Path, digest: str) -> None:
    """Raise ``ArtifactError`` unless ``path`` holds what the run with this hash of the features was fitted to."""
    if not path.is_file():
        raise ArtifactError(f"{path}: the run's features are no longer there. Say where they are now with --features.")
    if file_hash(path) != digest:
        raise ArtifactError(
            f"{path}: not the features this run was fitted to (their content differs). Name the right file with --features."
        )


def reading_of(run: Path) -> dict[str, Any] | None:
    """How the answers of a run were read: format, n_rows, notes, and the rows that were unsure or unreadable; None where nothing was said."""
    body = read_description(run)
    return read_json(file_of(run, body, READING)) if READING in body["files"] else None


def features_of(run: Path, body: dict[str, Any]) -> tuple[Path, str | None, str]:
    """Where the features of a run were when it was fitted, the column of their ids, and their hash."""
    source = body.get("source")
    if isinstance(source, dict):
        return Path(str(source.get("features"))), source.get("id_column"), str(source.get("features_sha256"))
    own = file_of(run, body, FEATURES)
    return own, None, file_hash(own)
