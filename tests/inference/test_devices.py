"""Batches that are split over devices give what one device gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("devices_worker.py")


@pytest.mark.slow
def test_rows_are_split_and_summaries_stay(small_model):
    path = os.pathsep.join([str(WORKER.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-W", "error", str(WORKER), str(small_model)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["devices"], report["shard"][0]) == (4, 1)
    assert (report["rows"], report["rows without"]) == ([4, 4, 8], [1, 5])
    assert report["difference"] < 1e-5
    assert len(report["parallel"]) == 6
    assert report["parallel"] == report["alone"]
