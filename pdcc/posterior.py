"""Posterior draws of memberships and confusion as ArviZ's InferenceData, clusters aligned across draws and chains."""

import json
import logging
import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pdcc.artifact import package_versions
from pdcc.inference import FitConfig, point_values
from pdcc.inference.ensemble import Ensemble, fit_ensemble
from pdcc.inference.nuts import nuts_posterior
from pdcc.inference.posterior import GUIDES, Draws, svi_posterior
from pdcc.inference.prior import tilted_prior
from pdcc.metrics import align
from pdcc.models import AnnotationModel, Membership, PairBatch, SigmoidConfusion, answer_logits
from pdcc.models.confusion import ShiftedConfusion, annotator_columns
from pdcc.models.head import HeadModel, basis
from pdcc.pairs import PairData
from pdcc.partition import make_start
from pdcc.quiet import import_arviz
from pdcc.recipe import RESTART_STRIDE, Recipe, first_net, hold_out, tensors

logger = logging.getLogger(__name__)

METHODS = ("svi", "nuts", "ensemble")
# (chains, draws a chain) where not asked for.
SIZES = {"svi": (1, 500), "nuts": (4, 500), "ensemble": (4, 5)}
CONVERGED = 1.01
PRIOR_WIDTH = 3.0
# Keeps the seeds of new starts apart from those of a fit's own restarts.
NEW_STARTS = 104_729
ITEMS_OF_TILT = 2000
LEAVES_OUT = {
    "svi": "Normal in unconstrained space, over the confusion and the net's last layer; the layers below, and annotators' departures from the shared confusion, stay at their fitted values.",
    "nuts": "The layers below the last, and annotators' departures from the shared confusion, stay at their fitted values; chains begin in the fitted mode and tell nothing of others.",
    "ensemble": "Whole nets refitted from new starts to reweighted answers (Bayesian bootstrap): no prior on the weights.",
}
# What simulation-based calibration found over 200 simulated data sets (docs/results.md).
CALIBRATION = {
    "svi": "90 % intervals of B covered the truth in 86 % of simulations",
    "svi, normal guide": "90 % intervals of B covered the truth in 59 % of simulations only: too narrow, do not rely on them",
    "nuts": "90 % intervals of B covered the truth in 86 % of simulations",
    "ensemble": "90 % intervals of B covered the truth in 24 % of simulations only: read the members as restarts, not as intervals",
}


@dataclass(frozen=True)
class Sampled:
    """Aligned draws: memberships (C, S, N, K) float32, agreement (C, S, K, K), confusion A[observed, true] or None.

    everyone: where annotators are told apart, B of each and, last, the shared one, (C, S, R + 1, K, K); else None.
    """

    memberships: NDArray[np.float32]
    agreement: NDArray[np.float64]
    confusion: NDArray[np.float64] | None
    status: str
    message: str
    stats: dict[str, NDArray[Any]]
    everyone: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Head:
    """The uncertain top of a fitted net: a Pyro model, the one batch of all pairs, and where to start."""

    model: HeadModel
    batch: PairBatch
    start: dict[str, Tensor]


def _check_items(fitted: AnnotationModel, x: Tensor) -> None:
    if len(fitted.partition) not in (0, len(x)):
        raise ValueError(
            f"X: expected the {len(fitted.partition)} items that were fitted, whose start's labels count as an annotator, found {len(x)}. Pass the same X."
        )


def head_of(
    fitted: AnnotationModel, guide: Any, data: PairData, x: Tensor, *, scale: float | None, only_confusion: bool = False
) -> Head:
    """Cut the fitted net below its last layer. ``scale``: prior deviation of the layer's weights; None: three times their
    root mean square (at once theirs, the prior would pull well-determined memberships off the simplex's faces)."""
    _check_items(fitted, x)
    layers = fitted.membership.layers
    last = cast(torch.nn.Linear, layers[-1])
    with torch.no_grad():
        hidden = layers[:-1](x)
        weight = torch.cat([last.weight.mT, last.bias[None]])
        scale = PRIOR_WIDTH * float(weight.square().mean().sqrt()) if scale is None else scale
        G, w = basis(hidden, weight, scale)
    sites = point_values(guide)
    shift = sites.pop("annotator_shift", None)
    model = HeadModel(fitted, G.shape[1], scale, len(data), w if only_confusion else None, shift).to(x.device)
    pairs = tensors(data, G)
    start = ({} if only_confusion else {"weight": w}) | sites
    if isinstance(fitted.confusion, SigmoidConfusion):
        start["agreement_logits"] = fitted.confusion.raw.detach().clone()
    if not start:
        raise ValueError(
            "sites: expected something uncertain, found a confusion 'none' and memberships held fixed. Use sites='head'."
        )
    every = torch.arange(len(pairs), device=x.device)
    return Head(model, PairBatch(G, pairs.similar, every, torch.cat([pairs.i, pairs.j]), who=pairs.who), start)


