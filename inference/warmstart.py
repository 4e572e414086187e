"""A warm start: the membership net is first fitted to the labels of a given partition."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from pdcc.inference.batches import epoch_order
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.inference.rows import Items
from pdcc.models.membership import Membership, NetworkMembership

SMOOTHING = 0.1
START_BATCH = 128
START_STEPS = 400
START_RATE = 1e-3


def start_batches(n_items: int, seed: int, device: torch.device) -> Iterator[Tensor]:
    """Rows of ``START_STEPS`` batches, however many passes over the items that takes: the cost does not grow with N."""
    done = 0
    for epoch in itertools.count():
        for rows in epoch_order(n_items, seed, epoch, device).split(START_BATCH):
            if done == START_STEPS:
                return
            done += 1
            yield rows


def warm_start(membership: Membership, x: Items, labels: Tensor, *, seed: int) -> None:
    """Fit f_theta, in place, to smoothed one-hot ``labels`` (N,) of the items ``x`` (N, d).

    Labels are smoothed so that the memberships stay off the corners, where the pair likelihood's gradient through
    the softmax is flat.
    """
    loss_of = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    with isolated(seed, x.device, small=not isinstance(membership, NetworkMembership)):
        optimizer = torch.optim.Adam(membership.parameters(), lr=START_RATE, fused=x.device.type != "meta")
        membership.train()
        for rows in start_batches(len(x), seed, x.device):
            descend(optimizer, loss_of(membership.logits(x[rows]), labels[rows]))
        membership.eval()
