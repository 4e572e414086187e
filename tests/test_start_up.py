"""Starting is cheap: neither ``import pdcc`` nor ``pdcc --help`` loads torch, Pyro or ArviZ; names come when they are used."""

import os
import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

import pdcc

HEAVY = ("torch", "pyro", "arviz", "sklearn", "scipy", "pandas", "matplotlib", "numpy")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import pdcc",
        "import pdcc; dir(pdcc); pdcc.__all__",
        "from pdcc.cli import main\ntry: main(['--help'])\nexcept SystemExit as stop: assert stop.code == 0",
        "from pdcc.cli import main\ntry: main(['fit', '--help'])\nexcept SystemExit as stop: assert stop.code == 0",
        "from pdcc.cli import main\ntry: main(['--version'])\nexcept SystemExit as stop: assert stop.code == 0",
    ],
    ids=["import", "dir", "help", "help of a command", "version"],
)
def test_nothing_heavy_is_loaded(code):
    out = run(f"import sys\n{code}\nprint('loaded:', *[m for m in {HEAVY} if m in sys.modules])")
    assert out.strip().splitlines()[-1] == "loaded:"


def test_every_public_name_is_found():
    for name in pdcc.__all__:
        assert getattr(pdcc, name) is getattr(pdcc, name), name
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        pdcc.nothing_of_the_kind  # noqa: B018
    assert set(pdcc.__all__) <= set(dir(pdcc))


def test_shell_completion_is_on():
    """A shell asks by these variables; "pdcc di" then Tab."""
    code = "import sys; sys.argv[0] = 'pdcc'\nfrom pdcc.cli import main\nmain([])"
    asked = {"_PDCC_COMPLETE": "complete_bash", "COMP_WORDS": "pdcc di", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | asked
    )
    assert done.stdout.split() == ["diagnose"]


def test_a_checkout_is_whole_without_being_installed():
    """A script in the checkout's own directory finds this pdcc/ before an installed one: models and inference must come with it."""
    for name in ("pdcc.models", "pdcc.inference"):
        assert PathFinder.find_spec(name, pdcc.__path__) is not None
