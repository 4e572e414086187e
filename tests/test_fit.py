"""The training loop: it stops, recovers, resumes to the bit, and keeps to one device."""

import dataclasses
import logging
import math
import sys

import pytest
import torch
from helpers import make_blobs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pdcc import VolMaxDCC
from pdcc.errors import ArtifactError
from pdcc.inference import FitConfig, PairTensors, fit, index_batches, make_optimizer, map_guide, negative_elbo, probe
from pdcc.inference.training_state import TrainingState
from pdcc.models import AnnotationModel, Membership, PairBatch, make_confusion

CONFIG = FitConfig(epochs=6, batch_size=32, patience=None, seed=3)


def problem(n: int = 60, n_pairs: int = 200, device: str = "cpu") -> tuple[PairTensors, PairTensors]:
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    x = torch.randn(n, 4, generator=g) + 4 * torch.eye(4)[y]
    i, j = torch.randint(n, (2, n_pairs), generator=g)
    pairs = PairTensors(x, i, j, (y[i] == y[j]).float())
    held = PairTensors(x, i[:50], j[:50], pairs.similar[:50])
    train = PairTensors(x, i[50:], j[50:], pairs.similar[50:])
    return train.to(torch.device(device)), held.to(torch.device(device))


def model_and_guide(form: str = "stochastic", volume: float = 0.01, n_pairs: int = 150, dropout: float = 0.5):
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    model = AnnotationModel(
        Membership(4, 3, (16,), dropout),
        make_confusion(form, 3),
        n_pairs=n_pairs,
        volume=volume,
        partition=labels,
        partition_weight=0.1,
    )
    return model, map_guide(model)


def state(model, guide):
    return {
        **{f"m.{k}": v.clone() for k, v in model.state_dict().items()},
        **{f"g.{k}": v.clone() for k, v in guide.state_dict().items()},
    }


def test_training_learns_and_reports():
    train, held = problem()
    model, guide = model_and_guide()
    result = fit(model, guide, train, held, dataclasses.replace(CONFIG, epochs=40, lr=1e-2))
    assert result.status == "epochs used"
    assert len(result.history) == 40
    assert result.held_out < 0.5 * result.history[0]["held_out"]
    assert result.held_out == min(h["held_out"] for h in result.history)
    assert set(result.history[0]) == {"epoch", "loss", "held_out", "log_volume"}


def test_early_stopping_keeps_the_best_state():
    train, held = problem()
    flipped = dataclasses.replace(held, similar=1 - held.similar)  # held-out answers that training can only make worse
    model, guide = model_and_guide(dropout=0.0)
    patient = dataclasses.replace(CONFIG, epochs=50, lr=1e-2, patience=3)
    result = fit(model, guide, train, flipped, patient)
    assert result.status in ("converged", "start kept")
    assert len(result.history) == result.best_epoch + 1 + 3
    assert probe(model, guide, flipped).nll == pytest.approx(result.held_out, rel=1e-6)
    assert result.held_out <= result.start_held_out
    model, guide = model_and_guide(dropout=0.0)
    straight = fit(model, guide, train, held, patient)
    assert straight.best_epoch >= 0
    assert straight.held_out < straight.start_held_out


def test_a_start_that_no_epoch_improves_on_is_kept():
    train, held = problem()
    model, guide = model_and_guide(dropout=0.0)
    fit(model, guide, train, None, dataclasses.replace(CONFIG, epochs=40, lr=1e-2))  # a start that knows the answers
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flipped = dataclasses.replace(train, similar=1 - train.similar)
    result = fit(model, guide, flipped, held, dataclasses.replace(CONFIG, epochs=20, lr=1e-2, patience=2))
    assert result.status == "start kept"
    assert result.best_epoch == -1
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_number_of_epochs_is_kept_to():
    train, held = problem()
    for epochs in (0, 3):
        model, guide = model_and_guide(dropout=0.0)
        result = fit(model, guide, train, held, dataclasses.replace(CONFIG, epochs=epochs, patience=1, keep_last=True))
        assert len(result.history) == epochs
        assert all(math.isfinite(h["held_out"]) for h in result.history)
        last = probe(model, guide, held).nll
        assert epochs == 0 or last == pytest.approx(result.history[-1]["held_out"], rel=1e-5)


