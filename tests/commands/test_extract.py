"""longsum extract when it is interrupted, killed, or run twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longsum_jax import locks
from longsum_jax.commands import extract
from longsum_jax.errors import InputError

ROWS = [
    {
        "id": f"d{number}",
        "document": f"A cat sat {number}. The dog ran away. Nobody saw it.",
        "summary": "The dog ran away.",
    }
    for number in range(5)
]

# The process kills itself at the third document.
KILLED = """
import os, signal, sys
from longsum_jax.commands import extract

make_row, calls = extract._row, []

def row(*args):
    calls.append(args)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return make_row(*args)

extract._row = row
extract.main(sys.argv[1:])
"""


@pytest.fixture
def arguments(tmp_path):
    data = tmp_path / "in" / "data.jsonl"
    data.parent.mkdir()
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return ["--oracle", f"--data={data}", f"--out={tmp_path / 'out.jsonl.gz'}"]


@pytest.fixture
def expected(arguments, tmp_path):
    """The content of an uninterrupted run."""
    out = tmp_path / "in" / "whole.jsonl.gz"
    extract.main([*arguments[:2], f"--out={out}"])
    return out.read_bytes()


@pytest.fixture
def rows_made(monkeypatch):
    """The ids of the documents whose rows are made."""
    made = []
    make_row = extract._row

    def row(document, chosen):
        made.append(document.id)
        return make_row(document, chosen)

    monkeypatch.setattr(extract, "_row", row)
    return made


def interrupt_at_third(arguments, monkeypatch):
    made = []

    def row(document, chosen):
        made.append(document)
        if len(made) == 3:
            raise KeyboardInterrupt
        return {"id": document.id, "document": "The dog ran away."}

    with monkeypatch.context() as patch:
        patch.setattr(extract, "_row", row)
        with pytest.raises(KeyboardInterrupt):
            extract.main(arguments)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_killed_run_is_continued(arguments, expected, tmp_path, rows_made):
    command = [sys.executable, "-c", KILLED, *arguments]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    killed = subprocess.run(command, env=environment, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".out.jsonl.gz.lock", ".out.jsonl.gz.rows", "in"]
    extract.main(arguments)
    assert rows_made == ["d2", "d3", "d4"]
    assert (tmp_path / "out.jsonl.gz").read_bytes() == expected
    assert names(tmp_path) == ["in", "out.jsonl.gz"]


@pytest.mark.parametrize("damage", ["none", "cut", "settings", "documents"])
def test_only_valid_rows_are_continued(
    arguments, expected, tmp_path, monkeypatch, rows_made, damage
):
    interrupt_at_third(arguments, monkeypatch)
    rows = tmp_path / ".out.jsonl.gz.rows"
    lines = rows.read_bytes().splitlines(keepends=True)
    # Rows that a run does not make show what was continued.
    assert b"sentences" not in lines[1]
    remaining = {"none": 2, "cut": 1, "settings": 0, "documents": 0}[damage]
    if damage == "cut":
        rows.write_bytes(b"".join(lines)[:-9])
    if damage == "settings":
        arguments = ["--length=1 sentences", *arguments[1:]]
    if damage == "documents":
        data = tmp_path / "in" / "data.jsonl"
        data.write_text(data.read_text().replace("cat", "rat"))
    extract.main(arguments)
    assert rows_made == [row["id"] for row in ROWS[remaining:]]
    assert not rows.exists()


def test_the_second_of_two_processes_is_refused(arguments, tmp_path, monkeypatch):
    def lockf(*args):
        raise BlockingIOError

    monkeypatch.setattr(locks.fcntl, "lockf", lockf)
    message = "out.jsonl.gz: another process writes there .*; wait for its end"
    with pytest.raises(InputError, match=message):
        extract.main(arguments)


@pytest.mark.parametrize("flag", ["--oracle", "--length=1 sentence"])
def test_summaries_under_usual_names_are_written(tmp_path, flag):
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    row = {"article": "The dam broke. The town flooded.", "highlights": "A dam broke."}
    data.write_text(json.dumps(row))
    extract.main([flag, f"--data={data}", f"--out={out}"])
    assert json.loads(out.read_text())["summary"] == "A dam broke."
