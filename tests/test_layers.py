"""Imports run one way: no room of the source knows of one further downstream."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Where packages lie in a checkout; installed, all of them are inside pdcc.
PLACES = {"pdcc.models": "models", "pdcc.inference": "inference", "pdcc": "pdcc"}

# Upstream first. Modules of one line may import each other; every other import must point to an earlier line.
FLOW = (
    ("errors", "arrays", "exclusive"),
    ("validation", "dense", "frames", "rows", "notebook"),
    ("storage", "storage.files", "storage.journal", "storage.provenance", "storage.model"),
    ("metrics",),
    ("annotators",),
    ("datasets",),
    ("data",),
    ("pair_input",),
    ("storage.run",),
    ("oracles",),
    ("baselines",),
    ("models",),
    ("inference",),
    ("grid",),
    ("training",),
    ("together",),
    ("fitted",),
    ("sampled",),
    ("select",),
    ("estimator", "base", "refitting"),
    ("posterior",),
    ("criticism",),
    ("accuracy",),
    ("identifiability",),
    ("asking",),
    ("baselines.deep", "baselines.cidec", "baselines.dcgmm", "baselines.spherepair"),
    ("plots",),
    ("report",),
    ("experiments",),
    ("label",),
    ("cli", "__main__"),
)
ROOM = {name: number for number, room in enumerate(FLOW) for name in room}

# A fitted estimator hands its data on to what comes after a fit. These are the only imports that may point downstream.
DELEGATED = {
    ("pdcc.base", "PairEstimator.posterior", "pdcc.posterior.draws"),
    ("pdcc.base", "PairEstimator.posterior", "pdcc.posterior.inference_data"),
    ("pdcc.base", "PairEstimator.posterior", "pdcc.posterior.sample"),
    ("pdcc.base", "PairEstimator.posterior", "pdcc.posterior.squeeze"),
    ("pdcc.base", "PairEstimator.diagnose", "pdcc.identifiability.diagnose"),
    ("pdcc.base", "PairEstimator.diagnose", "pdcc.identifiability.given"),
    ("pdcc.base", "PairEstimator.suggest_pairs", "pdcc.asking.suggest"),
    ("pdcc.base", "PairEstimator.audit_answers", "pdcc.asking.audit"),
    ("pdcc.base", "PairEstimator.audit_answers", "pdcc.asking.reliability"),
    ("pdcc.base", "", "pdcc.identifiability.diagnose"),  # for type checkers alone: what ``diagnose`` returns
}


@dataclass(frozen=True)
class Edge:
    """``module`` imports ``target``, inside ``function`` or, where that is empty, at its top level."""

    module: str
    function: str
    target: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.function, self.target


def sources(root: Path) -> dict[str, Path]:
    """Every module by its name: {"pdcc.models.confusion": .../models/confusion.py, ...}; a package is its __init__."""
    found = {}
    for package, place in PLACES.items():
        for path in sorted((root / place).rglob("*.py")):
            parts = (package, *path.relative_to(root / place).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def lazy_names(root: Path) -> dict[str, str]:
    """What pdcc/__init__.py hands out by name, and the module each name is from: its own table, for type checkers."""
    table = ast.walk(ast.parse((root / "pdcc" / "__init__.py").read_text(encoding="utf-8")))
    froms = [node for node in table if isinstance(node, ast.ImportFrom) and node.module and node.module != "pdcc"]
    return {alias.name: str(node.module) for node in froms for alias in node.names}


def imports(tree: ast.Module) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    """Every import and the function it is in ("" at the top level); those under ``if TYPE_CHECKING`` too."""

    def visit(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield inside, node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{inside}.{node.name}".lstrip(".")
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(tree, "")


def edges(root: Path) -> list[Edge]:
    """All imports of our own modules by each other, but for those of pdcc/__init__.py, which loads by name."""
    modules, lazy = sources(root), lazy_names(root)
    found = []
    for module, path in modules.items():
        if module == "pdcc":
            continue
        for function, node in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                assert node.level == 0, f"{module}: imports are absolute"
                # A name is a module of its own, or handed out by pdcc itself, or something that the module defines.
                own = [(f"{node.module}.{alias.name}", alias.name) for alias in node.names]
                from_pdcc = lazy if node.module == "pdcc" else {}
                targets = [full if full in modules else from_pdcc.get(name, str(node.module)) for full, name in own]
            for target in targets:
                if target.split(".")[0] == "pdcc":
                    assert target in modules, f"{module} imports {target}, which is not there"
                    found.append(Edge(module, function, target))
    return found


def room(module: str) -> int:
    """The number of a module's line in the flow: that of the longest name that it is or lies in."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    for name in names:
        if name in ROOM:
            return ROOM[name]
    raise AssertionError(f"{module} has no place in FLOW: give it one")


