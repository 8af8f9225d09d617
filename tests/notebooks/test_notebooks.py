"""The notebooks are what their script makes of them, and the script runs from its first cell to its
last."""

import importlib.util
import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_notebooks", NOTEBOOKS / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("accelerator", ["gpu", "tpu"])
def test_notebooks_are_up_to_date(make, accelerator):
    written = json.loads((NOTEBOOKS / f"first_steps_{accelerator}.ipynb").read_text())
    assert written == make.notebook(make.SCRIPT.read_text(), accelerator), (
        "run python notebooks/make.py"
    )
    badge, install = ("".join(cell["source"]) for cell in written["cells"][:2])
    assert f"blob/main/notebooks/first_steps_{accelerator}.ipynb)" in badge.splitlines()[0]
    assert make.JAX[accelerator] in install
    assert f'"git+{make.REPOSITORY}"' in install


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
def test_every_cell_runs(make, tiny_run, tmp_path, capsys):
    """With the smallest training run in the place of the quickstart."""
    names = {}
    for kind, body in make.cells(make.SCRIPT.read_text()):
        if kind == "code":
            exec(compile(body, "first_steps.py", "exec"), names)
        if "RUN" in names and names["RUN"] != tiny_run:
            names |= {"RUN": tiny_run, "WORKDIR": str(tmp_path / "run")}
    assert names["states"].shape[:2] == (1, 64)
    assert names["summary"].summary_tokens > 0
    assert "step" in capsys.readouterr().out
