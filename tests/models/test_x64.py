"""LOCOST with JAX_ENABLE_X64=1, in processes of their own: the flag is read when JAX starts."""

import os
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import sys

import flax.linen as nn
import jax
import numpy as np

from longsum_jax.models.registry import get_family

sizes = {"d_model": 8, "d_state": 4, "d_kv": 4, "d_ff": 8, "num_heads": 2}
layers = {"num_layers": 1, "num_decoder_layers": 1, "vocab_size": 32}
family = get_family("locost")
config = family.config(sizes | layers)
init = family.init_params(config)
shapes = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
rng = np.random.default_rng(0)
params = jax.tree.map(lambda x: np.asarray(0.2 * rng.normal(size=x.shape), x.dtype), shapes)
ids = rng.integers(1, 32, (2, 12)).astype(np.int32)
mask = np.arange(12) < np.array([[12], [7]])


def encode(params):
    module = family.module_class(config)
    return module.apply({"params": params}, ids, mask, method="encode")


def loss(params):
    states = encode(params)
    return (states**2).sum(), states


gradient, states = jax.jit(jax.grad(loss, has_aux=True))(params)
eager = encode(params)
arrays = jax.tree.leaves((params, gradient, states, eager))
np.savez(sys.argv[1], *arrays)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Parameters, gradients and states without and with 64 bits."""
    directory = tmp_path_factory.mktemp("x64")
    found = []
    for flag in ("0", "1"):
        path = directory / f"{flag}.npz"
        environment = os.environ | {"JAX_ENABLE_X64": flag}
        subprocess.run([sys.executable, "-c", PROGRAM, str(path)], env=environment, check=True)
        with np.load(path) as arrays:
            found.append(dict(arrays))
    return found


@pytest.mark.slow
def test_float32_results_are_the_same_with_64_bits(results):
    without, with_64_bits = results
    assert without.keys() == with_64_bits.keys()
    for name, wanted in without.items():
        assert wanted.dtype == with_64_bits[name].dtype == np.float32
        np.testing.assert_allclose(with_64_bits[name], wanted, rtol=1e-6, atol=1e-6)
