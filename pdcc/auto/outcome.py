"""What came of training: a look at it without labels, and all of it as one object."""

import numpy as np

from pdcc.arrays import Ints
from pdcc.auto.large import as_rows
from pdcc.auto.mixed import cut_classes, mixed_clusters
from pdcc.auto.signals import constant_nll, partition_nll, said_similar, standard_error
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler
from pdcc.data.splits import Split
from pdcc.fitted import FitReport, Fitted, Usefulness
from pdcc.inference import FitStatus, memberships, point_agreement
from pdcc.inference.rows import Items
from pdcc.training import OwnParts, TrainConfig, Trial, tensors


def look(
    trial: Trial,
    x: Items,
    plain: Ints | None,
    shown: PairData,
    held: PairData | None,
    seed: int,
    fell_back: str | None = None,
) -> Usefulness:
    """Held-out nats beside those of one rate and of K-means (``plain``, (N,), if known); cluster sizes; what is wrong, in sentences."""
    F = memberships(trial.model, x).cpu().numpy()
    labels = F.argmax(axis=1)
    sizes = np.bincount(labels, minlength=F.shape[1])
    together = labels[shown.i] == labels[shown.j]
    within, across = said_similar(together, shown)
    trouble = []
    nll = constant = partition = None
    if not np.isfinite(F).all():
        trouble.append("The memberships are not finite.")
    if held is not None and trial.nll is not None:
        rate = constant_nll(shown, held)
        nll, constant = float(trial.nll.mean()), float(rate.mean())
        if plain is not None:
            partition = float(partition_nll(plain, shown, held).mean())
        worse = trial.nll - rate
        if not worse.mean() <= standard_error(worse, None):
            trouble.append(
                f"The fit predicts held-out answers worse ({nll:.3f} nats per answer) than one rate for all pairs ({constant:.3f})."
            )
    if (sizes == 0).any():
        trouble.append(f"{int((sizes == 0).sum())} of {len(sizes)} clusters are empty.")
    mixed = mixed_clusters(as_rows(x), labels, shown, F.shape[1], seed)
    cut = cut_classes(labels, shown.subset(shown.at_random()), F.shape[1])
    doubts = tuple(str(one) for one in (*mixed, *cut))
    return Usefulness(
        nll, constant, partition, tuple(int(n) for n in sizes), within, across, tuple(trouble), fell_back, doubts
    )


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
        status=FitStatus.NOT_USEFUL if useful.trouble else trial.result.status,
        message=" ".join([*useful.trouble, trial.result.message]),
        history=trial.result.history,
        report=report,
        own=own,
    )
