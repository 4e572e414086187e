"""Point predictions of a fitted model and guide: agreement matrix, memberships, held-out scores."""

import math
from dataclasses import dataclass
from typing import cast

import pyro
import torch
from pyro.nn import PyroModule
from torch import Tensor

from pdcc.inference.batches import PairTensors
from pdcc.inference.rows import Items
from pdcc.models.annotation import PairBatch
from pdcc.models.confusion import Confusion
from pdcc.models.modules import plain_weights
from pdcc.models.objective import answer_nll, similar_logits
from pdcc.models.volume import log_volume

ROWS_AT_ONCE = 8192
# Pairs that are scored at once: with a matrix for each of them and ten clusters, that takes about a hundred megabytes.
PAIRS_AT_ONCE = 2**18


@dataclass(frozen=True)
class Probe:
    """How a state does on a set of pairs: mean negative log-likelihood (weighted, where answers are), and the volume of the items they touch.

    The smallest eigenvalue is that of the items' Gram, or inf where there are fewer of them than clusters.
    """

    nll: float
    log_volume: float
    smallest_eigenvalue: float


def point_values(guide: PyroModule) -> dict[str, Tensor]:
    """The guide's point estimate of every latent site."""
    with plain_weights():
        return {name: value.detach() for name, value in guide.median().items()}


@torch.no_grad()
def pair_agreement(model: PyroModule, guide: PyroModule, pairs: PairTensors) -> Tensor:
    """B at the guide's point estimate as it applies to the pairs: (K, K), or one for each, (M, K, K)."""
    with plain_weights(), pyro.condition(data=point_values(guide)):
        if not (model.confusion_takes_batch and getattr(model.confusion, "uses_items", True)):  # no features are needed
            index = torch.arange(len(pairs), device=pairs.i.device)
            nothing = pairs.similar.new_zeros(0)
            batch = PairBatch(nothing, pairs.similar, index, nothing.long(), annotator=pairs.annotator)
            return cast(Tensor, model.agreement(batch)).detach()
        parts = torch.arange(len(pairs), device=pairs.i.device).split(ROWS_AT_ONCE)
        found = [cast(Tensor, model.agreement(pairs.batch(index))).detach() for index in parts]
        return found[0] if found[0].ndim == 2 else torch.cat(found)


@torch.no_grad()
def point_agreement(model: PyroModule, guide: PyroModule, pairs: PairTensors | None = None) -> Tensor:
    """B at the guide's point estimate, (K, K), or one for each annotator and, last, the shared one, (R + 1, K, K).

    A confusion that depends on the items has one for each pair; then it is their mean over ``pairs``.
    """
    confusion = model.confusion
    if isinstance(confusion, Confusion) and not confusion.uses_items:
        with plain_weights(), pyro.condition(data=point_values(guide)):
            return confusion.agreement().detach()
    if pairs is None:
        raise ValueError("pairs: expected the pairs to average a confusion over, found none. Pass them.")
    each = pair_agreement(model, guide, pairs)
    return each if each.ndim == 2 else each.mean(0)


@torch.no_grad()
def memberships(model: PyroModule, x: Items, rows: Tensor | None = None) -> Tensor:
    """f_theta(x) without dropout, (n, K), computed in chunks; of the items numbered ``rows`` (n,) alone, where they are given."""
    was_training = model.training
    model.eval()
    chunks = x.split(ROWS_AT_ONCE) if rows is None else (x[part] for part in rows.split(ROWS_AT_ONCE))
    out = torch.cat([model.membership(part) for part in chunks])
    model.train(was_training)
    return out


@torch.no_grad()
def pair_nll(F: Tensor, agreement: Tensor, pairs: PairTensors) -> Tensor:
    """Negative log-likelihood of each pair, (M,), from the memberships F (N, K) of all items and B, (K, K) or (M, K, K)."""
    return answer_nll(similar_logits(F[pairs.i], F[pairs.j], agreement), pairs.similar)


@torch.no_grad()
def fitted_nll(model: PyroModule, guide: PyroModule, F: Tensor, pairs: PairTensors) -> Tensor:
    """The same at the guide's point estimate, some pairs at a time; ``pairs`` number the rows of F (N, K)."""
    parts = [pairs.part(slice(b, b + PAIRS_AT_ONCE)) for b in range(0, len(pairs), PAIRS_AT_ONCE)]
    return torch.cat([pair_nll(F, pair_agreement(model, guide, part), part) for part in parts])


@torch.no_grad()
def probe(model: PyroModule, guide: PyroModule, pairs: PairTensors) -> Probe:
    """Score ``pairs``; one wait for the host."""
    rows, where = torch.unique(torch.cat([pairs.i, pairs.j]), return_inverse=True)
    F = memberships(model, pairs.x, rows)
    i, j = where.chunk(2)
    nll = []
    for begin in range(0, len(pairs), PAIRS_AT_ONCE):
        some = slice(begin, begin + PAIRS_AT_ONCE)
        part = pairs.part(some)
        nll.append(pair_nll(F, pair_agreement(model, guide, part), PairTensors(F, i[some], j[some], part.similar)))
    mean = pairs.mean(torch.cat(nll))
    gram = F.double().mT @ F.double() / len(F)
    smallest = torch.linalg.eigvalsh(torch.nan_to_num(gram))[0]
    values = torch.stack([mean.double(), log_volume(F), smallest]).tolist()
    return Probe(values[0], values[1], values[2] if len(F) >= F.shape[1] else math.inf)
