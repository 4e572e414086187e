"""Index minibatches, gathered on the device the pairs live on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from pdcc.inference.rows import Items, RowSource, onto
from pdcc.models.annotation import PairBatch

Made = TypeVar("Made")


@dataclass(frozen=True)
class PairTensors:
    """N items and M answered pairs as tensors on one device.

    x (N, d) features, or a ``RowSource`` that reads them; i, j (M,) row numbers; similar (M,) 1.0 or 0.0, or a probability; annotator (M,) their numbers,
    and weight (M,) how much each answer counts, or None.
    """

    x: Items
    i: Tensor
    j: Tensor
    similar: Tensor
    annotator: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.i)

    @property
    def total_weight(self) -> float:
        """How much all answers count together; M where each counts once."""
        return float(len(self)) if self.weight is None else float(self.weight.double().sum())

    def mean(self, values: Tensor) -> Tensor:
        """Mean of values (..., M) of the answers, weighted as they are."""
        if self.weight is None:
            return values.mean(-1)
        return (values * self.weight).sum(-1) / self.weight.sum()

    def to(self, device: torch.device) -> "PairTensors":
        """The same pairs on another device."""
        return replace(self, **{name: onto(value, device) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors there are, by name; items that are read are none."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def in_memory(self) -> Tensor:
        """The items x (N, ...) where all of them are in memory; else a ``ValueError``."""
        if isinstance(self.x, RowSource):
            raise ValueError(
                f"x: expected a tensor, found {len(self.x):,} items that are read as they are needed. Use fewer of them, in memory."
            )
        return self.x

    def part(self, rows: slice) -> "PairTensors":
        """The same items with some of the pairs."""
        return replace(self, **{name: value[rows] for name, value in self.tensors().items() if name != "x"})

    def batch(self, index: Tensor, *, exact_volume: bool = False) -> PairBatch:
        """The pairs numbered ``index`` (b,), with the features of their 2b endpoints."""
        if exact_volume and isinstance(self.x, RowSource):
            raise ValueError(
                f"volume: expected one estimated from batches, for {len(self.x):,} items that are read as they are needed, found the exact one of all items. Leave exact_volume (volume_estimator='full') out."
            )
        rows = torch.cat([self.i[index], self.j[index]])
        return PairBatch(
            x=self.x[rows],
            similar=self.similar[index],
            index=index,
            rows=rows,
            x_all=self.x if exact_volume and isinstance(self.x, Tensor) else None,
            annotator=None if self.annotator is None else self.annotator[index],
            weight=None if self.weight is None else self.weight[index],
        )


def epoch_order(n_pairs: int, seed: int, epoch: int, device: torch.device) -> Tensor:
    """A permutation of the pairs that depends on (seed, epoch) alone, so that a resumed epoch repeats itself."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63))
    return onto(torch.randperm(n_pairs, generator=generator), device)


def index_batches(order: Tensor, size: int, *, least: int) -> list[Tensor]:
    """``order`` (M,) in parts of ``size``; a tail of fewer than ``least`` joins the part before it.

    The volume of a handful of items has a gradient many times that of a full batch.
    """
    parts = list(order.split(size))
    if len(parts) > 1 and len(parts[-1]) < least:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def ahead(make: Callable[[Tensor], Made], parts: Iterable[Tensor], x: Items) -> Iterator[Made]:
    """``make`` of every part, in order; where items are read as they are needed, the next one is made while this one is used."""
    if not isinstance(x, RowSource):
        yield from map(make, parts)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="pdcc-rows") as reader:
        coming: deque[Future[Made]] = deque()
        for part in parts:
            coming.append(reader.submit(make, part))
            if len(coming) > 1:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
