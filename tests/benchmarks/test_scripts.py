"""Every script of benchmarks/ and studies/ can be imported, and lists its flags."""

import inspect
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "studies")
NAMES = sorted(path.stem for folder in FOLDERS for path in (ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_scripts_list_their_flags(name, scripts, monkeypatch, capsys):
    script = scripts(name)
    if not hasattr(script, "main"):
        return  # a module that scripts share
    monkeypatch.setattr(sys, "argv", [script.__file__, "--help"])
    # Some take their flags as an argument.
    arguments = [["--help"]] if inspect.signature(script.main).parameters else []
    with pytest.raises(SystemExit) as end:
        script.main(*arguments)
    assert not end.value.code
    assert capsys.readouterr().out.startswith(f"usage: {name}.py")
