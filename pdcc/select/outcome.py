"""A look at a trained fit without labels, and all of it as one object."""

import numpy as np

from pdcc.data.degrees import counts, degree, nats, weighed
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler
from pdcc.data.splits import Split
from pdcc.fitted import FitReport, Fitted, Usefulness
from pdcc.inference import FitStatus, memberships, point_agreement
from pdcc.inference.rows import Items
from pdcc.select.score import similar_rates, standard_error
from pdcc.training import OwnParts, TrainConfig, Trial, tensors


def look(trial: Trial, x: Items, shown: PairData, held: PairData | None) -> Usefulness:
    """Held-out nats beside those of one rate, cluster sizes, and what is wrong, in sentences."""
    F = memberships(trial.model, x).cpu().numpy()
    labels = F.argmax(axis=1)
    sizes = np.bincount(labels, minlength=F.shape[1])
    within, across = similar_rates(labels[shown.i] == labels[shown.j], shown)
    failures = []
    nll = constant = None
    if not np.isfinite(F).all():
        failures.append("The memberships are not finite.")
    if held is not None and trial.nll is not None:
        w, y = counts(shown), degree(shown)
        rate = weighed(nats(np.full(len(held), ((w * y).sum() + 0.5) / (w.sum() + 1)), held), held)
        nll, constant = float(trial.nll.mean()), float(rate.mean())
        worse = trial.nll - rate
        if not worse.mean() <= standard_error(worse, held):
            failures.append(
                f"The fit predicts held-out answers worse ({nll:.3f} nats per answer) than one rate for all pairs "
                f"({constant:.3f}): ask more pairs, or fewer clusters."
            )
    if (sizes == 0).any():
        failures.append(f"{int((sizes == 0).sum())} of {len(sizes)} clusters are empty: ask for fewer clusters.")
    return Usefulness(nll, constant, tuple(int(n) for n in sizes), within, across, tuple(failures))


def as_fitted(
    trial: Trial,
    x: Items,
    scaler: Scaler,
    data: PairData,
    split: Split,
    config: TrainConfig,
    own: OwnParts,
    report: FitReport,
) -> Fitted:
    """All that later steps need to know of a fit to ``data``, with scaled features x (N, p); config: nothing in it is left open."""
    useful = report.useful
    return Fitted(
        model=trial.model.eval(),
        guide=trial.guide,
        agreement=point_agreement(trial.model, trial.guide, tensors(split.train(data), x)),
        scaler=scaler,
        config=config,
        split=split,
        answers=data.fingerprint(),
        annotators=data.annotator_names,
        item_shape=tuple(data.features.shape[1:]),
        status=FitStatus.NOT_USEFUL if useful.failures else trial.result.status,
        message=" ".join([*useful.failures, trial.result.message]),
        history=trial.result.history,
        report=report,
        own=own,
    )
