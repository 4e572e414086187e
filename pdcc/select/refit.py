"""Go on from an earlier fit with more answers: its weights, confusion and settings are the start, and its cluster numbers stay."""

import logging
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float64, Ints
from pdcc.data.names import renumber
from pdcc.data.pairs import PairData
from pdcc.data.splits import HeldOut, extended
from pdcc.errors import PairDataError
from pdcc.fitted import FitReport, Fitted
from pdcc.inference import memberships, point_values
from pdcc.inference.guides import MapGuide
from pdcc.inference.rows import Items
from pdcc.metrics import align
from pdcc.models import AnnotationModel, Membership, plain_weights
from pdcc.models.modules import seeded
from pdcc.select.outcome import as_fitted, look
from pdcc.training import TrainConfig, Trainer, Trial, first_net, make_net, tensors

logger = logging.getLogger(__name__)

# Memberships of the same item by the same net differ by less, on whatever machine they are computed.
SAME_ITEM = 1e-3
# So many kinds of moves are listed one by one.
MOST_MOVES = 3


@dataclass(frozen=True)
class Changes:
    """What more answers changed.

    n_before, n_added: answers. n_items, n_new_items: how many there are, and are new. before, after: labels (N,) by the earlier fit and
    by this one, clusters matched. held_out_before, held_out_after: nats per held-out answer, or None where there is none.
    renumbered: the clusters of a network of the user's changed places, and could not be put back.
    """

    n_before: int
    n_added: int
    n_items: int
    n_new_items: int
    before: Ints
    after: Ints
    held_out_before: float | None
    held_out_after: float | None
    renumbered: bool = False

    @property
    def moved(self) -> Ints:
        """Row numbers of the items whose label changed."""
        return np.flatnonzero(self.before != self.after)

    def __str__(self) -> str:
        new = f", {self.n_new_items:,} of them new" if self.n_new_items else ""
        lines = [f"{self.n_added:,} answers were added to {self.n_before:,}, about {self.n_items:,} items{new}."]
        ways = Counter(zip(self.before[self.moved].tolist(), self.after[self.moved].tolist(), strict=True))
        listed = ", ".join(f"{n:,} from {a} to {b}" for (a, b), n in ways.most_common(MOST_MOVES))
        rest = len(self.moved) - sum(n for _, n in ways.most_common(MOST_MOVES))
        where = f": {listed}" + (f", {rest:,} otherwise" if rest else "") if ways else ""
        lines.append(f"{len(self.moved):,} labels moved{where}.")
        if self.held_out_before is not None and self.held_out_after is not None:
            lines.append(
                f"Held-out answers: {self.held_out_before:.3f} nats each by the earlier fit, {self.held_out_after:.3f} now."
            )
        if self.renumbered:
            lines.append("Clusters changed places: their numbers are not those of the earlier fit.")
        return "\n".join(lines)


def check_earlier(earlier: Fitted, memberships: Float64, data: PairData) -> None:
    """Raise ``PairDataError`` unless the first of these items and answers are those of the earlier fit; memberships: (N, K), as it was."""
    n, found = len(memberships), earlier.memberships(data.features)
    same = np.abs(found[:n] - memberships).max(axis=1) < SAME_ITEM if len(found) >= n else np.zeros(1, dtype=bool)
    if len(found) < n or not same.all():
        what = f"{len(found)}" if len(found) < n else "another one"
        row = None if len(found) < n else int(np.flatnonzero(~same)[0])
        raise PairDataError(
            "X", f"the {n} items of the earlier fit first, in their order", what, "Put new items after them.", row
        )
    m = len(earlier.split.held)
    if len(data) < m or data.subset(np.arange(m)).plain().fingerprint() != earlier.answers:
        raise PairDataError(
            "pairs",
            f"the {m} answers of the earlier fit first, in their order",
            f"{len(data)} answers that do not begin so",
            "Put new answers after them, or fit again.",
        )
    if len(data) == m:
        raise PairDataError("pairs", f"more answers than the {m} of the earlier fit", "no more", "Add some.")


