"""Files that somebody made to do harm are refused with a sentence, soon, within little memory, and
nothing of theirs is run or opened; the table of them is in ``hostile_files.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("hostile_files.py")
SECONDS = 2.0  # of the processor; the processes of a test run share the machine
GIGABYTE = 2**30


# Reads all cases, then one that does what the watch must see.
SCRIPT = """
import json, os, sys
from pathlib import Path
from hostile_files import Case, Watch, main, read_watched
main()
def harm(folder):
    open("../secret.txt", "w").close()
    os.system("touch canary")
folder = Path(sys.argv[1]) / "harm"
folder.mkdir()
print(json.dumps(read_watched(Case("harm", lambda folder: None, harm), folder / "x", Watch())))
"""


@pytest.fixture(scope="module")
def all_rows(tmp_path_factory):
    """What became of every case, all of them read by one process; the last one is `harm`."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("hostile"))]
    places = os.pathsep.join([str(WORKER.parents[1]), str(WORKER.parent)])
    environment = os.environ | {"PYTHONPATH": places, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def rows(all_rows):
    return all_rows[:-1]


def test_there_are_many_cases(rows):
    names = [row["case"] for row in rows]
    assert len(set(names)) == len(names) >= 200


def test_every_case_is_refused_or_left_alone(rows):
    expected = {False: "InputError", True: "read"}
    assert [row for row in rows if row["outcome"] != expected[row["is_read"]]] == []


def test_the_refusal_is_one_line(rows):
    messages = [row["message"] for row in rows if not row["is_read"]]
    assert [message for message in messages if not message.isprintable()] == []
    assert max(map(len, messages)) < 4100
    assert min(map(len, messages)) > 20


def test_nothing_of_theirs_is_run(rows):
    assert [row["case"] for row in rows if row["canary"]] == []


def test_nothing_outside_of_the_folder_is_opened(rows):
    assert [(row["case"], row["found"]) for row in rows if row["found"]] == []


def test_a_case_takes_little_time(rows):
    assert [row["case"] for row in rows if row["seconds"] > SECONDS] == []


def test_a_case_takes_little_memory(rows):
    assert [row["case"] for row in rows if row["bytes"] > GIGABYTE] == []


def test_the_watch_sees_what_is_opened_and_run(all_rows):
    """Else the tests above could not fail."""
    assert all_rows[-1]["case"] == "harm"
    assert all_rows[-1]["found"] == ["open ../secret.txt", "os.system"]
