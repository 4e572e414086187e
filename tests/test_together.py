"""Fits trained at once are the fits one by one: the same orders, the same best epochs, the same numbers to rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pdcc import VolMaxDCC, together
from pdcc.accuracy.folds import fold_fits
from pdcc.data.pairs import PairData
from pdcc.inference import FitConfig, PairTensors, fit, map_guide, memberships, point_agreement, warm_start
from pdcc.inference.members import MemberStack
from pdcc.inference.predict import probe
from pdcc.inference.together import fit_together, warm_start_together
from pdcc.models import CONFUSIONS, AnnotationModel, Membership, make_confusion
from pdcc.models.modules import plain_weights
from pdcc.select.numbers import FOLDS, VOLUMES

N, D, K = 40, 3, 3


def world(seed: int, m: int, *, weights: bool = False) -> PairTensors:
    """Answers about blobs, one in ten mistaken, in float64; of three annotators, and weighted where asked for."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.arange(N) % K
    x = 2 * torch.eye(K, D, dtype=torch.float64)[kind] + torch.randn(
        N, D, generator=torch.Generator().manual_seed(99), dtype=torch.float64
    )
    i = torch.randint(N, (m,), generator=g)
    j = (i + 1 + torch.randint(N - 1, (m,), generator=g)) % N
    similar = (kind[i] == kind[j]) ^ (torch.rand(m, generator=g) < 0.1)
    weight = 0.5 + torch.rand(m, generator=g, dtype=torch.float64) if weights else None
    return PairTensors(x, i, j, similar.double(), torch.randint(3, (m,), generator=g), weight)


def program(form: str, seed: int, pairs: PairTensors, *, volume: float = 1e-3, partition: float = 0.0, dropout=0.0):
    """A model of a form, with a start and labels of its own, and its guide."""
    torch.manual_seed(seed)
    net = Membership(D, K, (7,), dropout).double()
    start = (0.2 + 0.1 * torch.rand(K, K) + 0.5 * torch.eye(K)).double()
    model = AnnotationModel(
        net, make_confusion(form, K, 3, start), n_pairs=len(pairs), volume=volume, total_weight=pairs.total_weight,
        partition=(torch.arange(N) + seed) % K, partition_weight=partition, name=f"together{form}{seed}{partition}",
    ).double()  # fmt: skip
    return model, map_guide(model)


def both(form: str, pairs, held, config: FitConfig, **options):
    """(results, models, guides) one by one, and the same at once."""
    configs = [replace(config, seed=5 + r) for r in range(len(pairs))]
    alone = [program(form, r, own, **options) for r, own in enumerate(pairs)]
    results = [fit(*alone[r], pairs[r], None if held is None else held[r], configs[r]) for r in range(len(pairs))]
    many = [program(form, r, own, **options) for r, own in enumerate(pairs)]
    found = fit_together([m for m, _ in many], [g for _, g in many], pairs, held, configs)
    return (results, alone), (found, many)


@pytest.fixture
def short_starts(monkeypatch) -> None:
    """Warm starts of 40 steps."""
    monkeypatch.setattr("pdcc.inference.warmstart.START_STEPS", 40)


@pytest.mark.parametrize("form", CONFUSIONS)
@pytest.mark.parametrize("partition", [0.0, 0.2], ids=["pairs-only", "partition"])
def test_members_end_where_they_would_alone(form, partition):
    """Answers, weights, starts and labels of their own, batches of unlike lengths; three epochs kept by held-out answers."""
    pairs = [world(r, m, weights=True) for r, m in enumerate((70, 66, 75))]
    held = [world(10 + r, m) for r, m in enumerate((20, 25, 20))]
    config = FitConfig(3, 25, 1e-2, 2e-2, "adam", False, 2, 0)
    (results, alone), (found, many) = both(form, pairs, held, config, partition=partition)
    for r in range(3):
        assert found[r].best_epoch == results[r].best_epoch
        assert found[r].status is results[r].status
        assert found[r].held_out == pytest.approx(results[r].held_out, rel=1e-8)
        assert found[r].start_held_out == pytest.approx(results[r].start_held_out, rel=1e-10)
        for ours, theirs in zip(found[r].history, results[r].history, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-8)
        F, B = (memberships(many[r][0], pairs[r].x), point_agreement(*many[r]))
        torch.testing.assert_close(F, memberships(alone[r][0], pairs[r].x), rtol=0, atol=1e-8)
        torch.testing.assert_close(B, point_agreement(*alone[r]), rtol=0, atol=1e-8)
    assert abs(found[0].held_out - found[1].held_out) > 1e-4


