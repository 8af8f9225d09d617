"""Two commands that write the same output: one is refused until the other has ended or died."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longsum_jax.commands import convert, extract, prepare
from longsum_jax.errors import InputError

pytest.importorskip("fcntl")

HOLDER = """
import sys
from pathlib import Path
from longsum_jax.locks import locked_output

with locked_output(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
ROW = {"id": "a", "document": "A cat sat. The dog ran away. Nobody saw it.", "summary": "It ran."}


@pytest.fixture
def holder(tmp_path):
    """A process that writes "out", and dies when it is told to."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "out")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (extract, "--data={rows} --length=20% --out={out}"),
        (
            prepare,
            "--task=summaries --tokenizer=bytes --num_shards=1 --source=json:{rows} --out={out}",
        ),
        pytest.param(convert, "{model} {out}", marks=pytest.mark.slow),
    ],
)
def test_the_second_one_is_refused_until_the_first_is_killed(
    holder, tmp_path, request, command, arguments
):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out"
    rows.write_text(json.dumps(ROW) + "\n")
    model = request.getfixturevalue("small_model") if command is convert else ""
    argv = arguments.format(rows=rows, out=out, model=model).split()
    message = rf"out: another process writes there \(process {holder.pid} on .*\); wait for its end"
    with pytest.raises(InputError, match=message):
        command.main(argv)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.lock", "rows.jsonl"]
    holder.kill()
    holder.wait()
    command.main(argv)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.jsonl"]
