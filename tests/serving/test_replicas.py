"""Replicas and shards on several devices: the same summaries as on one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("replicas_worker.py")


@pytest.mark.slow
def test_summaries_do_not_depend_on_the_devices(small_model):
    path = os.pathsep.join([str(WORKER.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(WORKER), str(small_model)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert "replicas=3 with mesh.fsdp=1 and mesh.tensor=2 need 6 devices" in report.pop("error")
    assert report.pop("groups") == [[0, 1], [2, 3]]
    summaries = report["one"]["summaries"]
    assert len({text for texts in summaries for text in texts}) > 3
    for arrangement in report.values():
        assert arrangement["summaries"] == summaries
        assert all(arrangement["rows"])  # no replica is idle
        assert 'replica="replica-0",phase="warm-up"' in arrangement["metrics"]
        assert 'phase="serving"' not in arrangement["metrics"]
    devices = {name: arrangement["devices"] for name, arrangement in report.items()}
    assert devices["two"] == [[0], [1]]
    assert devices["sharded"] == [[0, 1, 2, 3]]
    assert [report[name]["shares"][0] for name in report] == [1, 1, 1 / 4]
