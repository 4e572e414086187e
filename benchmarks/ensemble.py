"""Replicates at once against one by one: how many times faster, by the size of the nets; and where that stops to pay.

    OMP_NUM_THREADS=1 python benchmarks/ensemble.py [--rounds 5] [--replicates 10]

Both train the same nets on the same answers for the same epochs, in one process and one thread, in turn; the ratio is the median
of the rounds' ratios. K clusters, 20 features, batches of 128; for the smallest and a middling net also the warm start.
"""

import argparse
import copy
import itertools
import statistics
import time

import torch

from pdcc.inference import FitConfig, PairTensors, fit, map_guide, warm_start
from pdcc.inference.together import fit_together, warm_start_together
from pdcc.models import AnnotationModel, Membership, make_confusion

N, M, D, EPOCHS = 600, 1280, 20, 2
NETS = ((16,), (32,), (64, 64), (128,), (512,), (512, 512))
NUMBERS = itertools.count()


def world(d, K):
    """Items, answers to train on and answers to judge by."""
    g = torch.Generator().manual_seed(0)
    x, kind = torch.randn(N, d, generator=g), torch.randint(K, (N,), generator=g)
    i, j = torch.randint(N, (2, M + 128), generator=g)
    similar = (kind[i] == kind[j]).float()
    return PairTensors(x, i[:M], j[:M], similar[:M]), PairTensors(x, i[M:], j[M:], similar[M:]), kind


def seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def ratio(alone, at_once, rounds):
    """Median over rounds of how many times faster the second is."""
    return statistics.median(seconds(alone) / seconds(at_once) for _ in range(rounds))


def fits(K, hidden, dropout, replicates, rounds):
    """(weights of a net, how many times faster its replicates are trained at once)."""
    pairs, held, _ = world(D, K)
    torch.manual_seed(0)
    nets = [Membership(D, K, hidden, dropout) for _ in range(replicates)]
    configs = [FitConfig(EPOCHS, 128, 1e-3, 1e-2, "adam", False, None, seed) for seed in range(replicates)]

    def programs():
        made = [
            AnnotationModel(copy.deepcopy(net), make_confusion("rates", K), n_pairs=M, name=f"bench{next(NUMBERS)}")
            for net in nets
        ]
        return made, [map_guide(model) for model in made]

    def alone():
        for model, guide, config in zip(*programs(), configs, strict=True):
            fit(model, guide, pairs, held, config)

    def at_once():
        fit_together(*programs(), [pairs] * replicates, [held] * replicates, configs)

    return sum(p.numel() for p in nets[0].parameters()), ratio(alone, at_once, rounds)


def starts(K, hidden, replicates):
    """How many times faster warm starts are at once, in one round: they have 400 steps each."""
    pairs, _, kind = world(D, K)
    nets = [Membership(D, K, hidden) for _ in range(replicates)]

    def alone():
        for seed, net in enumerate(copy.deepcopy(nets)):
            warm_start(net, pairs.x, kind, seed=seed)

    def at_once():
        warm_start_together(copy.deepcopy(nets), pairs.x, kind.expand(replicates, -1), list(range(replicates)))

    return ratio(alone, at_once, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replicates", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"S = {args.replicates} replicates; times as fast at once as one by one")
    print("| hidden | K | dropout | weights | ratio |\n|---|---|---|---|---|")
    for hidden, K, dropout in itertools.product(NETS, (3, 10), (0.0, 0.5)):
        weights, faster = fits(K, hidden, dropout, args.replicates, args.rounds)
        print(f"| {hidden} | {K} | {dropout:g} | {weights:,} | {faster:.1f} |", flush=True)
    for hidden in ((16,), (64, 64)):
        print(f"| {hidden}, warm start | 3 | 0 | | {starts(3, hidden, args.replicates):.1f} |", flush=True)


if __name__ == "__main__":
    main()
