"""Two processes that share every batch take the same steps as one; one that is killed ends the job with a checkpoint."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import processes_job as job
import pytest
import torch
from test_fit import OneDevice, model_and_guide, problem
from torch import distributed

from pdcc.inference import make_optimizer, map_guide, negative_elbo
from pdcc.inference.epoch_loop import descend
from pdcc.inference.isolation import isolated
from pdcc.inference.processes import Processes

# Float64 sums in another order: about 1e-16 each, a few times larger after every step of fifty.
SAME = 1e-10


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Where two processes worked, and what each of them found: fits in step, then one of them is killed."""
    place = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["pdcc.inference.svi"], "CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(job.Interrupted):
            job.steps_of(*job.CASES["stochastic"], stop=interrupt, checkpoint=place / "alone.state")
    command = [sys.executable, str(Path(job.__file__))]
    workers = [subprocess.Popen([*command, str(rank), "2", str(place)]) for rank in range(2)]
    assert [worker.wait(timeout=300) for worker in workers] == [0, -9]
    return place, [dict(np.load(place / f"{rank}.npz")) for rank in range(2)]


def interrupt():
    raise job.Interrupted


@pytest.fixture(scope="module")
def whole():
    return job.steps_of(*job.CASES["stochastic"])


def apart(found, name, alone, parts=("steps", "history", "end")):
    """The largest difference between a fit by several processes and the same alone."""
    for part in parts:
        assert found[f"{name}/{part}"].shape == alone[part].shape
    return max(np.abs(found[f"{name}/{part}"] - alone[part]).max() for part in parts)


@pytest.mark.parametrize("name", job.CASES)
def test_two_processes_take_the_steps_of_one(name, together, whole):
    """Every parameter after every step: likelihood, volume, priors and the partition count as they do in one process."""
    alone = whole if name == "stochastic" else job.steps_of(*job.CASES[name])
    assert name != "stochastic" or len(alone["steps"]) == job.STEPS
    assert np.abs(alone["steps"][-1] - alone["steps"][0]).max() > 1e-3  # not because nothing moved
    assert max(apart(found, name, alone) for found in together[1]) < SAME


def test_a_run_goes_on_with_another_number_of_processes(together, whole):
    place, found = together
    for one in found:  # begun by one, ended by two
        assert len(one["resumed/steps"]) == job.STEPS - job.EARLY
        assert apart(one, "resumed", whole, ("history", "end")) < SAME
    again = job.steps_of(*job.CASES["stochastic"], checkpoint=place / "together.state")  # begun by two, ended by one
    assert len(again["steps"]) == job.STEPS - job.EARLY - 1
    assert np.abs(again["end"] - whole["end"]).max() < SAME
    assert np.abs(again["history"] - whole["history"]).max() < SAME


def test_a_killed_process_ends_the_job_with_a_sentence_and_a_checkpoint(together):
    said = (together[0] / "lost.txt").read_text()
    assert said.startswith("Another process of this job ended")
    assert said.endswith(f"The state after step {job.EARLY + 1} is kept.")


def test_noise_differs_between_processes_and_their_parameters_do_not(together):
    alone = job.steps_of(*job.CASES["pooled, by descent"], dropout=0.5)
    first, second = (found["dropout/steps"] for found in together[1])
    assert np.array_equal(first, second)
    assert np.abs(first - alone["steps"]).max() > 1e-4
    drawn = {}
    with torch.random.fork_rng():
        for rank, step in ((0, 5), (1, 5), (0, 6), (1, 5)):
            Processes(rank, 2).draw_own_noise(3, step)
            drawn.setdefault((rank, step), []).append(float(torch.rand(())))
    assert len({numbers[0] for numbers in drawn.values()}) == 3
    assert drawn[1, 5][0] == drawn[1, 5][1]


def test_an_estimator_is_fitted_by_all_processes(together):
    alone = job.estimator().fit(*job.blobs()).memberships_
    start = job.estimator().set_params(lr=1e-9, confusion_lr=1e-9).fit(*job.blobs()).memberships_
    first, second = (found["estimator"] for found in together[1])
    assert np.array_equal(first, second)
    # Float32: 1e-7 for each of 24 steps; what was learned is far larger.
    assert np.abs(first - alone).max() < 1e-4 < 0.1 < np.abs(alone - start).max()


def test_processes_with_other_data_are_told(together):
    for found in together[1]:
        assert "expected the same in all 2 processes, found that process 2" in str(found["other data"])


def test_what_the_first_process_does_for_all_or_cannot_do_is_known_to_all(together):
    assert {str(found["told"]) for found in together[1]} == {"by the first"}
    assert [str(found["failed"]) for found in together[1]] == ["Interrupted", "FirstProcessError"]


def test_one_process_alone_exchanges_nothing():
    train, _ = problem()
    here = Processes.here(torch.device("cpu"))
    assert here == Processes()
    batch, share = here.batch(train, torch.arange(5))
    assert (batch.pool, share) == (None, 1.0)
    assert here.agree([1.5]) == [1.5]
    assert here.once(lambda: b"x") == b"x"
    state = torch.get_rng_state()
    here.draw_own_noise(0, 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def pretended():
    """A process group of two in which nobody else is, and exchanges do nothing: on any device, the meta device too."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("exact", [False, True], ids=["minibatch", "full"])
def test_a_shared_step_stays_on_the_models_device(exact, pretended):
    """On the meta device nothing can be read back, so no exchange waits for the host."""
    meta = torch.device("meta")
    model, _ = model_and_guide()
    model, pairs, index = model.to(meta), problem()[0].to(meta), torch.arange(33, device=meta)
    guide, here = map_guide(model), Processes.here(meta)
    assert (here.rank, here.size) == (1, 2)
    with isolated(0, meta):
        guide(pairs.batch(index))
        optimizer = make_optimizer(model, guide, job.WHOLE, fused=False)
        with OneDevice():
            batch, share = here.batch(pairs, index, exact_volume=exact)
            loss = negative_elbo(model, guide, batch) / (len(pairs) / share)
            total = descend(optimizer, loss, here.sum_gradients)
    assert (len(batch.index), share) == (16, 16 / 33)
    assert batch.x_all is None or len(batch.x_all) == 30
    assert total.device == meta


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_step_on_cuda_does_not_wait_for_the_host():
    cuda = torch.device("cuda")
    model, _ = model_and_guide()
    model, pairs = model.to(cuda), problem()[0].to(cuda)
    index, guide, here = torch.arange(32, device=cuda), map_guide(model), Processes.here(cuda)
    with isolated(0, cuda):
        guide(pairs.batch(index))
        optimizer = make_optimizer(model, guide, job.WHOLE)
        for step in range(3):
            torch.cuda.set_sync_debug_mode("error" if step else "default")  # the first step sets things up
            try:
                batch, share = here.batch(pairs, index)
                loss = negative_elbo(model, guide, batch) / (len(pairs) / share)
                descend(optimizer, loss, here.sum_gradients)
            finally:
                torch.cuda.set_sync_debug_mode("default")
