"""The notebooks run at small sizes, and the committed ones hold whole and clean outputs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
ABSOLUTE_PATH = r"(?<![\w.:/<])/\w+/[\w./-]+"

# In a process of its own: jupyter's clients keep event loops and sockets that would outlive a test.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        if output.get("name") == "stderr":
            sys.exit(f"stderr of the cell {cell.source[:80]!r}: {output.text}")
"""


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_at_small_sizes(path, tmp_path):
    environment = os.environ | {"PDCC_NOTEBOOK_QUICK": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", EXECUTE, str(path), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(tmp_path.iterdir()) == [], "a notebook leaves no files behind"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_outputs_are_whole_and_clean(path):
    assert path.stat().st_size < 1_000_000
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run all cells once, in order"
    assert "full sizes" in json.dumps(cells[0]["outputs"]), "commit outputs of the full sizes"
    for cell in cells:
        source, outputs = "".join(cell["source"]), cell["outputs"]
        assert outputs, f"no output of {source!r}"
        assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"], source
        for output in outputs:
            output.get("data", {}).pop("image/png", None)  # base64 may spell anything
        found = re.findall(ABSOLUTE_PATH, json.dumps(outputs))
        assert not found, f"{found} in the output of {source!r}: paths of one machine"
