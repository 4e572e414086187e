"""Examples do what their first lines say, and those in docstrings give what they show."""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pdcc

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracies(text: str) -> list[float]:
    return [float(s) for s in re.findall(r"ACC (?:seen )?(0\.\d+|1\.0+)", text)]


def test_all_are_tested_and_short():
    assert {p.name for p in EXAMPLES.glob("*.py")} == {
        "train_svi.py", "own_network.py", "own_noise_model.py", "criticism.py"
    }  # fmt: skip
    assert all(len(p.read_text().splitlines()) < 80 for p in EXAMPLES.glob("*.py"))


def test_plain_svi_learns():
    scores = accuracies(run("train_svi.py", "--epochs", "11", "--pairs", "1500"))
    assert len(scores) == 3  # after the first and the last epoch, and unseen items
    assert scores[1] > scores[0]


@pytest.mark.slow
def test_a_network_of_ones_own_learns_and_is_loaded():
    out = run("own_network.py", "--epochs", "6", "--pairs", "2000")
    assert accuracies(out)[0] > 0.8
    assert "equal: True" in out


@pytest.mark.slow
def test_a_noise_model_of_ones_own_predicts_better():
    out = run("own_noise_model.py", "--epochs", "25", "--pairs", "3000")
    nats = [float(s) for s in re.findall(r"nats per answer (0\.\d+)", out)]
    assert len(nats) == 3
    assert nats[2] < min(nats[:2]) - 0.02
    sharp, blurred = (float(s) for s in re.findall(r"(?:sharp pairs|blurred ones) (\d\.\d+)", out))
    assert blurred > sharp + 0.3


@pytest.mark.slow
def test_criticism_tells_the_two_crowds_apart():
    one_by_one, once_per_item = run("criticism.py", "--epochs", "15", "--draws", "120").split("errors once per item")
    assert "misfit" not in one_by_one
    assert "misfit" in once_per_item


WITH_EXAMPLES = [
    "pdcc.data.answers", "pdcc.data.pairs", "pdcc.data.reading", "pdcc.datasets", "pdcc.errors", "pdcc.estimator",
    "pdcc.fitted", "pdcc.identifiability.ssc", "pdcc.metrics", "pdcc.models.annotation", "pdcc.oracles.families", "pdcc.select.count", "pdcc.select.sweep",
    pytest.param("pdcc.identifiability.diagnose", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def documented(thing) -> list[tuple[str, Any]]:
    """A public name as it is; of a public module, its functions."""
    if not inspect.ismodule(thing):
        return [(thing.__name__, thing)]
    own = [f for f in vars(thing).values() if inspect.isfunction(f) and f.__module__ == thing.__name__]
    return [(f"{thing.__name__}.{f.__name__}", f) for f in own if not f.__name__.startswith("_")]


# They read archives that are not part of the package.
NEEDS_DATA = {
    "pdcc.datasets.cifar10n",
    "pdcc.datasets.labelme",
    "pdcc.datasets.photographs",
    "pdcc.datasets.dwug",
    "pdcc.datasets.data_directory",
}


@pytest.mark.parametrize("name", [n for n in pdcc.__all__ if n != "__version__"])
def test_every_public_name_has_an_example_that_runs(name):
    """In its docstring, in a module whose examples are run above."""
    run_here = {m if isinstance(m, str) else m.values[0] for m in WITH_EXAMPLES}
    thing = getattr(pdcc, name)
    home = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    assert home in run_here
    assert inspect.getdoc(thing).count(">>>") > 0
    for own, part in documented(thing):
        assert own in NEEDS_DATA or "Examples:" in (part.__doc__ or ""), f"{own} has no Examples"
