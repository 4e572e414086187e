"""Which confusion a partition's answers need: none, a shared A, or a rate for every two clusters."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float64, Ints
from pdcc.data.degrees import counts, degree, nats
from pdcc.data.pairs import PairData
from pdcc.select.blockmodel import FLOOR, Ends, block_number, fit_answers, left_out_nll
from pdcc.select.rule import Choice, Evidence, choose_simplest

# Steps that fit A to rates; LBFGS needs some twenty.
STEPS = 60
INSIDE = 1e-3


def screen(labels: tuple[Ints, Ints], n_clusters: int, data: PairData) -> tuple[str, Choice]:
    """The simplest form that predicts answers as well as any, for labels (M,) at the two ends of each answer.

    "none" is a partition whose answers are all wrong equally often; "stochastic" has B = A'A; "pooled" any B. Annotators
    are not told apart: these forms do not.
    """
    block = block_number(*labels, n_clusters)
    same, all_ = _tally(block, n_clusters, data)
    wrong = _wrong(same, all_, n_clusters)
    columns = fit_columns(same, all_, n_clusters)
    B = columns @ columns.T
    shared = B[np.triu_indices(n_clusters)][block]
    alike = np.where(labels[0] == labels[1], 1 - wrong, wrong)
    nll = {
        "none": nats(alike, data),
        "stochastic": nats(shared.clip(FLOOR, 1 - FLOOR), data),
        "pooled": left_out_nll(Ends.of_labels(*labels, n_clusters), replace(data, annotator=None)),
    }
    choice = choose_simplest([Evidence(f"confusion {name}", one, 0.0, 0.0) for name, one in nll.items()], data)
    return tuple(nll)[choice.index], choice


def confusion_start(form: str, labels: Ints, answers: PairData, n_clusters: int, device: torch.device) -> Tensor:
    """What a net's confusion begins with at a partition (N,), (K, K): the columns of A as rows for "stochastic" and
    "per-annotator", else B."""
    left, right = labels[answers.i], labels[answers.j]
    if form in ("stochastic", "per-annotator"):
        same, all_ = _tally(block_number(left, right, n_clusters), n_clusters, answers)
        found = fit_columns(same, all_, n_clusters)
    else:
        found = fit_answers(Ends.of_labels(left, right, n_clusters), replace(answers, annotator=None)).agreement
    return torch.as_tensor(found, dtype=torch.float32).to(device)


def _tally(block: Ints, n_clusters: int, data: PairData) -> tuple[Float64, Float64]:
    """How many answers of each block (T,) say "same", and how many there are."""
    n_blocks, w = n_clusters * (n_clusters + 1) // 2, counts(data)
    same, all_ = (np.bincount(block, part, n_blocks).astype(np.float64) for part in (w * degree(data), w))
    return same, all_


def _wrong(same: Float64, all_: Float64, K: int) -> float:
    """How often answers contradict a partition."""
    k, l = np.triu_indices(K)
    against = np.where(k == l, all_ - same, same).sum()
    return float((against + 0.5) / (all_.sum() + 1.0))


def fit_columns(same: Float64, all_: Float64, n_clusters: int) -> Float64:
    """The columns of the A, as rows (K, K), under which so many of the answers in each block (T,) are likeliest to be "same"."""
    K = n_clusters
    k, l = (torch.as_tensor(one) for one in np.triu_indices(K))
    y, n = torch.as_tensor(same), torch.as_tensor(all_)
    raw = (3.0 * torch.eye(K, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.LBFGS([raw], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        columns = torch.softmax(raw, dim=1)
        p = (columns[k] * columns[l]).sum(1).clamp(FLOOR, 1 - FLOOR)
        found = -(y * p.log() + (n - y) * torch.log1p(-p)).sum() / n.sum()
        found.backward()
        return found

    step: Callable[[Callable[[], Tensor]], object] = optimizer.step
    step(loss)
    # Off the border of the simplex, where nothing could be learned any more.
    return np.asarray((1 - INSIDE) * torch.softmax(raw.detach(), dim=1).numpy() + INSIDE / K)