class Killed(Exception):
    pass


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("steps", [1, 7, 13])
def test_resume_ends_at_the_same_bits(tmp_path, monkeypatch, optimizer, steps):
    train, held = problem()
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    model, guide = model_and_guide()
    whole = fit(model, guide, train, held, config)
    expected = state(model, guide)

    taken = 0
    original = torch.optim.Optimizer.zero_grad

    def dies(self, *args, **kwargs):
        nonlocal taken
        taken += 1
        if taken > steps:
            raise Killed
        return original(self, *args, **kwargs)

    path = tmp_path / "state.safetensors"
    monkeypatch.setattr(sys.modules["pdcc.inference.svi"], "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", dies)
    model, guide = model_and_guide()
    with pytest.raises(Killed):
        fit(model, guide, train, held, config, checkpoint=path)
    monkeypatch.undo()

    torch.randn(10)  # whatever else uses torch's global stream must not matter
    model, guide = model_and_guide()
    resumed = fit(model, guide, train, held, config, checkpoint=path)
    assert resumed.resumed_at == steps
    assert resumed.history == whole.history
    for name, value in state(model, guide).items():
        assert torch.equal(value, expected[name]), name

    again = fit(*model_and_guide(), train, held, config, checkpoint=path)
    assert again.history == whole.history


def test_resume_under_another_configuration_is_refused(tmp_path):
    train, held = problem()
    path = tmp_path / "state.safetensors"
    fit(*model_and_guide(), train, held, CONFIG, checkpoint=path)
    with pytest.raises(ArtifactError, match="another configuration"):
        fit(*model_and_guide(), train, held, dataclasses.replace(CONFIG, lr=0.5), checkpoint=path)


def test_resume_with_other_data_or_another_net_is_refused(tmp_path):
    train, held = problem()
    path = tmp_path / "state.safetensors"
    fit(*model_and_guide(), train, held, CONFIG, checkpoint=path)
    with pytest.raises(ArtifactError, match="other data"):
        fit(*model_and_guide(), dataclasses.replace(train, similar=1 - train.similar), held, CONFIG, checkpoint=path)
    with pytest.raises(ArtifactError, match="another configuration"):
        fit(*model_and_guide(form="sigmoid"), train, held, CONFIG, checkpoint=path)


def test_a_short_tail_joins_the_batch_before_it():
    parts = index_batches(torch.arange(133), 32, least=6)
    assert [len(p) for p in parts] == [32, 32, 32, 37]
    assert torch.equal(torch.cat(parts), torch.arange(133))
    assert [len(p) for p in index_batches(torch.arange(134), 32, least=6)] == [32, 32, 32, 32, 6]
    assert [len(p) for p in index_batches(torch.arange(3), 32, least=6)] == [3]


def test_few_held_out_items_are_no_collapse():
    train, held = problem()
    few = PairTensors(held.x, held.i[:1], held.j[:1], held.similar[:1])  # two items, three clusters
    result = fit(*model_and_guide(volume=0.01), train, few, CONFIG)
    assert result.status == "epochs used"


def test_rates_after_recoveries_do_not_depend_on_their_history():
    train, _held = problem()
    model, guide = model_and_guide()
    guide(train.batch(torch.arange(2)))
    states = [
        TrainingState(torch.nn.ModuleDict({"model": model, "guide": guide}), make_optimizer(model, guide, CONFIG))
        for _ in range(2)
    ]
    for factor in (0.3, 0.3**2, 0.3**3):
        states[0].set_rate(factor)
    states[1].set_rate(0.3**3)
    assert [g["lr"] for g in states[0].optimizer.param_groups] == [g["lr"] for g in states[1].optimizer.param_groups]


def test_training_leaves_global_random_state_alone():
    train, held = problem()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    model, guide = model_and_guide()
    torch.manual_seed(11)
    fit(model, guide, train, held, CONFIG)
    assert torch.equal(torch.get_rng_state(), before)


def test_divergence_recovers_then_gives_up_with_a_sentence(caplog):
    train, held = problem()
    model, guide = model_and_guide(form="sigmoid", volume=0.01, dropout=0.0)
    model.partition_weight = 0.0
    blow_up_after(model, epochs=2, n_batches=5)
    with caplog.at_level(logging.WARNING):
        result = fit(model, guide, train, held, dataclasses.replace(CONFIG, epochs=12))
    assert result.status == "diverged"
    assert "Lower lr" in result.message
    assert "finite" in result.message
    assert sum("went back to the last good state" in r.message for r in caplog.records) == 3
    assert len(result.history) == 2
    assert all(torch.isfinite(v).all() for v in state(model, guide).values() if v.is_floating_point())
    assert math.isfinite(result.held_out)


def blow_up_after(model, epochs: int, n_batches: int) -> None:
    """Make the net return NaN in training from some step on, as an overflow would."""
    calls = -1  # the guide looks at the model once before training
    inner = model.membership.forward

    def forward(x):
        nonlocal calls
        calls += model.training
        out = inner(x)
        return out * math.nan if model.training and calls > epochs * n_batches else out

    model.membership.forward = forward


