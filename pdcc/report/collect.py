"""From a run, or a fitted estimator, to everything its report shows."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pdcc.arrays import Ints
from pdcc.asking.crossfit import plain_answers
from pdcc.base import PairEstimator
from pdcc.criticism.calibration import Calibration, run_calibration
from pdcc.data.pairs import PairData
from pdcc.errors import ArtifactError
from pdcc.estimator import VanillaDCC, VolMaxDCC
from pdcc.identifiability.diagnose import Diagnosis, diagnose
from pdcc.report.content import Facts, Looks, Part, ReportContent
from pdcc.report.extras import Extras, compute_extras, names_of
from pdcc.report.looks import read_looks
from pdcc.storage import run as runs
from pdcc.storage.files import as_path
from pdcc.storage.model import read_description
from pdcc.storage.provenance import package_versions

ESTIMATORS: dict[str, type[PairEstimator]] = {"VolMaxDCC": VolMaxDCC, "VanillaDCC": VanillaDCC}
# A map of more items is a blot, and a large one: so many are drawn, and of every cluster at least so many of them.
MOST_DRAWN, FEWEST_DRAWN = 1500, 15
# Fewer held-out answers say nothing about calibration.
FEWEST_HELD_OUT = 30
# Parameters that say nothing about the result.
SILENT = ("progress", "device", "network", "random_state")
LEFT_OUT = "It was left out of this report: it takes new fits."


def gather(run: str | Path, *, features: str | Path | None = None, **options: Any) -> ReportContent:
    """Everything the report of a finished run shows. features: where they are now, if they moved; options: those of ``gather_fit``."""
    place = as_path(run)
    body = read_description(place)
    if body.get("estimator") not in ESTIMATORS:
        raise ArtifactError(
            f"{place}: expected a fitted {' or '.join(ESTIMATORS)}, found {body.get('estimator')!r}. Choose another run."
        )
    estimator = ESTIMATORS[body["estimator"]].load(place)
    data = runs.read_data(place, None if features is None else as_path(features))
    id_column = runs.features_of(place, body)[1]
    return gather_fit(estimator, data, facts=_facts(place, body), id_column=id_column, **options)


def gather_fit(
    estimator: PairEstimator,
    data: PairData,
    *,
    facts: Facts | None = None,
    items: str | Path | None = None,
    images: str | Path | None = None,
    id_column: str | None = None,
    looks: Looks | None = None,
    diagnosis: Diagnosis | None = None,
    extras: Extras | None = None,
    compute: bool = True,
    quick: bool = False,
    random_state: int = 0,
    progress: bool = False,
) -> ReportContent:
    """Everything the report of a fitted estimator and the data it was fitted to shows.

    Args:
        facts: where they came from. items: a table of what items say, images: a folder of what they look like (see
            ``pdcc.report.looks.read_looks``), id_column: the column of that table that names them, if not item; looks: both, where they are in memory.
        diagnosis, extras: where they are known already. compute: whether to compute what is not given; it takes new fits.
        quick: a quicker diagnosis, with wider intervals.
    """
    names = tuple(range(data.n_items)) if data.item_ids is None else tuple(data.item_ids.tolist())
    # Bad files are refused before anything long is computed.
    if looks is None:
        files = [None if path is None else as_path(path) for path in (items, images)]
        looks = read_looks(names, *files, id_column=id_column)
    absent: dict[Part, str] = {}
    if diagnosis is None and compute:
        diagnosis = diagnose(estimator.fitted_, data, quick=quick, random_state=random_state, progress=progress)
    if diagnosis is None:
        absent[Part.DIAGNOSIS] = LEFT_OUT
    if extras is None:
        extras = (
            compute_extras(estimator, data, random_state=random_state, progress=progress)
            if compute
            else Extras.nothing(LEFT_OUT)
        )
    absent |= extras.absent
    calibration = _held_out(estimator, data)
    if calibration is None:
        absent[Part.CALIBRATION] = f"Fewer than {FEWEST_HELD_OUT} answers were held out from this fit."
    if not estimator.history_:
        absent[Part.HISTORY] = "No epoch of training was kept."
    labels = estimator.labels_
    rows = draw(labels, random_state)
    fitted = estimator.fitted_
    return ReportContent(
        facts=_of_fit(estimator) if facts is None else facts,
        names=names,
        memberships=estimator.memberships_,
        labels=labels,
        sample=rows,
        sampled=fitted.scaled(data.features[rows]).flatten(1).cpu().numpy(),
        n_answers=len(data),
        n_annotators=data.n_annotators,
        agreement=estimator.agreement_,
        free=fitted.free_confusion,
        fit=estimator.report_,
        message=estimator.message_,
        history=tuple(estimator.history_),
        diagnosis=diagnosis,
        calibration=calibration,
        annotators=extras.annotators,
        doubtful=extras.doubtful,
        suggested=extras.suggested,
        stopping=extras.stopping,
        looks=looks,
        absent=absent,
    )


def draw(labels: Ints, seed: int) -> Ints:
    """Row numbers of at most about ``MOST_DRAWN`` items, at random, of every cluster its share and at least a few."""
    if len(labels) <= MOST_DRAWN:
        return np.arange(len(labels))
    rng, kept = np.random.default_rng(seed), []
    for k in np.unique(labels):
        mine = np.flatnonzero(labels == k)
        n = max(FEWEST_DRAWN, round(MOST_DRAWN * len(mine) / len(labels)))
        kept.append(rng.permutation(mine)[:n])
    return np.sort(np.concatenate(kept))


def _held_out(estimator: PairEstimator, data: PairData) -> Calibration | None:
    held = estimator.fitted_.split.test(data)
    held = None if held is None else held.subset(plain_answers(held))
    if held is None or len(held) < FEWEST_HELD_OUT or held.similar.all() or not held.similar.any():
        return None
    p = estimator.predict_pairs(data.given(), np.column_stack([held.i, held.j]), names_of(held))
    return run_calibration(p, held.similar)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _of_fit(estimator: PairEstimator) -> Facts:
    options = {k: v for k, v in estimator.get_params().items() if k not in SILENT}
    return Facts(
        run="a fit in memory",
        written=_today(),
        estimator=type(estimator).__name__,
        seed=estimator.fitted_.config.seed,
        versions=package_versions(),
        hashes={"answers": estimator.fitted_.answers},
        options=options,
    )


def _facts(place: Path, body: dict[str, Any]) -> Facts:
    """What run.json says. Of files only their names are shown: a report is passed on, and directories tell of people."""
    source = body.get("source")
    hashes = {}
    if isinstance(source, dict):
        for kind in ("features", "pairs"):
            hashes[f"{kind}: {Path(str(source.get(kind))).name}"] = str(source.get(f"{kind}_sha256"))
    files = body.get("files")
    for kind, file in files.items() if isinstance(files, dict) else ():
        hashes[f"kept in the run: {kind}"] = str(file.get("sha256"))
    params = body.get("params")
    options = {k: v for k, v in params.items() if k not in SILENT} if isinstance(params, dict) else {}
    return Facts(
        run=place.resolve().name,
        written=_today(),
        estimator=str(body["estimator"]),
        seed=None if not isinstance(params, dict) else params.get("random_state"),
        versions={str(k): str(v) for k, v in dict(body.get("versions", {})).items()},
        hashes=hashes,
        options=options,
    )
