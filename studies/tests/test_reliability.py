"""Short forms of studies/reliability.py, and its own judgement."""

import json
import random
import shutil
import sys

import numpy as np
import pytest

CONFIG = "classification,training.accumulation=2,data.prefetch=3"


@pytest.mark.slow
def test_damage_is_found_or_harmless(report):
    result = report("reliability", "--sections=damage", "--trials=8", "--minutes=1")
    rows = result["rows"]
    assert [row["what"] for row in rows] == [
        "model directory",
        "training checkpoint",
        "prepared shards",
        "predictions",
    ]
    for row in rows:
        assert row["trials"] == row["found"] + row["harmless"] == row["flips"] + row["cuts"] == 8
        assert row["found"] > 0
        assert row["failures"] == []


@pytest.fixture(scope="module")
def kills(scripts):
    return scripts("reliability_kills")


@pytest.fixture(scope="module")
def wholes(kills, tmp_path_factory):
    return kills.Wholes(tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_a_killed_run_is_that_which_was_never_killed(kills, wholes, monkeypatch):
    monkeypatch.setattr(kills, "KILLS", 2)
    monkeypatch.setattr(random.Random, "choice", lambda self, choices: choices[0])  # in saves
    row = kills.Kills("a run", CONFIG, wholes).trial(random.Random(0))
    assert row["failures"] == []
    assert row["kills"] == 2
    assert row["in_saves"] >= 1
    assert row["equal"] == 1
    whole, _ = wholes.of(CONFIG)
    assert len(list((wholes.folder / "killed" / "run").glob("examples.*"))) == 3
    assert _changes_are_seen(kills, whole)


def _changes_are_seen(kills, whole):
    """Changes what a run has left, a file at a time; the comparison must name each."""
    seen = []
    for path in (whole / "metrics.jsonl", whole / "examples.0.0.jsonl", whole / "final.json"):
        text = path.read_text()
        copy = whole.with_name("copy")
        copy.mkdir(exist_ok=True)
        for other in (*whole.glob("*.json"), *whole.glob("*.jsonl")):
            (copy / other.name).write_bytes(other.read_bytes())
        assert kills.differences(copy, whole) == []
        place = text.rindex("1", 0, -3)
        (copy / path.name).write_text(text[:place] + "2" + text[place + 1 :])
        seen.append(len(kills.differences(copy, whole)))
    return seen == [1, 1, 1]


@pytest.mark.slow
def test_a_signal_saves_and_ends_a_run(kills, wholes, monkeypatch):
    monkeypatch.setattr(kills, "SIGNALS", 1)
    row = kills.Signals("SIGTERM", CONFIG, wholes).trial(random.Random(0))
    assert row["failures"] == []
    assert row["signals"] == row["as_documented"] == row["equal"] == 1


def test_examples_come_once_an_epoch_whatever_the_hosts(scripts):
    hosts = scripts("reliability_elastic").Hosts()
    rows = [hosts.trial(random.Random(number)) for number in range(10)]
    assert all(row["failures"] == [] for row in rows)
    assert sum(row["changes"] for row in rows) > 30


@pytest.mark.parametrize(
    ("checks", "outcome"), [(False, "wrong"), (True, "found"), (None, "crashed")]
)
def test_what_is_wrong_counts_as_wrong(scripts, tmp_path, checks, outcome):
    damage = scripts("reliability_damage")

    class Bytes(damage.Subject):
        name = "bytes"

        def write(self):
            self.directory.mkdir()
            (self.directory / "file").write_bytes(bytes(range(100)))

        def read(self):
            content = (self.directory / "file").read_bytes()
            if content != bytes(range(100)) and checks:
                raise damage.InputError("damaged")
            if content != bytes(range(100)) and checks is None:
                raise KeyError("file")
            return {"file": np.frombuffer(content, np.uint8)}

    subject = Bytes(tmp_path / "written")
    rows = [subject.trial(random.Random(i)) for i in range(20)]
    assert all(row[outcome] == 1 for row in rows)
    assert all(bool(row.get("failures")) == (outcome != "found") for row in rows)


def test_trials_add_up_over_several_starts(scripts, tmp_path):
    trials = scripts("reliability_trials")
    seen = []

    class Drawn(trials.Case):
        section, name, expected = "some", "drawn", 5

        def trial(self, rng):
            seen.append(rng.random())
            failures = ["too much"] if len(seen) == 3 else []
            return {"made": 2, "largest_value": -len(seen), "failures": failures}

    rows, retained = [], []
    trials.run_trials([Drawn()], rows, 0, float("inf"), lambda: retained.append(json.dumps(rows)))
    assert rows == [
        {
            "section": "some",
            "what": "drawn",
            "trials": 5,
            "failures": ["trial 2: too much"],
            "made": 10,
            "largest_value": -1,
        }
    ]
    earlier = json.loads(retained[1])
    whole = list(seen)
    trials.run_trials([Drawn()], earlier, 0, float("inf"), lambda: None)
    assert seen[5:] == whole[2:]
    assert earlier[0]["trials"] == 5


# Two ways of writing a file, of which one leaves half of it and takes that for the whole.
ATOMIC = """
import os, sys
out = sys.argv[1]
try:
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/new", "w", buffering=1) as file:
        file.write("first\\n")
        file.write("second\\n")
    os.replace(f"{out}/new", f"{out}/file")
except OSError as error:
    sys.exit(f"error: {error}")
"""
HALF = """
import os, sys
out = sys.argv[1]
os.makedirs(out, exist_ok=True)
if not os.path.exists(f"{out}/file"):
    with open(f"{out}/file", "w", buffering=1) as file:
        file.write("first\\n")
        file.write("second\\n")
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("script", "is_sound"), [(ATOMIC, True), (HALF, False)])
def test_a_disk_that_fails_shows_what_is_lost(scripts, tmp_path, script, is_sound):
    disk = scripts("reliability_disk")

    class Command(disk.Writer):
        name = "command"

        def arguments(self, out):
            return []

        def command(self, out):
            return [sys.executable, "-c", script, str(out)]

        def written(self, out):
            return (out / "file").read_text()

    command = Command(tmp_path / "command")
    rows = [command.trial(random.Random(f"trial {number}")) for number in range(12)]
    assert sum(row.get("failing", 0) for row in rows) > 5
    assert sum(row.get("slow", 0) for row in rows) > 0
    failures = [text for row in rows for text in row["failures"]]
    assert (failures == []) == is_sound
    assert any("Traceback" in text for text in failures) != is_sound
    assert any("leaves something else" in text for text in failures) != is_sound
