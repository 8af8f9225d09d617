"""The guide's pages whose Python blocks run as they stand, with a small model for the one named."""

import ast
import re
import shutil
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs" / "guide"


def blocks(page, language):
    """Returns the blocks of a page in a language, with their lines where they stand on it."""
    text = (PAGES / page).read_text(encoding="utf-8")
    pattern = rf"^```{language}\n(.*?)^```$"
    for found in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, found.start(1))
        yield "\n" * first + found[1]


def run(page):
    namespace = {"__name__": "guide"}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), namespace)
    return namespace


def test_sources(capsys):
    found = run("sources.md")
    assert capsys.readouterr().out.endswith("['Lena Lund']\n")
    assert found["summary"].sources[0].is_supported


@pytest.mark.slow
def test_from_transformers(small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_model, tmp_path / "facebook" / "bart-large-cnn")
    found = run("from_transformers.md")
    assert (tmp_path / "mine" / "model.safetensors").exists()
    assert len(found["summaries"]) == 2
    assert found["logits"].shape[:2] == (1, 1)


def test_lines_of_transformers_stand_beside_ours():
    theirs = list(blocks("from_transformers.md", "py"))
    for block in theirs:
        ast.parse(block)
    assert len(theirs) == 5