def test_every_member_stops_by_itself_and_keeps_its_own_epoch():
    pairs, held = [world(r, 60) for r in range(5)], [world(20 + r, 12) for r in range(5)]
    config = FitConfig(40, 30, 5e-2, 5e-2, "adam", False, 3, 0)
    (results, _), (found, _) = both("rates", pairs, held, config)
    assert [r.best_epoch for r in found] == [r.best_epoch for r in results]
    assert [len(r.history) for r in found] == [len(r.history) for r in results]
    assert len({r.best_epoch for r in found}) > 1  # or the test says nothing
    assert [r.message for r in found] == [r.message for r in results]


@pytest.mark.parametrize("keep_last", [False, True])
def test_with_nothing_held_out_the_last_epoch_is_kept(keep_last):
    pairs = [world(r, 60) for r in range(3)]
    config = FitConfig(4, 30, 1e-2, 1e-2, "adam", False, None, 0, keep_last)
    (results, alone), (found, many) = both("pooled", pairs, None, config)
    for r in range(3):
        assert found[r].best_epoch == 3
        assert found[r].history[-1] == pytest.approx(results[r].history[-1], rel=1e-8)
        F = memberships(many[r][0], pairs[r].x)
        torch.testing.assert_close(F, memberships(alone[r][0], pairs[r].x), rtol=0, atol=1e-8)


def test_a_member_that_breaks_is_left_to_be_trained_alone():
    """One start is not finite; the others are as they would be without it."""
    pairs = [world(r, 60) for r in range(3)]
    config = FitConfig(3, 30, 1e-2, 1e-2, "adam", False, None, 0, True)
    many = [program("rates", r, own) for r, own in enumerate(pairs)]
    with torch.no_grad():
        next(many[1][0].membership.parameters()).fill_(torch.nan)
    configs = [replace(config, seed=5 + r) for r in range(3)]
    found = fit_together([m for m, _ in many], [g for _, g in many], pairs, None, configs)
    assert found[1] is None
    for r in (0, 2):
        model, guide = program("rates", r, pairs[r])
        result = fit(model, guide, pairs[r], None, configs[r])
        assert found[r].history[-1] == pytest.approx(result.history[-1], rel=1e-8)


def test_starts_are_warmed_at_once_as_they_are_alone(short_starts):
    x, labels = world(0, 5).x, torch.stack([(torch.arange(N) + r) % K for r in range(3)])
    torch.manual_seed(0)
    nets = [Membership(D, K, (6,)).double() for _ in range(3)]
    alone = [Membership(D, K, (6,)).double() for _ in range(3)]
    for net, same in zip(nets, alone, strict=True):
        same.load_state_dict(net.state_dict())
    warm_start_together(nets, x, labels, [3, 4, 5])
    for r, net in enumerate(alone):
        warm_start(net, x, labels[r], seed=3 + r)
        torch.testing.assert_close(nets[r](x), net(x), rtol=0, atol=1e-8)


OPTIONS = {"confusion": "rates", "volume": 0.0, "scale": "standard", "hidden": (16,), "dropout": 0.0, "random_state": 0}


def forbid(*_):
    raise AssertionError("trained one by one")


