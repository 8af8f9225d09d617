"""A small LOCOST on eight devices, parameters and batch cut three ways, learns what it learns on
one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from longsum_jax.commands import train

ROOT = Path(__file__).parents[2]


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_eight_devices_give_the_losses_of_one(tiny_run, tmp_path):
    config = f"{tiny_run},data.batch_size=8"
    mesh = (
        "mesh.preset=fsdp+tensor,mesh.batch=2,mesh.fsdp=2,mesh.tensor=2,training.accumulation=2,"
        "model.remat=True"
    )
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "longsum_jax.train",
        f"--config={config},{mesh}",
    ]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(ROOT),
    }
    sharded = subprocess.Popen(
        [*command, f"--workdir={tmp_path / 'eight'}"],
        env=environment,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert train.main([f"--config={config}", f"--workdir={tmp_path / 'one'}"]) == 0
    _, errors = sharded.communicate(timeout=300)
    assert sharded.returncode == 0, errors
    assert "(-, -, fsdp, tensor)" in errors or "(-, fsdp, tensor)" in errors  # the sharding table
    one, eight = lines(tmp_path / "one"), lines(tmp_path / "eight")
    assert [line["step"] for line in one] == [line["step"] for line in eight] == [1, 2, 2, 3, 3]
    for a, b in zip(one, eight, strict=True):
        for name in ("loss", "grad_norm", "weight", "tokens", "right_tokens"):
            if name in a:
                np.testing.assert_allclose(
                    b[name], a[name], rtol=2e-5, err_msg=f"{name} at step {a['step']}"
                )
        assert a.get("eval") == b.get("eval")


COUNTS_OF_MASKED_TOKENS = """
import flax.linen as nn
import jax
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config
from longsum_jax.experiment.experiment import prepare
from longsum_jax.training.mesh import activate, make_mesh, put_batch

run = run_config(read_config("configs/mlm.py:tiny", {"tokenizer.path": "bytes"}))
objective = prepare(run, "no/workdir").objective
init = run.family.init_params(objective.setup.config)
mesh = make_mesh(run.mesh)
with activate(mesh, run.mesh.rules):
    names = ("numbers", "ids", "mask")
    batch = put_batch(dict(zip(names, next(objective._batches()), strict=True)), mesh)
    counts = objective._guess(nn.meta.unbox(init(jax.random.key(0))), *batch.values())
assert counts.shape == (4, 2) and len(counts.sharding.device_set) == 2
assert counts.is_fully_replicated
"""


@pytest.mark.slow
def test_every_host_can_read_the_counts_of_masked_tokens():
    """On two devices; the counts would be spread over them like the rows of the batch."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", COUNTS_OF_MASKED_TOKENS]
    done = subprocess.run(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
