"""What a release hands out: a wheel and a source archive that work elsewhere, what they ask for, and how to cite it."""

import importlib.metadata
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

import pytest
import yaml
from helpers import run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt")
# What tests, benchmarks, documents and checks of the source need, and no user.
TOOLS = {
    *("pytest", "pytest-xdist", "hypothesis", "ruff", "mypy", "sphinx", "myst-nb", "nbclient", "ipykernel"),
    *("pandas-stubs", "scipy-stubs", "types-tqdm", "pyscipopt", "setuptools", "pip", "pydata-sphinx-theme", "pyyaml"),
}
# Every module that needs no extra, imported; then the least that a user does.
USE = """
import importlib, json, pkgutil, sys
import numpy as np
import pdcc, pdcc.models, pdcc.inference
extra = ("pdcc.label.", "pdcc.__main__")
names = [m.name for m in pkgutil.walk_packages(pdcc.__path__, "pdcc.") if not m.name.startswith(extra)]
for name in names:
    importlib.import_module(name)
rng = np.random.default_rng(0)
y = np.repeat([0, 1], 20)
X = rng.normal(size=(40, 2)) + 8 * y[:, None]
pairs = rng.integers(0, 40, size=(120, 2))
pairs = pairs[pairs[:, 0] != pairs[:, 1]]
est = pdcc.VolMaxDCC(2, hidden=(4,), epochs=2, random_state=0, progress=False)
est.fit(X, pairs, y[pairs[:, 0]] == y[pairs[:, 1]])
right = max(np.mean(est.labels_ == y), np.mean(est.labels_ != y))
where = {name: sys.modules[name].__file__ for name in ("pdcc", "pdcc.models", "pdcc.inference")}
print(json.dumps({"where": where, "modules": len(names), "right": right, "version": pdcc.__version__}))
"""


@dataclass(frozen=True)
class Built:
    """A wheel, a source archive, and a wheel made of that archive alone."""

    wheel: Path
    archive: Path
    wheel_of_archive: Path


def build(kind: str, source: Path, out: Path) -> Path:
    """A "wheel" or "sdist" of a directory of sources, by the build backend that pyproject.toml names."""
    out.mkdir()
    code = f"import sys; from setuptools.build_meta import build_{kind} as build; build(sys.argv[1])"
    run(sys.executable, "-W", "ignore", "-c", code, out, cwd=source)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Built:
    """Built from a copy of what is needed, so that nothing else of a checkout can find its way in."""
    place = tmp_path_factory.mktemp("release")
    source = place / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("pdcc", "models", "inference"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in SOURCES:
        shutil.copy(ROOT / name, source / name)
    archive = build("sdist", source, place / "archive")
    shutil.rmtree(source / "build", ignore_errors=True)
    wheel = build("wheel", source, place / "wheel")
    with tarfile.open(archive) as packed:
        packed.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    return Built(wheel, archive, build("wheel", unpacked, place / "wheel_of_archive"))


def files(wheel: Path) -> dict[str, bytes]:
    """What a wheel holds, but for the list of it."""
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/RECORD")}


@pytest.mark.slow
def test_wheel_and_archive_hold_the_same(built):
    wheel, again = files(built.wheel), files(built.wheel_of_archive)
    assert sorted(wheel) == sorted(again)
    assert [name for name in wheel if wheel[name] != again[name]] == []
    assert f"pdcc-{PROJECT['version']}" in built.wheel.name
    assert f"pdcc-{PROJECT['version']}.tar.gz" == built.archive.name
    for place, package in (("pdcc", "pdcc"), ("models", "pdcc/models"), ("inference", "pdcc/inference")):
        for path in (ROOT / place).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = f"{package}/{path.relative_to(ROOT / place).as_posix()}"
                assert wheel.get(name) == path.read_bytes(), name
    with tarfile.open(built.archive) as packed:
        names = {name.split("/", 1)[-1] for name in packed.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "constraints.txt", "LICENSE"} <= names
    assert not any(name.startswith("tests/") for name in names)


def runtime(requirements: list[str]) -> list[Requirement]:
    """The requirements of a plain install: those that hold where no extra is asked for."""
    parsed = [Requirement(line) for line in requirements]
    return [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]


def needed() -> dict[str, list[Requirement]]:
    """Every package that a plain install brings, by name, and what asks for it, as installed here."""
    found: dict[str, list[Requirement]] = {}
    waiting = runtime(PROJECT["dependencies"])
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        if name not in found:
            waiting += runtime(importlib.metadata.requires(name) or [])
        found.setdefault(name, []).append(asked)
    return found


@pytest.mark.slow
def test_a_wheel_asks_for_what_users_need_alone(built):
    names = [name for name in files(built.wheel) if name.endswith("/METADATA")]
    lines = HeaderParser().parsestr(files(built.wheel)[names[0]].decode()).get_all("Requires-Dist")
    asked = {canonicalize_name(r.name) for r in runtime(lines)}
    assert asked == {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert len(lines) > len(asked)  # extras are told too, as extras


def test_a_plain_install_brings_no_tool():
    """Neither by pdcc's own requirements nor by those of what it requires; pip and setuptools come with torch."""
    direct = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert direct & TOOLS == set()
    assert set(needed()) & TOOLS <= {"setuptools"}


def test_constraints_pin_all_that_an_install_brings():
    """Each at a version that all who ask for it take, so that an install with constraints.txt finds an answer."""
    lines = (ROOT / "constraints.txt").read_text().split()
    pins = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    for name, asking in needed().items():
        assert name in pins, name
        for requirement in asking:
            assert requirement.specifier.contains(pins[name], prereleases=True), (str(requirement), pins[name])
    for extra in PROJECT["optional-dependencies"].values():
        for requirement in map(Requirement, extra):
            name = canonicalize_name(requirement.name)
            assert name == "pdcc" or requirement.specifier.contains(pins[name]), str(requirement)


def used(python: Path, elsewhere: Path, home: Path) -> None:
    """Import all of pdcc and fit, away from the checkout, with nothing of pdcc but what was installed at ``home``."""
    elsewhere.mkdir()
    said = json.loads(run(python, "-E", "-W", "ignore", "-c", USE, cwd=elsewhere).splitlines()[-1])
    assert all(where.startswith(str(home)) for where in said["where"].values()), said
    assert said["modules"] > 100
    assert said["version"] == PROJECT["version"]
    assert said["right"] == 1.0
    assert "Usage" in run(python, "-E", "-W", "ignore", "-m", "pdcc", "--help", cwd=elsewhere)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "wheel_of_archive"])
