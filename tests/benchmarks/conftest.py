"""The scripts of benchmarks/, run in this process at sizes that take a second."""

import importlib
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def scripts(drawn_start):
    """Imports a script by its name; `common` of configs/ is another module of that name."""
    names = {path.stem for path in FOLDER.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def report(scripts, tmp_path, monkeypatch, capsys):
    """Runs a script with flags and gives the JSON report that it wrote."""

    def run(name, *flags):
        out = tmp_path / f"{name}.json"
        monkeypatch.setattr(sys, "argv", [str(FOLDER / f"{name}.py"), *flags, f"--out={out}"])
        scripts(name).main()
        assert capsys.readouterr().out.count("\n") >= 2  # the table
        return json.loads(out.read_text())

    return run
