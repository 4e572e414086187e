"""Speed as ratios, measured side by side in one process: interleaved medians of CPU seconds, one thread.

    python benchmarks/speed.py [--rounds 15] [--seeds 10]

1. One SVI step of pdcc against a lean hand-written torch loop: same net (512-512-512-10), same data, same fused Adam; and
   the same step by plain pyro.infer.SVI with pyro.optim, and the net's matrix products alone, which no step can do without.
2. An epoch with the exact volume of all N items against the minibatch volume.
3. Paired seeds: do minibatch and full volume end at the same accuracy?
"""

import argparse
import statistics
import time

import numpy as np
import pyro
import torch
from pyro.infer import SVI, Trace_ELBO

from pdcc import VolMaxDCC, datasets, metrics
from pdcc.annotators import draw_pairs, machine_annotator
from pdcc.inference import FitConfig, PairTensors, make_optimizer, map_guide, negative_elbo
from pdcc.inference.isolation import isolated
from pdcc.models import AnnotationModel, Membership, make_confusion

N = M = 10_000
D, K, VOLUME = 512, 10, 1e-2


def world():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=g)
    i, j = torch.randint(N, (2, M), generator=g)
    return PairTensors(x, i, j, (torch.rand(M, generator=g) < 0.1).float())


def ours(pairs, form="sigmoid"):
    """A function that takes pdcc's own training step on the pairs numbered ``index``."""
    torch.manual_seed(0)
    model = AnnotationModel(Membership(D, K, (512, 512)), make_confusion(form, K), n_pairs=M, volume=VOLUME)
    guide = map_guide(model)
    with isolated(0, torch.device("cpu")):
        guide(pairs.batch(torch.arange(2)))  # lays out its parameters
    optimizer = make_optimizer(model, guide, FitConfig())

    def step(index, exact=False):
        optimizer.zero_grad(set_to_none=True)
        loss = negative_elbo(model, guide, pairs.batch(index, exact_volume=exact)) / M
        loss.backward()
        optimizer.step()
        return loss

    return step


def plain(pairs, form="sigmoid"):
    """The same step by Pyro's own SVI and optimiser, over param sites."""
    pyro.clear_param_store()
    torch.manual_seed(0)
    model = AnnotationModel(Membership(D, K, (512, 512)), make_confusion(form, K), n_pairs=M, volume=VOLUME)
    svi = SVI(model, map_guide(model), pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO())
    return lambda index: svi.step(pairs.batch(index))


def lean(pairs):
    """The same step written straight in torch, as someone in a hurry would."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(D, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, K),
        torch.nn.Softmax(-1),
    )
    raw = torch.nn.Parameter(2 * torch.eye(K) - 1)
    optimizer = torch.optim.Adam([{"params": net.parameters()}, {"params": [raw], "lr": 1e-2}], lr=1e-3, fused=True)
    eye = 1e-10 * torch.eye(K, dtype=torch.float64)

    def step(index):
        optimizer.zero_grad(set_to_none=True)
        f = net(pairs.x[torch.cat([pairs.i[index], pairs.j[index]])])
        left, right = f.chunk(2)
        p = ((left @ torch.sigmoid(raw)) * right).sum(-1).clamp(1e-6, 1 - 1e-6)
        gram = f.double().T @ f.double() / len(f) + eye
        loss = torch.nn.functional.binary_cross_entropy(p, pairs.similar[index]) - VOLUME * torch.logdet(gram)
        loss.backward()
        optimizer.step()
        return loss

    return step


def products(pairs):
    """The matrix products of the net of a step, forward and backward, and nothing else: those of x need no gradient."""
    g = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=g) for shape in ((512, D), (512, 512), (K, 512))]

    def step(index):
        inputs = [pairs.x[: 2 * len(index)]]
        for weight in weights:
            inputs.append(inputs[-1] @ weight.t())
        gradient = inputs.pop()
        for number, weight in reversed(list(enumerate(weights))):
            gradient.t() @ inputs[number]
            gradient = gradient @ weight if number else gradient

    return step


def seconds(step, index, repeats, **options):
    began = time.process_time()  # what other programs do meanwhile does not count
    for _ in range(repeats):
        step(index, **options)
    return (time.process_time() - began) / repeats


def step_times(batch, rounds):
    """Medians of interleaved rounds: our step, the lean one, the matrix products alone, and that of plain SVI, in seconds."""
    pairs = world()
    mine, by_hand, alone, by_pyro = ours(pairs), lean(pairs), products(pairs), plain(pairs)
    index = torch.arange(batch)
    repeats = 20 if batch <= 128 else 6

    def one_round(n):
        with isolated(0, torch.device("cpu")):
            first = seconds(mine, index, n), seconds(by_hand, index, n), seconds(alone, index, n)
        return *first, seconds(by_pyro, index, n)

    one_round(5)
    rows = [one_round(repeats) for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def volume_ratio(rounds):
    pairs = world()
    step = ours(pairs)
    index = torch.arange(128)
    with isolated(0, torch.device("cpu")):
        seconds(step, index, 3)
        rows = [(seconds(step, index, 1, exact=True), seconds(step, index, 10)) for _ in range(rounds)]
    full, mini = (statistics.median(column) for column in zip(*rows, strict=True))
    return full / mini, full, mini


def accuracy_pairs(seeds):
    found = []
    for seed in range(seeds):
        data = datasets.digits(seed=seed)
        rng = np.random.default_rng(seed)
        answers = machine_annotator(data.X, data.y, draw_pairs(len(data.X), 2000, rng), n_labels=40, seed=seed)
        row = []
        for estimator in ("minibatch", "full"):
            est = VolMaxDCC(
                10,
                confusion="stochastic",
                volume=VOLUME,
                volume_estimator=estimator,
                hidden=(128,),
                epochs=20,
                random_state=seed,
                progress=False,
            )
            row.append(metrics.acc(data.y, est.fit(data.X, answers.pairs, answers.similar).labels_))
        print(f"  seed {seed}: minibatch {row[0]:.3f}  full {row[1]:.3f}", flush=True)
        found.append(row)
    return np.array(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for batch in (128, 1024):
        mine, by_hand, alone, by_pyro = step_times(batch, args.rounds)
        print(
            f"SVI step / lean torch step, batch {batch}: {mine / by_hand:.3f}  ({1e3 * mine:.2f} ms, {1e3 * by_hand:.2f} ms)"
        )
        print(
            f"matrix products alone / SVI step, batch {batch}: {alone / mine:.2f}; / lean torch step: {alone / by_hand:.2f}  ({1e3 * alone:.2f} ms)"
        )
        print(
            f"plain pyro.infer.SVI / lean torch step, batch {batch}: {by_pyro / by_hand:.3f}  ({1e3 * by_pyro:.2f} ms)",
            flush=True,
        )
    ratio, full, mini = volume_ratio(args.rounds)
    print(
        f"step with full volume / minibatch volume, N = {N}, batch 128: {ratio:.1f}  ({1e3 * full:.0f} ms, {1e3 * mini:.2f} ms)",
        flush=True,
    )
    scores = accuracy_pairs(args.seeds)
    difference = scores[:, 0] - scores[:, 1]
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    print(
        f"ACC minibatch {scores[:, 0].mean():.4f}, full {scores[:, 1].mean():.4f}; paired difference {difference.mean():+.4f} ± {error:.4f} ({args.seeds} seeds)"
    )


if __name__ == "__main__":
    main()
