"""Whole nets refitted from new starts to reweighted answers: how far solutions that fit as well lie apart."""

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float64, Ints
from pdcc.data.pairs import PairData
from pdcc.data.splits import hold_out
from pdcc.fitted import Fitted
from pdcc.inference import FitConfig, PairTensors, point_agreement, warm_start
from pdcc.inference.ensemble import Ensemble, Members, bootstrap_weights, fit_ensemble
from pdcc.inference.variational import SampleStatus
from pdcc.metrics import align
from pdcc.models import AnnotationModel, Membership
from pdcc.posterior.draws import Sampled, aligned
from pdcc.posterior.last_layer import check_items
from pdcc.rows import whole
from pdcc.select.compare import start_labels
from pdcc.training import OWN, RESTART_STRIDE, Trainer, first_net, tensors

# Keeps the seeds of new starts apart from those of a fit's own restarts.
NEW_STARTS = 104_729


def refit(
    fitted: Fitted,
    data: PairData,
    *,
    chains: int,
    draws: int,
    seed: int,
    reweight: str = "pairs",
    progress: bool = False,
) -> Ensemble | Members:
    """``chains`` new starts of the whole net, each refitted to ``draws`` reweightings of the answers.

    What the fit held out stays held out.
    """
    config, model, x = fitted.config, fitted.model, fitted.scaled(whole(data.features, "an ensemble"))
    check_items(model, x)
    split = fitted.split if fitted.holds(data) else hold_out(data, config.validation_fraction, config.seed)
    train, held = split.train(data), split.test(data)
    nets: list[Membership] = []
    labels: list[Tensor] = []
    for chain in range(chains):
        own = seed + RESTART_STRIDE * (chain + 1) + NEW_STARTS
        nets += [first_net(config, x, None, own, fitted.own)] * draws
        if fitted.report.start is not None:
            made = start_labels(fitted, x, train, own)
            labels += [torch.as_tensor(numbered_like(model, made)).to(x.device)] * draws
    batch = max(config.batch_size, len(train) // 30)
    lr = config.lr * (batch / config.batch_size) ** 0.5 if config.optimizer == "adam" else 1e-3
    epochs, patience = config.lengths(len(train))
    how = FitConfig(epochs, batch, lr, max(config.confusion_lr, 3 * lr), "adam", False, patience or 8, seed)
    held_out = None if held is None else tensors(held, x)
    if fitted.own.network is None and config.confusion != OWN:
        return fit_ensemble(
            nets,
            model,
            tensors(train, x),
            held_out,
            how,
            labels=torch.stack(labels) if labels else None,
            reweight=reweight,
            progress=progress,
        )
    trainer = Trainer(
        replace(config, epochs=epochs, patience=patience or 8), tensors(train, x), held_out, 0, fitted.own
    )
    return _one_by_one(trainer, fitted, nets, labels, reweight, seed)


def _one_by_one(
    trainer: Trainer,
    fitted: Fitted,
    nets: list[Membership],
    labels: list[Tensor],
    reweight: str,
    seed: int,
) -> Members:
    """The same for networks and confusions of the user's, which cannot be stacked: one fit after the other."""
    trials = []
    partition = fitted.model.partition if len(fitted.model.partition) else None
    for k, net in enumerate(nets):
        generator = torch.Generator().manual_seed((seed * 1_000_003 + k) % (1 << 63))
        pairs = replace(trainer.pairs, weight=bootstrap_weights(trainer.pairs, reweight, generator))
        begin = copy.deepcopy(net)
        if labels:
            warm_start(begin, pairs.x, labels[k], seed=seed + k)
        own = replace(trainer, pairs=pairs, n_annotators=len(fitted.annotators))
        trials.append(own.train(fitted.report.chosen, begin, partition, seed + k, f"refit {k + 1} of {len(nets)}"))
    B = torch.stack([point_agreement(t.model, t.guide, trainer.pairs) for t in trials])
    return Members(
        models=[trial.model for trial in trials],
        guides=[trial.guide for trial in trials],
        agreement=B if B.ndim == 3 else B[:, -1],
        by_annotator=None if B.ndim == 3 else B,
        nll=torch.tensor([trial.result.held_out for trial in trials]),
    )


def numbered_like(fitted: AnnotationModel, labels: Ints) -> Ints:
    """``labels`` (N,) in the numbering of the partition that counts as an annotator, where there is one."""
    if fitted.partition_weight == 0:
        return labels
    K = fitted.membership.n_clusters
    order = align(np.eye(K)[fitted.partition.cpu().numpy()], np.eye(K)[labels])
    return np.asarray(np.argsort(order)[labels], dtype=np.int64)


def ensemble_draws(
    members: Ensemble | Members, pairs: PairTensors, chains: int, draws: int, reference: Float64
) -> Sampled:
    """The members as (chains, draws), aligned. "converged": every start's mean held-out score is within two standard
    errors of the best start's, by the spread of the members within starts."""
    K = reference.shape[1]
    F = members.memberships(pairs.in_memory).cpu().float().numpy().reshape(chains, draws, len(reference), K)
    B = members.agreement.double().cpu().numpy().reshape(chains, draws, K, K)
    A = None if members.columns is None else members.columns.double().mT.cpu().numpy().reshape(chains, draws, K, K)
    nll = members.nll.double().cpu().numpy().reshape(chains, draws)
    apart = nll.mean(axis=1) - nll.mean(axis=1).min()
    words = (
        f"{chains} starts x {draws} reweightings; the starts' mean held-out scores differ by up to {apart.max():.3g}."
    )
    if draws == 1:
        good, words = False, words + " One member per start shows no spread to compare by: ask for more draws."
    else:
        error = float(np.sqrt(2 * nll.var(axis=1, ddof=1).mean() / draws))
        good = bool((apart <= 2 * error).all())
    by_annotator = None if members.by_annotator is None else members.by_annotator.double().cpu().numpy()
    by_annotator = None if by_annotator is None else by_annotator.reshape(chains, draws, -1, K, K)
    status = SampleStatus.CONVERGED if good else SampleStatus.NOT_CONVERGED
    each = members.agreement_for(pairs) if isinstance(members, Members) and by_annotator is None else []
    by_pair = np.stack([b.double().cpu().numpy() for b in each]) if each and each[0].ndim == 3 else None
    by_pair = None if by_pair is None else by_pair.reshape(chains, draws, -1, K, K)
    drawn = Sampled(F, B, A, status, words, "ensemble", {"held_out_nll": nll}, by_annotator, by_pair)
    return aligned(drawn, reference)
