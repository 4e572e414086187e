"""The pages: their examples run, their links lead somewhere, the commands they name exist, and the site is built without a warning."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import make_blobs
from typer.main import get_command

import pdcc
from pdcc.cli import app, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"))
)
# Run, cell by cell, when the site is built: once is enough for what takes more than a minute.
BUILT = "docs/tutorial.md"
# Fits of full size, or several of them.
SLOW = {
    "README.md", "docs/answers.md", "docs/benchmark.md", "docs/howto/annotators.md", "docs/howto/n_clusters.md", "docs/howto/scikit_learn.md",
    "docs/identifiability.md", "docs/report.md",
}  # fmt: skip

BEFORE = "run before the example"
BLOCK = re.compile(
    rf"<!-- {BEFORE}\n(?P<before>.*?)-->|```(?:python|\{{code-cell\}})\n(?P<shown>.*?\n)```\n", flags=re.DOTALL
)
CONSOLE = re.compile(r"```console\n(.*?)```", flags=re.DOTALL)


def blocks(page: str) -> list[str]:
    """The Python of a page in its order, with what it need not show; options of notebook cells left out."""
    found = [m["before"] or m["shown"] for m in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    return [re.sub(r"\A(?::\w+:.*\n)+", "", block) for block in found]


def commands(page: str) -> list[str]:
    """What a page types at a prompt, without comments."""
    lines = "\n".join(CONSOLE.findall((ROOT / page).read_text(encoding="utf-8"))).splitlines()
    return [line.split("#")[0].strip() for line in lines if not line.startswith(">>>")]


WITH_PYTHON = [
    pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page
    for page in PAGES
    if blocks(page) and page != BUILT
]


def test_slow_pages_are_pages_with_examples():
    assert SLOW <= {page for page in PAGES if blocks(page)}
    assert len(WITH_PYTHON) > 12


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    """All of them in one place and in their order, as a reader would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, object] = {"__name__": "page"}
    try:
        for number, block in enumerate(blocks(page)):
            exec(compile(block, f"{page}, block {number}", "exec"), names)
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (path.parent / link).exists(), f"{page} links to {link}"
    for link in re.findall(r"<(\.\./[^>]+)>", text):
        assert (path.parent / link).exists(), f"{page} offers {link}"


@pytest.mark.parametrize("page", [page for page in PAGES if any(c.startswith("pdcc ") for c in commands(page))])
def test_commands_of_a_page_exist(page):
    known = get_command(app).commands
    for line in commands(page):
        program, *words = shlex.split(re.sub(r"^(\w+=\S+ )+", "", line) or "none")
        if program != "pdcc":
            continue
        assert words[0] in known, line
        options = {name for p in known[words[0]].params for name in p.opts}
        given = {word for word in words if re.fullmatch(r"-\w|--[\w-]+", word)}
        assert given <= options, f"{line}: no {given - options}"


def test_every_make_target_that_a_page_names_exists():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for line in commands(page):
            if line.startswith("make "):
                assert f"\n{line.split()[1]}: " in makefile, f"{page}: {line}"


def test_the_reference_has_every_public_name():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"auto(?:class|function|exception|module):: pdcc\.(\w+)\n", text))
    assert set(pdcc.__all__) - {"__version__"} <= shown


def test_readme_is_short():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


@pytest.mark.slow
def test_the_shell_guide_runs_as_it_stands(tmp_path, monkeypatch):
    """Every command of the guide, one after the other, on files of its names."""
    monkeypatch.chdir(tmp_path)
    made = make_blobs(flip=0.15, seed=1)
    np.save("features.npy", made.X)
    pairs = made.answers.pairs
    table = {"i": pairs[:, 0], "j": pairs[:, 1], "similar": made.answers.similar.astype(int)}
    pd.DataFrame(table | {"annotator": np.arange(len(pairs)) % 3}).to_csv("pairs.csv", index=False)
    for line in commands("docs/howto/shell.md"):
        words = shlex.split(line)[1:]
        words = [{"10": "3"}.get(word, word) for word in words] + (["--epochs", "3"] if words[0] == "fit" else [])
        words += ["--quick"] if words[0] in ("diagnose", "report") else []
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0, line
        written = words[words.index("-o") + 1]
        assert Path(written).exists(), f"{line} writes {written}"


REMOTE = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["'](?:https?:)?//|<link[^>]*\shref=["'](?:https?:)?//(?![^>]*rel=["']canonical)"""
)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path):
    if importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("myst_nb") is None:
        pytest.skip("sphinx and myst-nb are not installed: pip install 'pdcc[docs]'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html", "-d", tmp_path / "read", DOCS, tmp_path / "site"]  # fmt: skip
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "default",
        "no_proxy": "",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "tutorial.html", "science.html", "limits.html"} <= {page.name for page in pages}
    for page in pages:
        found = REMOTE.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.name} asks another machine for {found}"
    tutorial = (tmp_path / "site" / "tutorial.html").read_text(encoding="utf-8")
    assert "Labels: about" in tutorial  # the diagnosis was run
    assert tutorial.count("<img") >= 2