def test_an_installed_pdcc_needs_no_checkout(built, kind, tmp_path):
    """Third-party packages come from this environment; its editable pdcc does not (.pth files there are not read)."""
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    (site,) = (home / "lib").glob("python*/site-packages")
    pip = sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target"
    run(*pip, site, getattr(built, kind), cwd=tmp_path)
    places = [sysconfig.get_paths()["purelib"], str(Path(yaml.__file__).parents[1])]
    (site / "third_party.pth").write_text("\n".join(dict.fromkeys(places)) + "\n")
    used(home / "bin" / "python", tmp_path / "elsewhere", home)
    # The script as installed, less the line that names the interpreter.
    (tmp_path / "script.py").write_text((site / "bin" / "pdcc").read_text().split("\n", 1)[1])
    python = home / "bin" / "python"
    assert "Usage" in run(python, "-E", "-W", "ignore", tmp_path / "script.py", "--help", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    "PDCC_INSTALL" not in os.environ, reason="Set PDCC_INSTALL=1 to install from a package index, torch and all"
)
def test_an_install_from_nothing(built, tmp_path):
    """pip, an empty environment and constraints.txt, as a user has them: what is pinned comes, and no tool does.

    Then the archive takes the wheel's place, built by pip in an environment of its own; torch is installed once.
    """
    home = tmp_path / "empty"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    pip = python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt"
    run(*pip, built.wheel, cwd=tmp_path)
    listed = json.loads(run(python, "-m", "pip", "list", "--format=json", cwd=tmp_path))
    there = {canonicalize_name(found["name"]): found["version"] for found in listed}
    assert set(there) & TOOLS <= {"pip", "setuptools"}
    assert there["pdcc"] == PROJECT["version"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    assert re.fullmatch(re.escape(pins["torch"]) + r"(\+\w+)?", there["torch"])
    run(python, "-m", "pip", "check", cwd=tmp_path)
    used(python, tmp_path / "elsewhere", home)
    run(*pip, "--force-reinstall", "--no-deps", built.archive, cwd=tmp_path)
    used(python, tmp_path / "elsewhere again", home)


def test_the_citation_is_of_this_version():
    """The keys that the Citation File Format 1.2.0 requires, and the version that pyproject.toml declares."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]
    assert all(cited[key] for key in ("message", "title"))
    assert cited["authors"] == [{"name": "pdcc contributors"}]
    (paper,) = cited["references"]
    assert paper["type"] == "conference-paper"
    assert paper["title"] in re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    assert [author["family-names"] for author in paper["authors"]] == ["Nguyen", "Ibrahim", "Fu"]


def test_the_changelog_is_of_this_version():
    """Newest first, in the form of Keep a Changelog: each version with its date, or not released yet."""
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    dated = re.compile(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2}|unreleased)")
    versions = [dated.fullmatch(head)[1] for head in heads if head != "[Unreleased]"]
    assert versions[0] == PROJECT["version"]
    assert versions == sorted(versions, key=lambda v: [int(part) for part in v.split(".")], reverse=True)