def go_on(
    earlier: Fitted,
    data: PairData,
    config: TrainConfig,
    *,
    n_items_before: int,
    progress: bool = False,
    checkpoints: Path | None = None,
) -> tuple[Fitted, Changes]:
    """Train the earlier fit on, on ``data``, whose first answers are its own; of ``config`` all that the earlier fit chose is ignored.

    The net is trained once from the earlier weights and once from the earlier labels, each to the state that predicts held-out
    answers best; the second is kept unless the first predicts them better by a standard error.
    """
    was, spec = earlier.config, earlier.report.chosen
    config = replace(config.settled(spec, was.scale), n_clusters=was.n_clusters, hidden=was.hidden, dropout=was.dropout)
    split = extended(earlier.split, data, config.validation_fraction, config.seed)
    shown, held = split.train(data), split.test(data)
    x, F = earlier.scaled(data.features), earlier.memberships(data.features)
    with seeded():
        net = make_net(config, tuple(x.shape[1:]), earlier.own).to(x.device)
    net.load_state_dict(earlier.model.membership.state_dict())
    judged = None if held is None else tensors(held, x)
    known = len(data.annotator_names)
    trainer = Trainer(config, tensors(shown, x), judged, known, earlier.own, progress, checkpoints)

    def begin(model: AnnotationModel, guide: MapGuide) -> None:
        take_over(earlier, model, guide, data.annotator_names)

    partition = _partition(earlier, F)
    trial = trainer.train(spec, net, partition, config.seed, "going on", begin=begin)
    if judged is not None:
        # Weights that have memorised some answers are no good place to learn others from: their labels alone are a better one,
        # unless held-out answers say otherwise by a standard error.
        labels = torch.as_tensor(F.argmax(axis=1)).to(x.device)
        fresh = first_net(config, x, labels, config.seed, earlier.own)
        fresh_trial = trainer.train(spec, fresh, partition, config.seed, "going on from labels", begin=begin)
        lost = _nll(fresh_trial) - _nll(trial)
        if lost.mean() < lost.std() / np.sqrt(len(lost)):
            trial = replace(fresh_trial, result=replace(fresh_trial.result, start_held_out=trial.result.start_held_out))
    order = align(F, _memberships(trial, x))
    kept = bool((order == np.arange(len(order))).all()) or _put_back(trial, order)
    useful = look(trial, x, shown, held)
    report = FitReport(
        held_out=split.by,
        n_held_out=int(split.held.sum()),
        held_out_annotators=tuple(held.present()) if held is not None and split.by is HeldOut.ANNOTATORS else (),
        n_compared=earlier.report.n_compared,
        scale=earlier.report.scale,
        start=earlier.report.start,
        own_answers=earlier.report.own_answers,
        epochs=earlier.report.epochs + trial.result.best_epoch + 1,
        compared=earlier.report.compared,
        chosen=spec,
        reason="as the earlier fit chose",
        useful=useful,
    )
    for line in useful.failures:
        logger.warning(line)
    fitted = as_fitted(trial, x, earlier.scaler, data, split, config, earlier.own, report)
    now = _memberships(trial, x)
    changes = Changes(
        n_before=len(earlier.split.held),
        n_added=len(data) - len(earlier.split.held),
        n_items=data.n_items,
        n_new_items=data.n_items - n_items_before,
        before=F.argmax(axis=1),
        after=(now if kept else now[:, order]).argmax(axis=1),
        held_out_before=None if held is None else trial.result.start_held_out,
        held_out_after=useful.held_out,
        renumbered=not kept,
    )
    return fitted, changes


def _nll(trial: Trial) -> Float64:
    """Negative log-likelihoods of the held-out answers, (H,)."""
    return np.zeros(0) if trial.nll is None else trial.nll


def take_over(earlier: Fitted, model: AnnotationModel, guide: MapGuide, annotators: tuple[object, ...]) -> None:
    """Put the confusion of an earlier fit into a new model and its guide; annotators who are new begin with the shared one."""
    model.confusion.load_state_dict(earlier.model.confusion.state_dict(), strict=False)
    values = point_values(earlier.guide)
    now = point_values(guide)
    if "annotator_shift" in now:
        old = values.get("annotator_shift", now["annotator_shift"][:0])
        shifts = torch.cat([old, torch.zeros_like(now["annotator_shift"][:1])])
        place = renumber(np.arange(len(annotators)), annotators, earlier.annotators[: len(old)], len(annotators))
        values["annotator_shift"] = shifts[torch.as_tensor(place, device=shifts.device)]
    _set_sites(guide, {site: value for site, value in values.items() if site in now})


def _set_sites(guide: MapGuide, values: dict[str, Tensor]) -> None:
    with plain_weights(), torch.no_grad():
        for site, value in values.items():
            setattr(guide, site, value)


def _partition(earlier: Fitted, F: Float64) -> Tensor | None:
    """The labels (N,) that count as an annotator, new items by the earlier fit's memberships F (N, K); None where none do."""
    labels: Tensor = earlier.model.partition
    if not len(labels):
        return None
    new = torch.as_tensor(F[len(labels) :].argmax(axis=1)).to(labels)
    return torch.cat([labels, new])


def _memberships(trial: Trial, x: Items) -> Float64:
    if not isinstance(x, Tensor):
        return np.asarray(memberships(trial.model, x).double().cpu().numpy())
    with torch.no_grad():
        F: Float64 = trial.model.membership.eval()(x).double().cpu().numpy()
    return F


def _put_back(trial: Trial, order: Ints) -> bool:
    """Take the clusters of a trial in another order, all of its numbers alike; False where parts of the user's do not allow it."""
    model, guide = trial.model, trial.guide
    net, confusion = model.membership, model.confusion
    if type(net) is not Membership or not type(confusion).__module__.startswith("pdcc."):
        return False
    index = torch.as_tensor(order).to(next(net.parameters()).device)
    last = list(net.layers.children())[-1]
    # Sites first: a guide's values may lie in the same memory as the matrix that they begin with.
    sites = point_values(guide)
    values = {site: _reordered(value, index) for site, value in sites.items() if value.ndim >= 2}
    if "partition_columns" in sites:  # the partition's labels are observed, and keep their numbers
        values["partition_columns"] = sites["partition_columns"][index].clone()
    with torch.no_grad():
        for tensor in last.parameters():  # its weights and biases, a row each for every cluster
            tensor.copy_(tensor[index].clone())
        for matrix in (*confusion.parameters(), *confusion.buffers()):
            if matrix.ndim >= 2:
                matrix.copy_(_reordered(matrix, index))
    _set_sites(guide, values)
    return True


def _reordered(matrix: Tensor, index: Tensor) -> Tensor:
    """The last two dimensions of (..., K, K), both of which count clusters, in another order."""
    return matrix.index_select(-2, index).index_select(-1, index).clone()
