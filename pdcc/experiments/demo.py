"""What `pdcc demo` shows: three methods on digits with noisy annotators, a diagnosis, and a report."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pdcc import datasets, metrics
from pdcc.annotators import draw_pairs, mixed_annotators
from pdcc.baselines.kmeans import kmeans
from pdcc.data.pairs import PairData
from pdcc.errors import ArtifactError
from pdcc.estimator import VanillaDCC, VolMaxDCC
from pdcc.identifiability.diagnose import diagnose
from pdcc.report.collect import gather
from pdcc.report.content import Looks
from pdcc.report.page import render
from pdcc.storage import run as runs
from pdcc.storage.files import write_atomic
from pdcc.storage.model import DESCRIPTION, check_place

N_PAIRS = 3000
N_ANNOTATORS = 8
SOURCE = "pdcc demo"
REPORT = "report.html"


def _is_demo(run: Path) -> bool:
    try:
        return bool(json.loads((run / DESCRIPTION).read_text(encoding="utf-8"))["source"] == SOURCE)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def run_demo(output: Path, seed: int) -> Iterator[str]:
    """Lines to print, as they become known; leaves the fitted VolMaxDCC and its report in the directory ``output``."""
    check_place(output)
    if (output / DESCRIPTION).exists() and not _is_demo(output):
        raise ArtifactError(
            f"{output}: expected an empty directory or an earlier demo, found something else. Choose another one with -o."
        )
    data = datasets.digits(seed=seed)
    rng = np.random.default_rng(seed)
    # Eight annotators, each of whom takes a quarter of the digits for others, in ways of their own.
    wrong = rng.dirichlet(np.full(10, 0.3), size=(N_ANNOTATORS, 10)).transpose(0, 2, 1)
    confusions = 0.75 * np.eye(10) + 0.25 * wrong
    pairs = draw_pairs(len(data.X), N_PAIRS, rng)
    answers = mixed_annotators(np.eye(10)[data.y], pairs, confusions, rng)
    yield f"{len(data.X)} seen and {len(data.X_unseen)} unseen digits, {N_PAIRS} pairs answered by {N_ANNOTATORS} annotators, {100 * answers.flip_rate:.1f} % of the answers wrong."

    every = np.concatenate([data.X, data.X_unseen])
    rows = np.arange(len(data.X))
    given = data.X, answers.pairs, answers.similar, answers.annotators
    checked = PairData.from_arrays(*given)
    vanilla, volmax = VanillaDCC(10, random_state=seed), VolMaxDCC(10, random_state=seed)
    prepared = volmax.prepare(checked)  # scalings and starts, the same for both
    yield "Fitting VanillaDCC: no confusion, no volume."
    vanilla.fit_data(checked, prepared=prepared)
    yield "Fitting VolMaxDCC: whatever predicts answers about new items best."
    volmax.fit_data(checked, prepared=prepared)
    clusters = kmeans(volmax.fitted_.scaler(every), 10, tries=10, seed=seed, rows=rows)  # under the same scaling
    found = {"K-means (no answers)": clusters, "VanillaDCC": vanilla.predict(every), "VolMaxDCC": volmax.predict(every)}

    yield f"{'':22}{'ACC':^15}{'NMI':^15}{'ARI':^15}"
    yield f"{'':22}" + f"{'seen':>7}{'unseen':>8}" * 3
    for name, labels in found.items():
        cells = ""
        for score in (metrics.acc, metrics.nmi, metrics.ari):
            cells += f"{score(data.y, labels[: len(rows)]):7.3f}{score(data.y_unseen, labels[len(rows) :]):8.3f}"
        yield f"{name:22}{cells}"
    yield str(volmax.report_)
    runs.finish(output, *volmax.described(), checked, SOURCE, X=data.X)
    yield ""
    yield "What can be trusted, without any label? (a quick look; narrower: pdcc diagnose)"
    trust = diagnose(volmax.fitted_, checked, quick=True, work=5.0, random_state=seed)
    yield str(trust)
    yield ""
    pixels = (255 - 255 / 16 * data.X.reshape(-1, 8, 8)).clip(0, 255).astype(np.uint8)
    looks = Looks(images=dict(enumerate(pixels)))
    write_atomic(output / REPORT, render(gather(output, diagnosis=trust, looks=looks, compute=False)).encode())
    yield f"A page about all of it, for a browser: {output / REPORT}"
    yield f"The fitted run is in {output}. Next: pdcc diagnose {output}, or from Python: pdcc.VolMaxDCC.load({str(output)!r})"
