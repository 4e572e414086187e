"""Which confusion a partition's answers need: a shared A, or a rate for every two clusters."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float64, Ints
from pdcc.data.degrees import counts, nats
from pdcc.data.pairs import PairData
from pdcc.select.blockmodel import FLOOR, Ends, fit_answers, left_out_nll
from pdcc.select.rule import Choice, Evidence, choose_simplest

# Steps that fit A to rates; LBFGS needs some twenty.
STEPS = 60
INSIDE = 1e-3
# Forms that have an A. "per-annotator" is "stochastic" where no annotators are known.
WITH_COLUMNS = ("stochastic", "per-annotator")


def screen(labels: tuple[Ints, Ints], n_clusters: int, data: PairData) -> tuple[str, Choice]:
    """The simplest form that predicts answers as well as any, for labels (M,) at the two ends of each answer.

    "stochastic" has B = A'A, "pooled" any B. Annotators count as one: these forms do not tell them apart.
    """
    alone = replace(data, annotator=None)
    ends = Ends.of_labels(*labels, n_clusters)
    columns = fit_columns(*smoothed(ends, alone))
    shared = (columns @ columns.T)[np.triu_indices(n_clusters)][ends.block]
    nll = {
        "stochastic": nats(shared.clip(FLOOR, 1 - FLOOR), data),
        "pooled": left_out_nll(ends, alone),
    }
    choice = choose_simplest([Evidence(f"confusion {name}", one, 0.0, 0.0) for name, one in nll.items()], data)
    return tuple(nll)[choice.index], choice


def confusion_start(form: str, labels: Ints, answers: PairData, n_clusters: int, device: torch.device) -> Tensor:
    """What a net's confusion begins with at a partition (N,), (K, K): the columns of A as rows where there is one, else B."""
    ends, alone = Ends.of_labels(labels[answers.i], labels[answers.j], n_clusters), replace(answers, annotator=None)
    found = fit_columns(*smoothed(ends, alone)) if form in WITH_COLUMNS else fit_answers(ends, alone).agreement
    return torch.as_tensor(found, dtype=torch.float32).to(device)


def smoothed(ends: Ends, data: PairData) -> tuple[Float64, Float64]:
    """B as the block model has it, (K, K), and how many answers there are in each of its blocks, and one more, (T,).

    Of many clusters, most blocks have next to no answers: A is fitted to rates that are already drawn together.
    """
    n_blocks = ends.n_clusters * (ends.n_clusters + 1) // 2
    n_answers = np.bincount(ends.block, counts(data)[ends.answer], n_blocks).astype(np.float64)
    return fit_answers(ends, data).agreement, n_answers + 1


def fit_columns(agreement: Float64, n_answers: Float64) -> Float64:
    """The columns of the A, as rows (K, K), whose A'A is nearest to B (K, K), in likelihood: ``n_answers`` (T,) in each block."""
    K = len(agreement)
    k, m = (torch.as_tensor(one) for one in np.triu_indices(K))
    n = torch.as_tensor(n_answers)
    y = n * torch.as_tensor(agreement)[k, m]
    raw = (3.0 * torch.eye(K, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.LBFGS([raw], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        columns = torch.softmax(raw, dim=1)
        p = (columns[k] * columns[m]).sum(1).clamp(FLOOR, 1 - FLOOR)
        found = -(y * p.log() + (n - y) * torch.log1p(-p)).sum() / n.sum()
        found.backward()
        return found

    step: Callable[[Callable[[], Tensor]], object] = optimizer.step
    step(loss)
    # Off the border of the simplex, where nothing could be learned any more.
    return np.asarray((1 - INSIDE) * torch.softmax(raw.detach(), dim=1).numpy() + INSIDE / K)
