"""Index minibatches, gathered on the device the pairs live on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pdcc.models.annotation import PairBatch


@dataclass(frozen=True)
class PairTensors:
    """N items and M answered pairs as tensors on one device.

    x (N, d) features; i, j (M,) row numbers; similar (M,) 1.0 or 0.0.
    """

    x: Tensor
    i: Tensor
    j: Tensor
    similar: Tensor

    def __len__(self) -> int:
        return len(self.i)

    def to(self, device: torch.device) -> "PairTensors":
        """The same pairs on another device."""
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def batch(self, index: Tensor, *, exact_volume: bool = False) -> PairBatch:
        """The pairs numbered ``index`` (b,), with the features of their 2b endpoints."""
        rows = torch.cat([self.i[index], self.j[index]])
        return PairBatch(
            x=self.x[rows],
            similar=self.similar[index],
            index=index,
            rows=rows,
            x_all=self.x if exact_volume else None,
        )


def epoch_order(n_pairs: int, seed: int, epoch: int, device: torch.device) -> Tensor:
    """A permutation of the pairs that depends on (seed, epoch) alone, so that a resumed epoch repeats itself."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    return torch.randperm(n_pairs, generator=generator).to(device)


def batches(pairs: PairTensors, order: Tensor, size: int, *, exact_volume: bool, start: int = 0) -> Iterator[PairBatch]:
    """The pairs in ``order``, ``size`` at a time, from batch number ``start`` on."""
    for index in order.split(size)[start:]:
        yield pairs.batch(index, exact_volume=exact_volume)
