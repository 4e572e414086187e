"""Mixed precision: the net's products are rounded while it trains, and nothing else."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from pdcc import PairData, VanillaDCC, VolMaxDCC, metrics
from pdcc.cli import app
from pdcc.errors import ArtifactError
from pdcc.models import Membership, objective
from pdcc.models.volume import log_volume

HOW = {"hidden": (16,), "epochs": 4, "scale": "standard", "init": "kmeans", "random_state": 0, "progress": False}


def test_only_the_nets_own_products_are_rounded():
    torch.manual_seed(0)
    net, x = Membership(4, 3, (8,), dropout=0.5), torch.randn(20, 4)
    net.mixed = True
    seen = []
    for layer in net.layers:
        layer.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    f = net.train()(x)
    assert set(seen) == {torch.bfloat16}
    assert f.dtype == torch.float32
    torch.testing.assert_close(f.sum(1), torch.ones(20))
    f.sum().backward()
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32}
    seen.clear()
    net.eval()(x)  # predictions
    assert set(seen) == {torch.float32}
    assert net.train().to("meta")(x.to("meta")).device.type == "meta"  # where nothing can be rounded, nothing is


@pytest.mark.parametrize("kind", [VolMaxDCC, VanillaDCC])
def test_a_fit_in_mixed_precision_finds_the_clusters_and_is_kept(kind, noisy_blobs, tmp_path, monkeypatch):
    a, volumes = noisy_blobs.answers, []

    def volume(f, pool=None):
        found = log_volume(f, pool)
        volumes.append((f.dtype, found.dtype))
        return found

    monkeypatch.setattr(objective, "log_volume", volume)
    found = {}
    for mixed in (False, True):
        found[mixed] = kind(3, mixed_precision=mixed, **HOW).fit(noisy_blobs.X, a.pairs, a.similar)
    exact, rounded = found[False], found[True]
    assert not np.array_equal(exact.memberships_, rounded.memberships_)
    # bfloat16 keeps 8 bits: scores of a few units are off by a hundredth or two.
    assert np.abs(exact.memberships_ - rounded.memberships_).max() < 0.1
    assert metrics.acc(noisy_blobs.y, rounded.labels_) == pytest.approx(
        metrics.acc(noisy_blobs.y, exact.labels_), abs=0.02
    )
    assert rounded.memberships_.dtype == exact.memberships_.dtype
    assert set(volumes) == ({(torch.float32, torch.float64)} if kind is VolMaxDCC else set())
    assert {p.dtype for p in rounded.model_.parameters()} == {torch.float32}
    rounded.save(tmp_path / "run")
    again = kind.load(tmp_path / "run")
    assert again.get_params()["mixed_precision"] is True
    np.testing.assert_array_equal(again.predict_proba(noisy_blobs.X), rounded.predict_proba(noisy_blobs.X))


def test_a_checkpoint_of_another_precision_is_refused(noisy_blobs, tmp_path):
    a = noisy_blobs.answers
    data = PairData.from_arrays(noisy_blobs.X, a.pairs, a.similar)
    how = HOW | {"confusion": "stochastic", "volume": 0.01}
    VolMaxDCC(3, mixed_precision=True, **how).fit_data(data, checkpoints=tmp_path)
    with pytest.raises(ArtifactError, match="another configuration"):
        VolMaxDCC(3, **how).fit_data(data, checkpoints=tmp_path)


def test_the_shell_knows_mixed_precision_and_resumes_runs_that_did_not(noisy_blobs, tmp_path):
    a = noisy_blobs.answers
    np.save(tmp_path / "x.npy", noisy_blobs.X)
    table = pd.DataFrame({"i": a.pairs[:, 0], "j": a.pairs[:, 1], "similar": a.similar.astype(int)})
    table.to_csv(tmp_path / "pairs.csv", index=False)
    files = [str(tmp_path / name) for name in ("x.npy", "pairs.csv")]
    how = [
        "-k",
        "3",
        "--epochs",
        "2",
        "--confusion",
        "none",
        "--volume",
        "0",
        "--scale",
        "standard",
        "--init",
        "kmeans",
    ]

    def fit(run, *more):
        return CliRunner().invoke(app, ["fit", *files, *how, "-o", str(tmp_path / run), *more])

    assert fit("rounded", "--mixed-precision").exit_code == 0
    assert VolMaxDCC.load(tmp_path / "rounded").mixed_precision is True
    assert fit("plain").exit_code == 0
    # Runs that were made before there was such an option say nothing of it.
    assert "mixed_precision" not in json.loads((tmp_path / "plain" / "run.json").read_text())["options"]
    assert fit("plain", "--resume").exit_code == 0
    assert "mixed_precision" in str(fit("plain", "--resume", "--mixed-precision").exception)
