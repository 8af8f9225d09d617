"""Names and encodings of files, in any locale."""

import ast
import os
from pathlib import Path

import pytest

from longsum_jax.data.preparation import write_prepared
from longsum_jax.errors import InputError, in_one_line
from longsum_jax.files import allow_open_files, check_utf8_name, json_text, parse_json
from longsum_jax.training.checkpointing import restore_params
from longsum_jax.training.workdir import check_workdir

ROOT = Path(__file__).parents[1]
PACKAGES = ("longsum_jax", "longsum_plan")
UNDECODED = "r\udcc3\udca9f"  # "réf" as Python reads it in the C locale
READS_TEXT = ("open", "read_text", "write_text")
# Modules and functions of the package with these names, which take UTF-8, and openers of bytes.
OTHERS = ("archive", "atomic", "hub", "os", "tarfile", "webbrowser", "zipfile")


def test_text_files_name_their_encoding():
    """The default is that of the locale."""
    problems = []
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and takes_the_locale(node):
                problems.append(f"{path.name}:{node.lineno}")
    assert problems == []


def takes_the_locale(call):
    """Returns True for a call that opens a text file without an encoding."""
    function, words = call.func, {word.arg for word in call.keywords}
    is_method = isinstance(function, ast.Attribute)
    name = function.attr if is_method else getattr(function, "id", None)
    if name not in READS_TEXT or "encoding" in words:
        return False
    if is_method and isinstance(function.value, ast.Name) and function.value.id in OTHERS:
        return False
    if name == "open":
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        return not any(isinstance(mode, str) and "b" in mode for mode in modes)
    # A text, or nothing, stands before the encoding; a bare name is a function of the package.
    return is_method and len(call.args) <= (name == "write_text")


def test_names_that_the_locale_cannot_decode_are_shown_as_utf_8():
    assert in_one_line(UNDECODED) == "réf"
    assert in_one_line("x\udcff") == "x\\xff"
    assert in_one_line("\ud800") == "\\ud800"
    assert str(InputError(f"{UNDECODED}: no such file")) == "réf: no such file"
    json_text(UNDECODED).encode()
    assert parse_json(json_text(UNDECODED)) == UNDECODED


@pytest.mark.parametrize(
    "use",
    [
        lambda path: check_workdir(path, {}),
        lambda path: write_prepared(path, None, None, "train"),
        restore_params,
    ],
)
def test_names_that_libraries_would_not_find(tmp_path, use):
    """Otherwise a run trains until its first checkpoint, and cannot write that."""
    path = tmp_path / UNDECODED
    (path / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError, match=r"réf.*must be UTF-8, .*; set PYTHONUTF8=1, or give"):
        use(path)


def test_names_in_a_latin_1_locale(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "fsencode", lambda path: str(path).encode("latin-1"))
    check_utf8_name(tmp_path / "run")
    with pytest.raises(InputError, match="names of checkpoints and shards must be UTF-8"):
        check_utf8_name(tmp_path / "läuft")


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_allows(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.__setitem__(slice(2), new))
    allow_open_files(500, "shards", "prepare fewer")
    assert limits == [1024, 4096]
    allow_open_files(1024, "shards", "prepare fewer")
    assert 1024 < limits[0] < 4096
    allow_open_files(4095, "shards", "prepare fewer")
    assert limits == [4096, 4096]
    error = "shards: needs more than 4,096 open files, the system allows 4,096; prepare fewer, or"
    with pytest.raises(InputError, match=error):
        allow_open_files(4096, "shards", "prepare fewer")