def against_the_flow(root: Path) -> list[Edge]:
    """Imports that point downstream; pdcc itself, which has no room, may be imported by all."""
    return [e for e in edges(root) if e.target != "pdcc" and room(e.target) > room(e.module)]


def test_no_import_points_downstream():
    found = against_the_flow(ROOT)
    strays = [f"{e.module}, in {e.function or 'its top level'}: {e.target}" for e in found if e.key not in DELEGATED]
    assert not strays, "\n".join(strays)
    unused = DELEGATED - {e.key for e in found}
    assert not unused, f"listed as delegated, and imported no longer: {sorted(unused)}"


def imports_of(package: str, root: Path) -> set[str]:
    """Our modules that import a third party's package, anywhere in them, by any of its names."""
    found = set()
    for module, path in sources(root).items():
        for _, node in imports(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            found |= {module for name in names if name.split(".")[0].split("_")[0] == package}
    return found


def test_one_module_knows_arviz():
    """A new version of ArviZ is then one file's work; arviz_base and its like are names of newer versions."""
    assert imports_of("arviz", ROOT) == {"pdcc.posterior.arviz_calls"}


def test_every_room_is_lived_in():
    modules = sources(ROOT)
    assert {name for name in ROOM if f"pdcc.{name}" not in modules} == set()
    for module in modules:
        if module != "pdcc":
            room(module)


PLANTED = {
    "at the top": ("from pdcc.select.search import search\n", "", "pdcc.select.search"),
    "as a module": ("import pdcc.select.search\n", "", "pdcc.select.search"),
    "a module by name": ("from pdcc.select import search\n", "", "pdcc.select.search"),
    "a package": ("from pdcc import select\n", "", "pdcc.select"),
    "in a function": ("def late():\n    from pdcc.select.search import search\n", "late", "pdcc.select.search"),
    "in a method": (
        "class A:\n    async def late(self):\n        if self:\n            import pdcc.select\n",
        "A.late",
        "pdcc.select",
    ),
    "for type checkers": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pdcc.select.search import search\n",
        "",
        "pdcc.select.search",
    ),
    "by way of pdcc's table": ("from pdcc import search\n", "", "pdcc.select.search"),
    "of a package beside pdcc": ("from pdcc.models.net import x\n", "", "pdcc.models.net"),
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_import_is_found(plant, tmp_path):
    """A small tree that keeps to the flow, and one line in it that does not."""
    files = {
        "pdcc/__init__.py": "if TYPE_CHECKING:\n    from pdcc.select.search import search\n",
        "pdcc/select/__init__.py": "",
        "pdcc/select/search.py": "import numpy\nfrom pdcc.baselines.kmeans import kmeans\nsearch = kmeans\n",
        "pdcc/baselines/__init__.py": "",
        "pdcc/baselines/kmeans.py": "kmeans = 1\n",
        "models/__init__.py": "",
        "models/net.py": "from pdcc.baselines.kmeans import kmeans\nx = kmeans\n",
        "inference/__init__.py": "from pdcc.models.net import x\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert against_the_flow(tmp_path) == []
    line, function, target = PLANTED[plant]
    victim = tmp_path / "pdcc" / "baselines" / "kmeans.py"
    victim.write_text(victim.read_text() + line)
    assert against_the_flow(tmp_path) == [Edge("pdcc.baselines.kmeans", function, target)]