def test_restarts_are_trained_at_once_and_the_best_is_the_same(noisy_blobs, monkeypatch, short_starts):
    """Small nets; every restart has its own start, and the one kept is the one that would be kept one by one."""
    given = noisy_blobs.X, noisy_blobs.answers.pairs, noisy_blobs.answers.similar
    with monkeypatch.context() as patch:
        patch.setattr(together, "SMALL", 0)
        alone = VolMaxDCC(3, n_init=3, epochs=6, **OPTIONS).fit(*given)
    with monkeypatch.context() as patch:
        patch.setattr(together.Job, "run", forbid)
        at_once = VolMaxDCC(3, n_init=3, epochs=6, **OPTIONS).fit(*given)
    np.testing.assert_allclose(at_once.memberships_, alone.memberships_, atol=1e-4)  # float32, 100 steps
    assert at_once.report_.epochs == alone.report_.epochs
    first = VolMaxDCC(3, n_init=1, epochs=6, **OPTIONS).fit(*given)
    assert at_once.history_[-1]["held_out"] <= first.history_[-1]["held_out"] + 1e-6


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_fold_fits_are_trained_at_once(noisy_blobs, monkeypatch, short_starts, dropout):
    """Without dropout the same as one by one; with it, other units are dropped, and memberships are as pure."""
    given = noisy_blobs.X, noisy_blobs.answers.pairs, noisy_blobs.answers.similar
    est = VolMaxDCC(3, epochs=25, lr=5e-3, **OPTIONS | {"dropout": dropout}).fit(*given)
    data = PairData.from_arrays(*given)
    with monkeypatch.context() as patch:
        patch.setattr(together, "SMALL", 0)
        (alone,) = fold_fits(est.fitted_, data, (0.8,))
    with monkeypatch.context() as patch:
        patch.setattr(together.Job, "run", forbid)
        (at_once,) = fold_fits(est.fitted_, data, (0.8,))
    assert len(alone.memberships) == 5
    if dropout == 0:
        np.testing.assert_allclose(at_once.memberships, alone.memberships, atol=1e-4)
    else:
        assert np.abs(at_once.memberships - alone.memberships).max() > 1e-4
        purity = [fits.memberships.max(2).mean() for fits in (at_once, alone)]
        assert abs(purity[0] - purity[1]) < 0.02  # .005 here, and .027 where dropout is left out


def test_what_cannot_be_stacked_is_trained_alone(noisy_blobs, monkeypatch, short_starts):
    given = noisy_blobs.X, noisy_blobs.answers.pairs, noisy_blobs.answers.similar
    monkeypatch.setattr(together, "fit_together", forbid)
    for other in (
        {"optimizer": "sgd"},
        {"volume": 1e-3, "volume_estimator": "full"},
        {"network": lambda: torch.nn.Linear(4, 3)},
    ):
        est = VolMaxDCC(3, n_init=2, epochs=1, **OPTIONS | other).fit(*given)
        assert est.memberships_.shape == (len(noisy_blobs.X), 3)


def test_fits_made_at_once_are_found_again_where_they_were_kept(tmp_path, noisy_blobs, monkeypatch):
    """A run that was killed in its last fit compares nothing again; one that lacks a part of a comparison makes all folds of that again."""
    a = noisy_blobs.answers
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar)
    est = VolMaxDCC(3, confusion="stochastic", hidden=(8,), scale="standard", random_state=0, progress=False)
    plain = est.fit_data(data).memberships_.copy()
    made = []
    at_once = together.fit_together
    monkeypatch.setattr(together, "fit_together", lambda *a, **k: made.append(len(a[0])) or at_once(*a, **k))
    np.testing.assert_array_equal(est.fit_data(data, checkpoints=tmp_path).memberships_, plain)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert made == [FOLDS] * len(VOLUMES)
    assert sum("fold" in name for name in kept) == FOLDS * len(VOLUMES)
    made.clear()
    np.testing.assert_array_equal(est.fit_data(data, checkpoints=tmp_path).memberships_, plain)
    assert made == []
    one = next(path for path in tmp_path.iterdir() if "fold-2" in path.name)
    one.unlink()
    np.testing.assert_array_equal(est.fit_data(data, checkpoints=tmp_path).memberships_, plain)
    assert made == [FOLDS]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_each_member_is_looked_at_by_its_own_items():
    """As ``probe`` alone does: other numbers of items and answers, weights, annotators."""
    pairs = [world(seed, m, weights=True) for seed, m in ((0, 3), (1, 60), (2, 25))]
    programs = [program("per-annotator", r, own) for r, own in enumerate(pairs)]
    for model, guide in programs:
        model.eval()
        guide(pairs[0].batch(torch.arange(2)))
    found = MemberStack([m for m, _ in programs], [g for _, g in programs], pairs).probe(pairs)
    for now, (model, guide), own in zip(found, programs, pairs, strict=True):
        with plain_weights():
            alone = probe(model, guide, own)
        assert (now.nll, now.log_volume) == pytest.approx((alone.nll, alone.log_volume), rel=1e-9)
        assert now.smallest_eigenvalue == pytest.approx(alone.smallest_eigenvalue, rel=1e-6)
