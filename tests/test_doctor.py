"""pdcc doctor says what is installed, what it computes on, and which data it sees."""

import re
from importlib.metadata import version

import pytest

from pdcc import datasets
from pdcc.cli import doctor, main


def said(capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["doctor"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_versions_and_devices_are_said(capsys, monkeypatch):
    monkeypatch.delenv("PDCC_DATA", raising=False)
    out = said(capsys)
    for name in ("pdcc", "torch", "pyro-ppl", "numpy", "scikit-learn"):
        assert f"{name} {version(name)}" in out
    assert re.search(r"Computes on (the CPU|CUDA)", out)
    assert "PDCC_DATA is not set" in out


def test_data_that_is_there_is_told_from_data_that_is_not(capsys, monkeypatch, tmp_path):
    (tmp_path / "labelme.npz").write_bytes(b"")
    monkeypatch.setenv("PDCC_DATA", str(tmp_path))
    last = said(capsys).splitlines()[-1]
    found, lacking = last.split("; not there: ")
    assert found.endswith(": labelme.npz")
    assert set(lacking.rstrip(".").split(", ")) == {*datasets.ARCHIVES, "paper/"} - {"labelme.npz"}
    (tmp_path / "paper").mkdir()
    for name in datasets.ARCHIVES:
        (tmp_path / name).write_bytes(b"")
    assert "not there" not in said(capsys)


def test_an_extra_that_is_lacking_is_named_with_its_command(capsys, monkeypatch):
    assert doctor.packages_of("label") == ["starlette", "uvicorn"]
    there = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: name != "uvicorn" and there(name))
    (line,) = [line for line in said(capsys).splitlines() if line.startswith("Extra label")]
    assert line.endswith("not installed (uvicorn): pip install 'pdcc[label]'.")
    assert not there("a-package-of-no-name")
