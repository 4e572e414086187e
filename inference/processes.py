"""Several processes that train one model: each takes a share of every batch, and all of them take the same steps.

Each process walks the same order of pairs and takes its share of every batch: b_r of b pairs, s_r = b_r / b. By itself the loss of its
share is l_r: the mean over its own answers, scaled to all M, and priors and the volume whole. The loss of the batch is the mean
sum_r s_r l_r, since s_r M / b_r = M / b for the likelihood and since the s_r sum to 1 for what is in every l_r. So each process
descends s_r l_r, and gradients are summed.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from pdcc.errors import FirstProcessError, LostProcessError
from pdcc.inference.batches import PairTensors
from pdcc.models.annotation import PairBatch

# How long one process waits for the others before it gives them up.
TIMEOUT = timedelta(minutes=5)
CPU = torch.device("cpu")


class _SumGram(torch.autograd.Function):
    """G = sum_r G_r over the processes, each of which descends s_r V(G) with the same V and its own share s_r.

    The loss of them all is sum_q s_q V(G) = V(G), so what process r owes its G_r is dV/dG, once. What comes in is s_r dV/dG, the
    gradient of its own part. Passed on as it is, the sum over processes would be sum_r s_r <dV/dG, dG_r>: with two of them half of
    what is right. Without the shares, and with all incoming gradients summed, it would count as often as there are
    processes. So it is divided by s_r, which also saves the exchange that the general adjoint of a sum needs.
    """

    @staticmethod
    def forward(ctx: Any, gram: Tensor, share: float) -> Tensor:
        """The sum, the same bits in every process."""
        ctx.share = share
        total = gram.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """dV/dG for this process's own part."""
        return gradients[0] / ctx.share, None


@dataclass(frozen=True)
class Processes:
    """Those that take part in a fit, as one of them sees it.

    rank: its number, the first is 0. size: how many there are. device: where what they exchange lies.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @classmethod
    def here(cls, device: torch.device) -> "Processes":
        """Those of torch's default process group, or this one alone where there is none."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls(device=device)
        return cls(distributed.get_rank(), distributed.get_world_size(), device)

    @property
    def alone(self) -> bool:
        """There is no other."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """This is the one that writes files and whose word counts."""
        return self.rank == 0

    def batch(self, pairs: PairTensors, index: Tensor, *, exact_volume: bool = False) -> tuple[PairBatch, float]:
        """This process's part of the pairs numbered ``index`` (b,), and its share of them.

        A batch with fewer pairs than there are processes is computed by all of them, and each counts for as much as any other.
        """
        if self.alone:
            return pairs.batch(index, exact_volume=exact_volume), 1.0
        own = index.tensor_split(self.size)[self.rank] if len(index) >= self.size else index
        share = len(own) / len(index) if len(index) >= self.size else 1 / self.size
        batch = pairs.batch(own, exact_volume=exact_volume)
        if batch.x_all is not None and len(batch.x_all) >= self.size:
            n = len(batch.x_all)
            batch = replace(batch, x_all=batch.x_all[self.rank * n // self.size : (self.rank + 1) * n // self.size])
        return replace(batch, pool=functools.partial(self.sum_gram, share)), share

    def sum_gram(self, share: float, gram: Tensor) -> Tensor:
        """The sum of all processes' Grams, of any shape, for a term that each of them descends times its share."""
        with _heard():
            total: Tensor = _SumGram.apply(gram, share)  # type: ignore[no-untyped-call]
        return total

    @torch.no_grad()
    def sum_gradients(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
        """Sum every parameter's gradient over the processes, in place; returns the sum of their losses.

        A parameter that this process's part did not touch has a gradient of 0: it may have one elsewhere.
        """
        if self.alone:
            return loss
        parts: dict[torch.dtype, list[Tensor]] = {}
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parts.setdefault(parameter.dtype, []).append(parameter.grad)
        total = loss.clone()
        parts.setdefault(total.dtype, []).append(total)
        with _heard():
            for tensors in parts.values():
                flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
                distributed.all_reduce(flat)
                for tensor, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
                    tensor.copy_(summed.view_as(tensor))
        return total

    def draw_own_noise(self, seed: int, step: int) -> None:
        """From here on random numbers depend on the seed, the step and this process alone: a resumed run repeats them."""
        if self.alone:
            return
        stream = ((seed * 1_000_003 + step) * 8191 + self.rank) % (1 << 63)
        generator = torch.default_generator
        if self.device.type == "cuda":
            number = torch.cuda.current_device() if self.device.index is None else self.device.index
            generator = torch.cuda.default_generators[number]
        generator.manual_seed(stream)

    def agree(self, values: Sequence[float]) -> list[float]:
        """The first process's values, in all: what decides when to stop must not depend on anyone's rounding."""
        if self.alone:
            return list(values)
        told = torch.tensor(values, dtype=torch.float64).to(self.device)
        with _heard():
            distributed.broadcast(told, 0)
        return told.tolist()

    def once(self, work: Callable[[], bytes]) -> bytes:
        """What ``work`` returns in the first process, which alone does it. If it raises there, the others end too."""
        if self.alone:
            return work()
        done, error = b"", None
        if self.first:
            try:
                done = work()
            except Exception as raised:  # whatever it is, the others must not wait for it
                error = raised
        (length,) = self.agree([len(done) if error is None else -1])
        if error is not None:
            raise error
        if length < 0:
            raise FirstProcessError("The first process ended with an error.")
        if not length:
            return b""
        payload = bytearray(done) if self.first else bytearray(int(length))
        told = torch.frombuffer(payload, dtype=torch.uint8).to(self.device)
        with _heard():
            distributed.broadcast(told, 0)
        return told.cpu().numpy().tobytes()

    def check_same(self, digest: bytes, what: str) -> None:
        """Raise ``ValueError`` in all processes unless all of them have the same digest of ``what``."""
        if self.alone:
            return
        own = torch.tensor(list(digest), dtype=torch.uint8).to(self.device)
        all_of = [torch.empty_like(own) for _ in range(self.size)]
        with _heard():
            distributed.all_gather(all_of, own)
        other = next((rank for rank, one in enumerate(all_of) if not torch.equal(one, all_of[0])), None)
        if other is not None:
            raise ValueError(
                f"{what}: expected the same in all {self.size} processes, found that process {other + 1} has another than the first. Give all of them the same data and options (random_state too), on machines of one kind."
            )


@contextmanager
def _heard() -> Iterator[None]:
    """Raise ``LostProcessError`` where an exchange fails: torch says so with a ``RuntimeError`` about sockets."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LostProcessError):
            raise
        raise LostProcessError("Another process of this job ended, or was not heard of for too long.") from error