def double(head: Head) -> Head:
    """The same problem in float64."""
    batch = replace(head.batch, x=head.batch.x.double(), similar=head.batch.similar.double())
    return Head(head.model.double(), batch, {k: v.double() for k, v in head.start.items()})


def head_draws(head: Head, draws: Draws, reference: NDArray[np.float64]) -> Sampled:
    """Memberships and agreement of every draw, clusters aligned to the memberships ``reference`` (N, K)."""
    sites = draws.sites
    K = reference.shape[1]
    chains, n = next(iter(sites.values())).shape[:2]
    weights = sites.get("weight", (head.model.fixed if head.model.fixed is not None else torch.zeros(0)).cpu())
    weights = weights.expand(chains, n, *weights.shape[-2:])
    F = np.empty((chains, n, len(reference), K), dtype=np.float32)
    basis_rows = head.batch.x.cpu()
    for c in range(chains):
        for s in range(n):
            F[c, s] = torch.softmax(basis_rows @ weights[c, s].to(basis_rows), -1).numpy()
    columns, B = sites.get("confusion_columns"), torch.eye(K, dtype=torch.float64).expand(chains, n, K, K)
    if columns is not None:
        B = columns.double() @ columns.double().mT
    elif "agreement_logits" in sites:
        B = torch.sigmoid(sites["agreement_logits"].double())
    stats = {k: v.numpy() for k, v in draws.stats.items()}
    A = None if columns is None else columns.double().mT.numpy()
    everyone = None
    if columns is not None and isinstance(head.model.confusion, ShiftedConfusion):
        each = annotator_columns(columns.double(), head.model.confusion.shift.double().cpu())
        everyone = (each @ each.mT).numpy()
    drawn = Sampled(F, B.numpy().copy(), A, draws.status, draws.message, stats, everyone)
    return _aligned(drawn, reference)


def _aligned(drawn: Sampled, reference: NDArray[np.float64]) -> Sampled:
    """Clusters of every draw renamed after the memberships ``reference`` (N, K) they resemble."""
    F, B = drawn.memberships, drawn.agreement
    A, everyone = (None if part is None else part.copy() for part in (drawn.confusion, drawn.everyone))
    for c, s in np.ndindex(F.shape[:2]):
        order = align(reference, F[c, s])
        F[c, s] = F[c, s][:, order]
        B[c, s] = B[c, s][np.ix_(order, order)]
        if A is not None:  # observed and true clusters carry the same names
            A[c, s] = A[c, s][np.ix_(order, order)]
        if everyone is not None:
            everyone[c, s] = everyone[c, s][:, order][:, :, order]
    return replace(drawn, confusion=A, everyone=everyone)


