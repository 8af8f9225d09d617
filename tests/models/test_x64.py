"""LOCOST with JAX_ENABLE_X64=1, in a process of its own: the flag is read when JAX starts."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

WORKER = Path(__file__).with_name("x64_worker.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Parameters, gradients and states without and with 64 bits."""
    with jax.enable_x64(False):
        without = runpy.run_path(str(WORKER))["compute"]()
    path = tmp_path_factory.mktemp("x64") / "with.npz"
    paths = [str(WORKER.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(WORKER), str(path)]
    subprocess.run(command, env=os.environ | environment, check=True)
    with np.load(path) as arrays:
        return {f"arr_{i}": x for i, x in enumerate(without)}, dict(arrays)


@pytest.mark.slow
def test_float32_results_are_the_same_with_64_bits(results):
    without, with_64_bits = results
    assert without.keys() == with_64_bits.keys()
    for name, wanted in without.items():
        assert wanted.dtype == with_64_bits[name].dtype == np.float32
        np.testing.assert_allclose(with_64_bits[name], wanted, rtol=1e-6, atol=1e-6)
