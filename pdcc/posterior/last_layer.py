"""The uncertain last layer of a fitted net: what "svi" and "nuts" draw from, and the same before any answer."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float32, Float64
from pdcc.data.pairs import PairData
from pdcc.inference import pair_agreement, point_values
from pdcc.inference.guides import MapGuide
from pdcc.inference.prior_hmc import tilted_prior
from pdcc.inference.variational import Draws
from pdcc.models import AnnotationModel, PairBatch, RatesConfusion, SigmoidConfusion
from pdcc.models.confusion import ShiftedConfusion
from pdcc.models.last_layer import KnownConfusion, LastLayerModel, basis, last_linear, uncertain_confusion
from pdcc.models.objective import annotator_columns, sigmoid_agreement, stochastic_agreement, two_rates
from pdcc.posterior.draws import Sampled, aligned
from pdcc.training import tensors

# Before any answer, logits of an item deviate from each other by so much: memberships from even to practically pure.
LOGITS = 5.0
ITEMS_OF_TILT = 2000


@dataclass(frozen=True)
class LastLayer:
    """The uncertain top of a fitted net: a Pyro model, the one batch of all pairs, and where to start."""

    model: LastLayerModel
    batch: PairBatch
    start: dict[str, Tensor]


def check_items(fitted: AnnotationModel, x: Tensor) -> None:
    if len(fitted.partition) not in (0, len(x)):
        raise ValueError(
            f"X: expected the {len(fitted.partition)} items that were fitted, whose start's labels count as an annotator, found {len(x)}. Pass the same X."
        )


def last_layer_of(
    fitted: AnnotationModel,
    guide: MapGuide,
    data: PairData,
    x: Tensor,
    *,
    prior_scale: float | None,
    only_confusion: bool = False,
    regularised: bool = False,
) -> LastLayer:
    """Cut the fitted net below its last layer.

    prior_scale: prior deviation of the layer's weights; None: such that logits deviate by ``LOGITS`` on average over the items,
    whatever the fitted weights are. regularised: keep the volume term of the fit, which is no part of a posterior.
    """
    check_items(fitted, x)
    hidden, last = last_linear(fitted.membership, x)
    with torch.no_grad():
        bias = last.weight.new_zeros(last.out_features) if last.bias is None else last.bias
        weight = torch.cat([last.weight.mT, bias[None]])
        length = float((1 + hidden.square().sum(1)).mean().sqrt())
        scale = LOGITS / length if prior_scale is None else prior_scale
        G, w = basis(hidden, weight, scale)
    sites = point_values(guide)
    shift = sites.pop("annotator_shift", None)
    pairs, K = tensors(data, G), fitted.membership.n_clusters
    known = pair_agreement(fitted, guide, tensors(data, x))
    confusion = uncertain_confusion(fitted.confusion, K, shift, known)
    fixed, volume = w if only_confusion else None, fitted.volume if regularised else 0.0
    model = LastLayerModel(
        fitted, G.shape[1], scale, len(data), confusion, fixed, pairs.total_weight, volume=volume
    ).to(x.device)
    start = {} if only_confusion else {"weight": w}
    if not isinstance(confusion, KnownConfusion):
        start |= {name: sites[name] for name in ("confusion_columns", "agreement_logits") if name in sites}
    start |= {name: sites[name] for name in ("partition_columns",) if name in sites}
    if isinstance(fitted.confusion, SigmoidConfusion):
        start["agreement_logits"] = fitted.confusion.raw.detach().clone()
    if isinstance(fitted.confusion, RatesConfusion):
        start["rate_logits"] = fitted.confusion.rates.detach().clone()
    if not start:
        raise ValueError(
            "sites: expected something uncertain, found a confusion 'none' and memberships held fixed. Use sites='last-layer'."
        )
    every = torch.arange(len(pairs), device=x.device)
    ends = torch.cat([pairs.i, pairs.j])
    batch = PairBatch(G, pairs.similar, every, ends, annotator=pairs.annotator, weight=pairs.weight)
    return LastLayer(model, batch, start)


def double(layer: LastLayer) -> LastLayer:
    """The same problem in float64."""
    batch = layer.batch
    similar, weight = (None if part is None else part.double() for part in (batch.similar, batch.weight))
    batch = replace(batch, x=batch.x.double(), similar=similar, weight=weight)
    return LastLayer(layer.model.double(), batch, {k: v.double() for k, v in layer.start.items()})


def last_layer_draws(layer: LastLayer, draws: Draws, reference: Float64) -> Sampled:
    """Memberships and agreement of every draw, clusters aligned to the memberships ``reference`` (N, K)."""
    sites = draws.sites
    K = reference.shape[1]
    chains, n = next(iter(sites.values())).shape[:2]
    weights = sites.get("weight", (layer.model.fixed if layer.model.fixed is not None else torch.zeros(0)).cpu())
    weights = weights.expand(chains, n, *weights.shape[-2:])
    F = np.empty((chains, n, len(reference), K), dtype=np.float32)
    basis_rows = layer.batch.x.cpu()
    for c in range(chains):
        for s in range(n):
            F[c, s] = torch.softmax(basis_rows @ weights[c, s].to(basis_rows), -1).numpy()
    confusion, columns = layer.model.confusion, sites.get("confusion_columns")
    B, pair_agreement = torch.eye(K, dtype=torch.float64), None
    if columns is not None:
        B = stochastic_agreement(columns.double())
    elif "agreement_logits" in sites:
        B = sigmoid_agreement(sites["agreement_logits"].double(), symmetric=bool(confusion.symmetric))
    elif "rate_logits" in sites:
        B = torch.sigmoid(two_rates(sites["rate_logits"].double(), B))
    elif isinstance(confusion, KnownConfusion):
        B = confusion.agreement().double().cpu()
        pair_agreement = None if B.ndim == 2 else B.numpy()[None, None]
        B = B if B.ndim == 2 else B.mean(0)
    by_annotator = None
    if columns is not None and isinstance(confusion, ShiftedConfusion):
        each = annotator_columns(columns.double().unsqueeze(-3), confusion.known_shift.double().cpu())
        by_annotator = stochastic_agreement(each).numpy()
    drawn = Sampled(
        memberships=F,
        agreement=B.expand(chains, n, K, K).numpy().copy(),
        confusion=None if columns is None else columns.double().mT.numpy(),
        status=draws.status,
        message=draws.message,
        engine=draws.engine,
        stats={k: v.numpy() for k, v in draws.stats.items()},
        by_annotator=by_annotator,
        pair_agreement=pair_agreement,
    )
    return aligned(drawn, reference)


def prior_memberships(layer: LastLayer, draws: int, seed: int) -> Float32:
    """Memberships (draws, N, K) before any answer: prior draws, moved as far as the volume factor tilts the prior.

    Everything below the last layer stays fitted, so this is before any answer about the last layer only.
    """
    model, x = layer.model, layer.batch.x
    some = x[:: max(1, len(x) // ITEMS_OF_TILT)]  # the normalised volume of some items is on the scale of all
    weight = model.total_weight * model.volume
    weights = tilted_prior(some, model.scale, weight, model.zero.shape[1], draws=draws, seed=seed)
    return np.stack([torch.softmax(x @ w, -1).cpu().numpy() for w in weights])
