"""A short form of the benchmark of damaged files, and its own judgement."""

import random

import numpy as np
import pytest


@pytest.mark.slow
def test_damage_is_found_or_harmless(report):
    rows = report("reliability", "--trials=8", "--minutes=1")["rows"]
    assert [row["what"] for row in rows] == [
        "model directory",
        "training checkpoint",
        "prepared shards",
    ]
    for row in rows:
        assert row["trials"] == row["found"] + row["harmless"] == 8
        assert row["found"] > 0
        assert row["failed_trials"] == []


@pytest.mark.parametrize(
    ("checks", "outcomes"), [(False, {"wrong"}), (True, {"found"}), (None, {"crashed"})]
)
def test_what_is_wrong_counts_as_wrong(scripts, tmp_path, checks, outcomes):
    reliability = scripts("reliability")

    class Bytes(reliability.Subject):
        name = "bytes"
        is_written = False

        def write(self):
            self.directory.mkdir()
            (self.directory / "file").write_bytes(bytes(range(100)))

        def read(self):
            content = (self.directory / "file").read_bytes()
            if content != bytes(range(100)) and checks:
                raise reliability.InputError("damaged")
            if content != bytes(range(100)) and checks is None:
                raise KeyError("file")
            return {"file": np.frombuffer(content, np.uint8)}

    subject = Bytes(tmp_path / "written")
    assert {subject.trial(random.Random(i)) for i in range(20)} == outcomes
