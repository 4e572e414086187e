"""What was fitted, fitted again to a part of the answers: the others can then judge it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from pdcc.arrays import Bools, Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.fitted import Fitted
from pdcc.inference.predict import memberships
from pdcc.inference.rows import Items
from pdcc.metrics import align
from pdcc.select.compare import start_labels
from pdcc.select.forms import confusion_start
from pdcc.together import Job, first_nets, train_all
from pdcc.training import Trainer, Trial, tensors
from pdcc.validation import LARGEST_SEED

# Keeps the seeds of these fits apart from those of the fit, its restarts and its refits.
AGAIN = 224_737


def seed_again(fitted: Fitted, seed: int) -> int:
    """The first seed of fits made again under ``seed``."""
    return (fitted.config.seed + AGAIN * (seed + 1)) % LARGEST_SEED


@dataclass(frozen=True)
class FoldFits:
    """V fits to a ``share`` of the answers each.

    memberships: (V, N, K), clusters numbered as in the fit. judged_by: (M,), which of the fits an answer judges, one that did not see it.
    """

    share: float
    memberships: Float64
    judged_by: Ints

    def among(self, which: Bools) -> "FoldFits":
        """The same fits, judged by some of the answers, a mask (M,)."""
        return replace(self, judged_by=self.judged_by[which])


def fit_again(
    fitted: Fitted,
    x: Items,
    parts: Sequence[PairData],
    seeds: Sequence[int],
    title: str,
    done: Callable[[int], object],
) -> list[Trial]:
    """Train what was chosen on each of these sets of answers alone, start and all, for as many epochs as the fit was.

    x: scaled features. done: called with the number of every few that are made.
    """
    config, form = fitted.config, fitted.report.chosen.confusion
    labels: list[Tensor | None] = [None] * len(parts)
    agreement: list[Tensor | None] = [None] * len(parts)
    if fitted.report.start is not None:
        for k, (answers, seed) in enumerate(zip(parts, seeds, strict=True)):
            made = start_labels(fitted, x, answers, seed)
            labels[k] = torch.as_tensor(made).to(x.device)
            agreement[k] = confusion_start(form, made, answers, config.n_clusters, x.device)
    nets = first_nets(config, x, labels, seeds, fitted.own)
    return train_all(
        [
            Job(
                Trainer(config, tensors(parts[k], x), None, len(fitted.annotators), fitted.own),
                fitted.report.chosen, nets[k], labels[k], seeds[k], title,
                agreement=agreement[k], exactly=fitted.report.epochs,
            )
            for k in range(len(parts))
        ],
        done,
    )  # fmt: skip


def fold_fits(
    fitted: Fitted, data: PairData, shares: tuple[float, ...], *, seed: int = 0, progress: bool = False
) -> list[FoldFits]:
    """For every share of the answers, fits to disjoint or complementary parts of that size.

    A share of (V - 1) / V makes V of them, each judged by the part it did not see; a half two, and less than a half two as well,
    each judged by a half of what neither saw and by what the other one saw. Several answers about one pair stay together.
    """
    known, x = fitted.known(data), fitted.scaled(data.features)
    reference = fitted.memberships(data.features)
    plans = [(share, *_parts(known, share, seed)) for share in shares]
    found = []
    with tqdm(
        total=sum(len(parts) for _, parts, _ in plans), desc="fold fits", disable=not progress, leave=False
    ) as bar:
        for share, parts, judged_by in plans:
            each, first = [], seed_again(fitted, seed)
            shown, seeds = [known.subset(part) for part in parts], [first + v for v in range(len(parts))]
            for trial in fit_again(fitted, x, shown, seeds, "fold fit", bar.update):
                F = memberships(trial.model, x).double().cpu().numpy()
                each.append(F[:, align(reference, F)] / F.sum(axis=1, keepdims=True))
            found.append(FoldFits(share, np.stack(each), judged_by))
    return found


def _parts(data: PairData, share: float, seed: int) -> tuple[list[Ints], Ints]:
    """Which answers each fit is trained on, and which fit each answer judges."""
    rng = np.random.default_rng([seed, round(1000 * share)])
    ids, which = np.unique(data.asked(), return_inverse=True)
    place = rng.permutation(len(ids))[which] / len(ids)  # of the answer's pair, in [0, 1)
    if share > 0.5:
        n = round(1 / (1 - share))
        fold = (place * n).astype(np.int64)
        return [np.flatnonzero(fold != v) for v in range(n)], fold
    parts = [np.flatnonzero(place < share), np.flatnonzero(place >= 1 - share)]
    return parts, np.where(place < 0.5, 1, 0)
