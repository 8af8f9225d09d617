"""Annotations: mypy --strict finds no fault with the package, a user's program, or the recipes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from typing import assert_type

import longsum_jax
from longsum_jax.layers import S4D
from longsum_jax.models import LocostConfig, get_family
from longsum_jax.models.family import Family
from longsum_jax.readers.document import Document
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_options import SummaryOptions

[document] = longsum_jax.readers.read_documents("report.pdf")
assert_type(document, Document)
summary = longsum_jax.summarize(document.text, length="150 words", outline=document.outline)
assert_type(summary, Summary)
model = longsum_jax.load("runs/quickstart")
assert_type(model, Model)
assert_type(model.summarize(document.text, num_beams=4)[0], str)
assert_type(model.summaries([document.text], batch_size="auto")[0].dropped_tokens, int)
options = SummaryOptions(length="short", batch_size="auto")
assert_type(model.summaries(document.text, options, strategy="refine", top_p=0.9)[0], Summary)
assert_type(model.to_lsg(max_source_length=4096, block_size=128), Model)
assert_type(get_family("t5"), Family)
assert_type(LocostConfig(d_model=64).d_model, int)
assert_type(S4D(d_model=64, d_state=16), S4D)
"""


ROOT = Path(__file__).parents[1]


def program_of(page):
    """Returns the Python blocks of a page as one program, with the page's line numbers."""
    text = page.read_text(encoding="utf-8")
    program = ""
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first_line = text.count("\n", 0, block.start(1))
        program += "\n" * (first_line - program.count("\n")) + block[1]
    return program


@pytest.mark.slow
def test_annotations_hold(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    modules = ["-m", "program"]
    for page in sorted((ROOT / "docs" / "extend").glob("*.md")):
        modules += ["-m", f"recipe_{page.stem}"]
        (tmp_path / f"recipe_{page.stem}.py").write_text(program_of(page), encoding="utf-8")
    packages = ["-p", "longsum_jax", "-p", "longsum_plan"]
    command = [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", *packages]
    done = subprocess.run(
        [*command, *modules],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
