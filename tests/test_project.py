"""The project as a stranger finds it: tables as they were measured, benchmarks that explain themselves."""

import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import run

ROOT = Path(__file__).parent.parent


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


def test_documents_have_no_holes():
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        assert "_TABLE\n" not in re.sub(r"<!--.*?-->", "", text)
        assert "nan" not in re.sub(r"`[^`]*`", "", text).split()


def test_measured_tables_are_those_on_record():
    """A figure changed by hand, or a new record without its table, fails."""
    assert "<!-- HUMAN_NOISE_SHORT -->" in (ROOT / "README.md").read_text()
    assert "<!-- HUMAN_NOISE -->" in (ROOT / "docs" / "results.md").read_text()
    run(sys.executable, ROOT / "benchmarks" / "tables.py", "--check", cwd=ROOT)


BENCHMARKS = pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)


@BENCHMARKS
def test_benchmarks_find_what_they_import(path):
    assert runpy.run_path(str(path), run_name="looked at")["__doc__"]


@pytest.mark.slow
@BENCHMARKS
def test_benchmarks_explain_themselves(path):
    assert path.name in run(sys.executable, "-W", "ignore", path, "--help", cwd=ROOT)
