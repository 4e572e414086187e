"""Point predictions of a fitted model and guide: agreement matrix, memberships, held-out scores."""

import math
from dataclasses import dataclass
from typing import cast

import pyro
import torch
from pyro.nn import PyroModule
from torch import Tensor

from pdcc.inference.batches import PairTensors
from pdcc.models.annotation import answer_logits
from pdcc.models.volume import log_volume

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Probe:
    """How a state does on a set of pairs: mean negative log-likelihood, and the volume of the items they touch.

    The smallest eigenvalue is that of the items' Gram, or inf where there are fewer of them than clusters.
    """

    nll: float
    log_volume: float
    smallest_eigenvalue: float


def point_values(guide: PyroModule) -> dict[str, Tensor]:
    """The guide's point estimate of every latent site."""
    return {name: value.detach() for name, value in guide.median().items()}


def point_agreement(model: PyroModule, guide: PyroModule) -> Tensor:
    """B at the guide's point estimate, (K, K), or one for each annotator, (R, K, K)."""
    with torch.no_grad(), pyro.condition(data=point_values(guide)):
        return cast(Tensor, model.confusion()).detach()


@torch.no_grad()
def memberships(model: PyroModule, x: Tensor) -> Tensor:
    """f_theta(x) without dropout, (n, K), computed in chunks."""
    was_training = model.training
    model.eval()
    out = torch.cat([model.membership(part) for part in x.split(ROWS_AT_ONCE)])
    model.train(was_training)
    return out


@torch.no_grad()
def pair_nll(F: Tensor, agreement: Tensor, pairs: PairTensors) -> Tensor:
    """Negative log-likelihood of each pair, (M,), from the memberships F (N, K) of all items and B, (K, K) or (R, K, K)."""
    logits = answer_logits(F[pairs.i], F[pairs.j], agreement, pairs.annotator if agreement.ndim == 3 else None)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, pairs.similar.to(logits), reduction="none")


@torch.no_grad()
def probe(model: PyroModule, guide: PyroModule, pairs: PairTensors) -> Probe:
    """Score ``pairs``; one wait for the host."""
    rows, where = torch.unique(torch.cat([pairs.i, pairs.j]), return_inverse=True)
    F = memberships(model, pairs.x[rows])
    i, j = where.chunk(2)
    nll = pair_nll(F, point_agreement(model, guide), PairTensors(F, i, j, pairs.similar, pairs.annotator)).mean()
    gram = F.double().mT @ F.double() / len(F)
    smallest = torch.linalg.eigvalsh(torch.nan_to_num(gram))[0]
    values = torch.stack([nll.double(), log_volume(F), smallest]).tolist()
    return Probe(values[0], values[1], values[2] if len(F) >= F.shape[1] else math.inf)
