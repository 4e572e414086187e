"""The project as a stranger finds it: a wheel that works elsewhere, pages whose examples run, benchmarks that explain themselves."""

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command, cwd) -> str:
    """What a command says; on one thread, since the tests themselves run side by side."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [str(c) for c in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_works_in_an_empty_environment(tmp_path):
    """Build, install into a new environment without pdcc's sources, and run from another directory."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "pdcc", "models", "inference"):
        subprocess.run(["cp", "-r", ROOT / name, source / name], check=True)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "-w",
        tmp_path,
        source,
        cwd=tmp_path,
    )
    wheel = next(tmp_path.glob("pdcc-*.whl"))
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = next((home / "lib").glob("python*/site-packages"))
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", site, wheel, cwd=tmp_path)
    # Third-party packages come from this environment; its editable pdcc does not (.pth files there are not read).
    (site / "third_party.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = "import pdcc, pdcc.models, pdcc.inference; print(pdcc.__file__, pdcc.models.__file__)"
    out = run(python, "-E", "-W", "ignore", "-c", code, cwd=elsewhere)
    assert str(ROOT) not in out
    assert out.count(str(home)) == 2
    assert (site / "pdcc" / "py.typed").exists()
    assert (site / "pdcc" / "experiments" / "paper" / "published.csv").exists()
    assert all((site / "pdcc" / "label" / f"page.{end}").exists() for end in ("html", "js", "css", "svg"))
    assert (site / "pdcc" / "report" / "templates" / "page.html").exists()
    assert "Usage" in run(python, "-E", "-W", "ignore", "-m", "pdcc", "--help", cwd=elsewhere)
    script = (
        (site / "bin" / "pdcc").read_text().split("\n", 1)[1]
    )  # as installed, less the line that names the interpreter
    (tmp_path / "script.py").write_text(script)
    assert "Usage" in run(python, "-E", "-W", "ignore", tmp_path / "script.py", "--help", cwd=elsewhere)


def test_every_room_is_installed():
    """A package that pyproject.toml does not list works in a checkout and is missing from every wheel."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    places = {"pdcc": "pdcc", "models": "pdcc.models", "inference": "pdcc.inference"}
    there = {
        ".".join((name, *found.parent.relative_to(ROOT / place).parts))
        for place, name in places.items()
        for found in (ROOT / place).rglob("__init__.py")
    }
    assert sorted(listed) == sorted(there)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/benchmark.md", "docs/answers.md", "docs/machines.md"])
def test_examples_in_the_pages_run(page, tmp_path):
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    for block in blocks:
        run(sys.executable, "-c", block, cwd=tmp_path)


def test_documents_have_no_holes():
    for page in (
        ROOT / "README.md",
        ROOT / "docs" / "results.md",
        ROOT / "docs" / "answers.md",
        ROOT / "docs" / "machines.md",
    ):
        text = page.read_text()
        assert "_TABLE\n" not in re.sub(r"<!--.*?-->", "", text)
        assert "nan" not in text.split()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_measured_tables_are_those_on_record():
    """A figure changed by hand, or a new record without its table, fails."""
    assert "<!-- HUMAN_NOISE -->" in (ROOT / "README.md").read_text()
    run(sys.executable, ROOT / "benchmarks" / "tables.py", "--check", cwd=ROOT)


BENCHMARKS = pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)


@BENCHMARKS
def test_benchmarks_find_what_they_import(path):
    assert runpy.run_path(str(path), run_name="looked at")["__doc__"]


@pytest.mark.slow
@BENCHMARKS
def test_benchmarks_explain_themselves(path):
    assert path.name in run(sys.executable, "-W", "ignore", path, "--help", cwd=ROOT)
