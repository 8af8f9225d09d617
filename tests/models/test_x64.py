"""LOCOST with JAX_ENABLE_X64=1, in a process of its own: the flag is read when JAX starts. What
attentions draw, in this one."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.attention.patterns import PatternAttention
from longsum_jax.experimental.ops.lsh import draw_rotations
from longsum_jax.experimental.ops.performer import draw_projection
from longsum_jax.layers.attention.options import RandomBlockOptions
from longsum_jax.layers.dense import normal
from longsum_jax.ops.attention.lsg_selection import lsh_projections

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
    for name, expected in without.items():
        assert expected.dtype == with_64_bits[name].dtype == np.float32
        np.testing.assert_allclose(with_64_bits[name], expected, rtol=1e-6, atol=1e-6)


def draws():
    """What attentions draw at random."""
    key = jax.random.key(0)
    options = RandomBlockOptions(block_size=4)
    attention = PatternAttention(8, 2, 4, normal(1.0), normal(1.0), options=options)
    return {
        "performer": draw_projection(key, 6, 4),
        "lsh": draw_rotations(key, 2, 4, 3, 4),
        "lsg": lsh_projections(key, 2, 4, chunk=4, factor=2, pre_rounds=1),
        "random": attention._draws(options, jnp.int32(0), 9, True),
    }


def test_attentions_draw_the_same_numbers_with_64_bits():
    with jax.enable_x64(False):
        expected = jax.jit(draws)()
    with jax.enable_x64(True):
        result = jax.jit(draws)()
    for x, y in zip(*map(jax.tree.leaves, (result, expected)), strict=True):
        assert x.dtype == y.dtype == np.float32
        np.testing.assert_array_equal(x, y)
