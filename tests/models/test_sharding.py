import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("sharding_worker.py")


@pytest.fixture(scope="module")
def report():
    """What the worker found on 8 virtual devices."""
    path = os.pathsep.join([str(WORKER.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-W", "error", str(WORKER)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("layout", ["batch", "channels", "length"])
def test_sharded_operation_equals_the_unsharded_one(report, layout):
    found = report[f"operation over {layout}"]
    assert found["difference"] < 1e-6
    assert found["gradient_difference"] < 1e-5


@pytest.mark.parametrize("layout", ["batch", "channels"])
def test_operation_gathers_nothing(report, layout):
    found = report[f"operation over {layout}"]
    assert not any(found["forward"].values())
    # Parameter gradients are summed over rows; nothing else moves between devices.
    assert {name for name, count in found["backward"].items() if count} == {"all-reduce"}


def test_a_sharded_length_is_swapped_for_channels_and_back(report):
    found = report["operation over length"]
    assert found["forward"] == dict.fromkeys(found["forward"], 0) | {"all-to-all": 2}
    # The input is read again and so is the cotangent; both go one way, the input's gradient the other.
    assert found["backward"]["all-to-all"] <= 4
    assert not found["backward"]["all-gather"] + found["backward"]["collective-permute"]


def test_plain_jit_gathers(report):
    """The reason for shard_map; should this fail, GSPMD has learnt to partition FFTs."""
    assert report["plain jit"]["all-gather"] > 0


@pytest.mark.parametrize("preset", ["replicated", "fsdp+tensor", "fsdp+sequence"])
def test_whole_model_on_a_mesh_equals_one_device(report, preset):
    found = report[f"model {preset}"]
    assert found["loss_difference"] < 1e-5
    assert found["gradient_difference"] < 1e-4