def test_collapsed_memberships_count_as_divergence():
    train, held = problem()
    model, guide = model_and_guide(form="none", volume=1e-6, dropout=0.0)
    model.partition_weight = 0.0
    with torch.no_grad():
        model.membership.layers[-1].weight.zero_()
        model.membership.layers[-1].bias.copy_(torch.tensor([80.0, 0.0, 0.0]))
    result = fit(model, guide, train, held, dataclasses.replace(CONFIG, lr=1e-9))
    assert result.status == "diverged"
    assert "collapsed" in result.message


class OneDevice(TorchDispatchMode):
    """Fails on any operator that sees tensors of two devices (0-dim constants included)."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen = {t.device.type for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)}
        assert len(seen) <= 1, f"{func} mixes {seen}"
        return func(*args, **(kwargs or {}))


def meta_step(form: str, exact: bool, plant: bool = False) -> None:
    from pdcc.inference.isolation import isolated

    meta = torch.device("meta")
    train, _ = problem()
    model, _ = model_and_guide(form)
    model = model.to(meta)
    pairs = train.to(meta)
    index = torch.arange(32, device=meta)
    guide = map_guide(model)
    with isolated(0, meta):
        guide(pairs.batch(index))
        optimizer = make_optimizer(model, guide, CONFIG, fused=False)
        if plant:
            model.confusion.concentration = torch.ones(3, 3) * 1.5
        with OneDevice():
            for _step in range(2):
                optimizer.zero_grad(set_to_none=True)
                loss = negative_elbo(model, guide, pairs.batch(index, exact_volume=exact)) / len(pairs)
                loss.backward()
                optimizer.step()
    assert loss.device == meta
    assert all(p.device == meta for p in (*model.parameters(), *guide.parameters()))


@pytest.mark.parametrize("form", ["none", "sigmoid", "stochastic"])
@pytest.mark.parametrize("exact", [False, True], ids=["minibatch", "full"])
def test_a_step_stays_on_the_models_device(form, exact):
    meta_step(form, exact)


def test_a_planted_cpu_tensor_is_caught():
    with pytest.raises(AssertionError, match="mixes"):
        meta_step("stochastic", False, plant=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_losses_match_the_cpu():
    train, held = problem()
    losses = {}
    for device in ("cpu", "cuda"):
        model, guide = model_and_guide(dropout=0.0)
        model = model.to(device)
        guide = map_guide(model)
        result = fit(model, guide, train.to(torch.device(device)), held.to(torch.device(device)), CONFIG)
        losses[device] = [h["loss"] for h in result.history]
    # Float32 sums in another order: relative error about 1e-6 a step, 30 steps.
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)


@pytest.mark.parametrize("form", ["none", "sigmoid", "stochastic"])
def test_a_posterior_step_stays_on_one_device(form):
    """The head model under its guide on the meta device: all sites, the volume and the partition."""
    from pdcc.inference.isolation import isolated
    from pdcc.models.last_layer import LastLayerModel, uncertain_confusion

    meta = torch.device("meta")
    train, _ = problem()
    fitted, _ = model_and_guide(form)
    model = LastLayerModel(fitted, 4, 1.0, len(train), uncertain_confusion(fitted.confusion, 3, None, torch.eye(3))).to(
        meta
    )
    pairs = train.to(meta)
    every = torch.arange(len(pairs), device=meta)
    batch = PairBatch(pairs.x, pairs.similar, every, torch.cat([pairs.i, pairs.j]))
    guide = map_guide(model)
    with isolated(0, meta):
        guide(batch)
        with OneDevice():
            loss = negative_elbo(model, guide, batch)
            loss.backward()
    assert loss.device == meta
    assert all(p.grad is not None for p in guide.parameters())


def test_small_nets_train_on_one_thread_and_the_users_own_on_all(monkeypatch):
    """Two threads that share a step of a millisecond wait for each other: on a busy machine a fit takes ten times as long."""
    blobs, seen = make_blobs(n=60, n_pairs=200), []
    real = torch.optim.Adam.step
    monkeypatch.setattr(
        torch.optim.Adam, "step", lambda self, *a: seen.append(torch.get_num_threads()) or real(self, *a)
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for network, threads in ((None, 1), (lambda: torch.nn.Linear(4, 3), 2)):
            seen.clear()
            setting = {"network": network, "epochs": 1, "confusion": "rates", "volume": 0.0, "random_state": 0}
            VolMaxDCC(3, **setting).fit(blobs.X, blobs.answers.pairs, blobs.answers.similar)
            assert set(seen) == {threads}
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
