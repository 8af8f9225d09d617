"""Annotations: mypy --strict finds no fault with the package, nor with a program that uses it."""

import os
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
from longsum_jax.inference.model import Model
from longsum_jax.inference.summary import Summary

[document] = longsum_jax.readers.read_documents("report.pdf")
assert_type(document, Document)
summary = longsum_jax.summarize(document.text, length="150 words", outline=document.outline)
assert_type(summary, Summary)
model = longsum_jax.load("runs/quickstart")
assert_type(model, Model)
assert_type(model.summarize(document.text, num_beams=4)[0], str)
assert_type(model.summaries([document.text], batch_size="auto")[0].dropped_tokens, int)
assert_type(model.to_lsg(max_source_length=4096, block_size=128), Model)
assert_type(get_family("t5"), Family)
assert_type(LocostConfig(d_model=64).d_model, int)
assert_type(S4D(d_model=64, d_state=16), S4D)
"""


@pytest.mark.slow
def test_annotations_hold(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    packages = ["-p", "longsum_jax", "-p", "longsum_plan"]
    command = [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", *packages]
    done = subprocess.run(
        [*command, "-m", "program"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
