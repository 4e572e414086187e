"""Speed of one process and of several, one thread each, on the same batches: interleaved medians, a ratio.

    python benchmarks/processes.py [--processes 2] [--rounds 15]

In every round the first process takes some steps alone, while the others wait, and then all take as many together.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import distributed, multiprocessing

from pdcc.inference import FitConfig, PairTensors, make_optimizer, map_guide, negative_elbo
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.inference.processes import TIMEOUT, Processes
from pdcc.models import AnnotationModel, Membership, make_confusion

CPU = torch.device("cpu")
N = M = 10_000
D, K, VOLUME = 512, 10, 1e-2


def world():
    g = torch.Generator().manual_seed(0)
    i, j = torch.randint(N, (2, M), generator=g)
    return PairTensors(torch.randn(N, D, generator=g), i, j, (torch.rand(M, generator=g) < 0.1).float())


def stepper(pairs, processes):
    """A function that takes the training step of ``fit`` on the pairs numbered ``index``, shared by ``processes``."""
    torch.manual_seed(0)
    model = AnnotationModel(Membership(D, K, (512, 512)), make_confusion("sigmoid", K), n_pairs=M, volume=VOLUME)
    guide = map_guide(model)
    with isolated(0, CPU):
        guide(pairs.batch(torch.arange(2)))  # lays out its parameters
    optimizer = make_optimizer(model, guide, FitConfig())

    def step(index):
        batch, share = processes.batch(pairs, index)
        return descend(optimizer, negative_elbo(model, guide, batch) / (M / share), processes.sum_gradients)

    return step


def seconds(step, index, repeats):
    began = time.perf_counter()
    for _ in range(repeats):
        step(index)
    return (time.perf_counter() - began) / repeats


def work(rank, size, place, rounds):
    """One process of the measurement; the first prints."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{place}/store", rank=rank, world_size=size, timeout=TIMEOUT
    )
    pairs = world()
    alone, together = stepper(pairs, Processes()), stepper(pairs, Processes.here(CPU))
    for batch, repeats in ((128, 20), (1024, 6), (8192, 2)):
        index, rows = torch.arange(batch), []
        for number in range(rounds + 1):  # the first round warms up
            distributed.barrier()
            with isolated(0, CPU):
                one = seconds(alone, index, repeats) if rank == 0 else 0.0
                distributed.barrier()
                row = one, seconds(together, index, repeats)
            rows += [row] if number else []
        one, several = (statistics.median(column) for column in zip(*rows, strict=True))
        if rank == 0:
            said = f"{1e3 * one:.2f} ms, {1e3 * several:.2f} ms"
            print(f"step of 1 process / of {size}, batch {batch}: {one / several:.2f}  ({said})", flush=True)
    distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        multiprocessing.spawn(work, (args.processes, Path(place), args.rounds), nprocs=args.processes)


if __name__ == "__main__":
    main()
