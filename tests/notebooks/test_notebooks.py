"""The notebooks match their scripts, whose cells run in order."""

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


NAMES = [("first_steps", "gpu"), ("first_steps", "tpu"), ("fine_tune", "gpu")]


@pytest.mark.parametrize(("script", "accelerator"), NAMES)
def test_notebooks_are_up_to_date(make, script, accelerator):
    name = f"{script}_{accelerator}.ipynb"
    written = json.loads((NOTEBOOKS / name).read_text())
    assert written == make.notebook(script, accelerator), "run python notebooks/make.py"
    sources = ["".join(cell["source"]) for cell in written["cells"]]
    assert f"blob/main/notebooks/{name})" in sources[0].splitlines()[0]
    assert f"git+{make.REPOSITORY}" in sources[1]
    assert any(f'%pip install --quiet "{make.JAX[accelerator]}"' in source for source in sources)


def test_every_notebook_is_tested(make):
    assert [(name, x) for name, result in make.SCRIPTS.items() for x in result] == NAMES


def run_cells(make, script, replace):
    """Runs the code of a script; ``replace`` changes its settings after each cell."""
    names = {}
    for kind, body in make.cells(make.read_script(script)):
        if kind == "code":
            exec(compile(body, f"{script}.py", "exec"), names)
            replace(names)
    return names


def test_the_first_cells_summarize_without_jax(make):
    code = [body for kind, body in make.cells(make.read_script("first_steps")) if kind == "code"]
    assert "longsum_jax.summarize" in code[0]
    assert "import jax" not in code[0]


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
def test_first_steps(make, tiny_run, tmp_path, capsys):
    """With the smallest training run in the place of the quickstart."""

    def replace(names):
        if "RUN" in names and names["RUN"] != tiny_run:
            names |= {"RUN": tiny_run, "WORKDIR": str(tmp_path / "run")}

    names = run_cells(make, "first_steps", replace)
    assert names["states"].shape[:2] == (1, 64)
    assert names["summary"].summary_tokens > 0
    assert "step" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_start")
def test_fine_tune(make, small_model, tmp_path, monkeypatch):
    """With a generated checkpoint and one step."""
    (tmp_path / "configs").symlink_to(NOTEBOOKS.parent / "configs")
    monkeypatch.chdir(tmp_path)

    def replace(names):
        names["MODEL"] = str(small_model)
        names["OPTIONS"] |= {
            "task.max_source_length": 64,
            "task.max_target_length": 8,
            "training.accumulation": 1,
            "training.steps": 1,
            "evaluation.examples": 2,
            "evaluation.max_new_tokens": 4,
        }

    names = run_cells(make, "fine_tune", replace)
    assert names["summary"].summary_tokens > 0
    assert (tmp_path / "runs/reports/results/metrics.json").exists()
    predictions = (tmp_path / "runs/reports/results/predictions.jsonl").read_text().splitlines()
    scored = {json.loads(line)["id"] for line in predictions}
    trained = {row.id for row in names["documents"](names["task"], "train")}
    assert len(scored) == 20
    assert not scored & trained