def prior_memberships(head: Head, draws: int, seed: int) -> NDArray[np.float32]:
    """Memberships (draws, N, K) before any answer: prior draws, moved as far as the volume factor tilts the prior.

    Everything below the last layer stays fitted, so this is before any answer about the last layer only.
    """
    model, x = head.model, head.batch.x
    some = x[:: max(1, len(x) // ITEMS_OF_TILT)]  # the normalised volume of some items is on the scale of all
    weight = model.n_pairs * model.volume
    weights = tilted_prior(some, model.scale, weight, model.zero.shape[1], draws=draws, seed=seed)
    return np.stack([torch.softmax(x @ w, -1).cpu().numpy() for w in weights])


def restarts(
    recipe: Recipe,
    fitted: AnnotationModel,
    data: PairData,
    x: Tensor,
    *,
    chains: int,
    draws: int,
    seed: int,
    reweight: str = "pairs",
    volumes: tuple[float, ...] = (1.0,),
    progress: bool = False,
) -> Ensemble:
    """``chains`` new starts of the whole net, each refitted to ``draws`` reweightings of the answers.

    The starts take the weight of the volume term times each of ``volumes`` in turn.
    """
    _check_items(fitted, x)
    train, held, _ = hold_out(data, recipe.validation_fraction, recipe.seed)
    nets: list[Membership] = []
    labels: list[Tensor] = []
    for chain in range(chains):
        own = seed + RESTART_STRIDE * (chain + 1) + NEW_STARTS
        nets += [first_net(recipe, x, None, own)] * draws
        if recipe.init != "random":
            # Features are scaled already.
            begin = make_start(x.cpu().numpy(), recipe.n_clusters, train, scales=(None,), init=recipe.init, seed=own)
            labels += [torch.as_tensor(_numbered_like(fitted, begin.labels)).to(x.device)] * draws
    batch = max(recipe.batch_size, len(train) // 30)
    lr = recipe.lr * (batch / recipe.batch_size) ** 0.5 if recipe.optimizer == "adam" else 1e-3
    epochs, patience = recipe.lengths(len(train))
    config = FitConfig(epochs, batch, lr, max(recipe.confusion_lr, 3 * lr), "adam", False, patience or 8, seed)
    test = None if held is None else tensors(held, x)
    starts = torch.stack(labels) if labels else None
    return fit_ensemble(
        nets,
        fitted,
        tensors(train, x),
        test,
        config,
        labels=starts,
        volume=torch.tensor([fitted.volume * volumes[c % len(volumes)] for c in range(chains) for _ in range(draws)]),
        reweight=reweight,
        progress=progress,
    )


def _numbered_like(fitted: AnnotationModel, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """``labels`` (N,) in the numbering of the partition that counts as an annotator, where there is one."""
    if fitted.partition_weight == 0:
        return labels
    K = fitted.membership.n_clusters
    order = align(np.eye(K)[fitted.partition.cpu().numpy()], np.eye(K)[labels])
    return np.asarray(np.argsort(order)[labels], dtype=np.int64)


def ensemble_draws(members: Ensemble, x: Tensor, chains: int, draws: int, reference: NDArray[np.float64]) -> Sampled:
    """The members as (chains, draws), aligned. "converged": every start's mean held-out score is within two standard
    errors of the best start's, by the spread of the members within starts."""
    K = reference.shape[1]
    F = members.memberships(x).cpu().float().numpy().reshape(chains, draws, len(reference), K)
    B = members.agreement.double().cpu().numpy().reshape(chains, draws, K, K)
    A = None if members.columns is None else members.columns.double().mT.cpu().numpy().reshape(chains, draws, K, K)
    nll = members.nll.double().cpu().numpy().reshape(chains, draws)
    apart = nll.mean(axis=1) - nll.mean(axis=1).min()
    words = (
        f"{chains} starts x {draws} reweightings; the starts' mean held-out scores differ by up to {apart.max():.3g}."
    )
    if draws == 1:
        good, words = False, words + " One member a start shows no spread to compare by: ask for more draws."
    else:
        error = float(np.sqrt(2 * nll.var(axis=1, ddof=1).mean() / draws))
        good = bool((apart <= 2 * error).all())
    everyone = None if members.everyone is None else members.everyone.double().cpu().numpy()
    everyone = None if everyone is None else everyone.reshape(chains, draws, -1, K, K)
    status = "converged" if good else "not converged"
    return _aligned(Sampled(F, B, A, status, words, {"held_out_nll": nll}, everyone), reference)


def sample(est: Any, data: PairData, x: Tensor, recipe: Recipe, *, method: str, draws: int | None, chains: int | None,
           sites: str = "head", guide: str = "low-rank", scale: float | None = None, warmup: int = 500, steps: int = 2000,
           seed: int = 0, progress: bool = False) -> Sampled:  # fmt: skip
    """Aligned draws of a fitted estimator's posterior by one of ``METHODS``; arguments are those of ``est.posterior``."""
    for name, value, allowed in (
        ("method", method, METHODS),
        ("sites", sites, ("head", "confusion")),
        ("guide", guide, GUIDES),
    ):
        if value not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, found {value!r}. Choose one of them.")
    C, S = SIZES[method]
    C, S = C if chains is None else chains, S if draws is None else draws
    least = 4 if method == "nuts" else 1  # split r_hat halves a chain
    if C < 1 or least > S or (method == "svi" and C != 1):
        raise ValueError(
            f"draws, chains: expected at least {least} and 1 (and one chain for 'svi'), found draws={S}, chains={C}. Ask for more draws."
        )
    if steps < 20 or warmup < 1:
        raise ValueError(f"steps, warmup: expected at least 20 and 1, found {steps} and {warmup}. Use the defaults.")
    reference = est._memberships(data.features)
    if method == "ensemble":
        members = restarts(recipe, est.model_, data, x, chains=C, draws=S, seed=seed, progress=progress)
        return ensemble_draws(members, x, C, S, reference)
    head = head_of(est.model_, est.guide_, data, x, scale=scale, only_confusion=sites == "confusion")
    if method == "svi":
        found = svi_posterior(
            head.model, head.batch, head.start, draws=S, guide=guide, steps=steps, seed=seed, progress=progress
        )
        if found.status != "converged":
            logger.warning("svi did not converge: %s Ask for more steps, or compare with method='nuts'.", found.message)
        return head_draws(head, found, reference)
    head = double(head)
    found = nuts_posterior(
        head.model, head.batch, head.start, draws=S, warmup=warmup, chains=C, seed=seed, progress=progress
    )
    return _judged(head_draws(head, found, reference), sites)


def _judged(drawn: Sampled, sites: str) -> Sampled:
    """NUTS converges where r_hat < 1.01 for B and the memberships of a hundred items, and nothing diverged."""
    arviz = import_arviz()

    K = drawn.agreement.shape[-1]
    some = np.unique(np.linspace(0, drawn.memberships.shape[2] - 1, 100).astype(int))
    numbers = np.concatenate(
        [
            drawn.agreement.reshape(*drawn.agreement.shape[:2], K * K),
            drawn.memberships[:, :, some].reshape(*drawn.agreement.shape[:2], -1),
        ],
        axis=2,
    )
    moving = numbers[..., numbers.reshape(-1, numbers.shape[-1]).std(axis=0) > 1e-6]
    chains = len(moving)
    worst = (
        max((float(arviz.rhat(moving[..., k])) for k in range(moving.shape[-1])), default=1.0) if chains > 1 else np.nan
    )
    if chains == 1:
        words = drawn.message + " One chain cannot show convergence: ask for four."
        logger.warning("NUTS: %s", words)
        return replace(drawn, status="not converged", message=words)
    words = f" Largest r_hat {worst:.3f}."
    good = drawn.status == "converged" and worst < CONVERGED
    if not good:
        words += " Draw more (draws, warmup)" + (", or use sites='confusion'." if sites == "head" else ".")
        logger.warning("NUTS did not converge: %s", drawn.message + words)
    return replace(drawn, status="converged" if good else "not converged", message=drawn.message + words)


def to_inference_data(
    drawn: Sampled, data: PairData, *, method: str, seed: int, settings: dict[str, Any], guide: str = "low-rank"
) -> Any:
    """ArviZ's InferenceData: posterior, posterior_predictive, log_likelihood, observed_data, constant_data.

    Everything of the size draws x pairs is int8 or float32 and filled one draw at a time: 500 draws of 10,000 pairs and items
    and ten clusters come to 225 MB.
    """
    arviz = import_arviz()

    C, S, _, K = drawn.memberships.shape
    M = len(data)
    rng = np.random.default_rng(seed)
    similar = data.similar.astype(np.int8)
    sign = torch.as_tensor(2.0 * similar - 1)
    loglik, predicted = np.empty((C, S, M), np.float32), np.empty((C, S, M), np.int8)
    i, j = torch.as_tensor(data.i), torch.as_tensor(data.j)
    for c, s in np.ndindex(C, S):
        F = torch.as_tensor(drawn.memberships[c, s]).double()
        agreement = torch.as_tensor((drawn.agreement if drawn.everyone is None else drawn.everyone)[c, s])
        logits = answer_logits(
            F[i], F[j], agreement, None if drawn.everyone is None else torch.as_tensor(data.annotator)
        )
        loglik[c, s] = torch.nn.functional.logsigmoid(sign * logits).float().numpy()
        predicted[c, s] = rng.random(M) < torch.sigmoid(logits).numpy()
    posterior: dict[str, Any] = {"memberships": drawn.memberships, "agreement": drawn.agreement}
    dims = {
        "memberships": ["item", "cluster"],
        "agreement": ["cluster", "cluster_b"],
        "similar": ["pair"],
        "i": ["pair"],
        "j": ["pair"],
    }
    if drawn.confusion is not None:
        posterior["confusion"] = drawn.confusion
        dims["confusion"] = ["observed", "cluster"]
    constant: dict[str, Any] = {"i": data.i, "j": data.j}
    if data.annotator is not None:
        constant["annotator"], dims["annotator"] = data.annotator, ["pair"]
    numbers = list(range(K))
    items = list(range(data.n_items)) if data.item_ids is None else [str(name) for name in data.item_ids]
    coords = {"item": items, "cluster": numbers, "cluster_b": numbers, "observed": numbers, "pair": list(range(M))}
    calibration = CALIBRATION["svi, normal guide" if (method, guide) == ("svi", "normal") else method]
    if drawn.status != "converged":
        calibration = f"unknown, since this run did not converge (where runs do: {calibration})"
    attrs = {
        "method": method, "status": drawn.status, "message": drawn.message, "leaves_out": LEAVES_OUT[method], "calibration": calibration,
        "identified": "A only through B = A'A; cluster numbers are arbitrary and aligned to the fitted memberships",
        "seed": seed, "settings": json.dumps(settings, default=str), "versions": json.dumps(package_versions()),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="More chains")  # an ensemble's chains may be single members
        return arviz.from_dict(
            posterior=posterior,
            posterior_predictive={"similar": predicted},
            log_likelihood={"similar": loglik},
            sample_stats=drawn.stats or None,
            observed_data={"similar": similar},
            constant_data=constant,
            coords=coords,
            dims=dims,
            attrs=attrs,
            posterior_attrs=attrs,
        )
