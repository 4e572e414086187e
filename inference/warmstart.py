"""A warm start: the membership net is first fitted to the labels of a given partition."""

import torch
from torch import Tensor, nn

from pdcc.inference.batches import epoch_order
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.models.membership import Membership

SMOOTHING = 0.1
START_BATCH = 128
MIN_EPOCHS = 5
MIN_STEPS = 400


def start_epochs(n_items: int) -> int:
    """A few passes, but enough steps when there are few items."""
    return max(MIN_EPOCHS, -(-MIN_STEPS * START_BATCH // n_items))


def warm_start(membership: Membership, x: Tensor, labels: Tensor, *, seed: int, lr: float = 1e-3) -> None:
    """Fit f_theta, in place, to smoothed one-hot ``labels`` (N,) of the items ``x`` (N, d).

    Labels are smoothed so that the memberships stay off the corners, where the pair likelihood's gradient through
    the softmax is flat; a few epochs (but enough steps when N is small) reproduce the partition.
    """
    loss_of = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    with isolated(seed, x.device):
        optimizer = torch.optim.Adam(membership.parameters(), lr=lr, fused=x.device.type != "meta")
        membership.train()
        for epoch in range(start_epochs(len(x))):
            for rows in epoch_order(len(x), seed, epoch, x.device).split(START_BATCH):
                descend(optimizer, loss_of(membership.logits(x[rows]), labels[rows]))
        membership.eval()
