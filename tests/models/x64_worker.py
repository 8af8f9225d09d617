"""Computes gradients and states of a small LOCOST; writes them to the file that is its argument.

Run by test_x64.py in a process of its own, because the flag JAX_ENABLE_X64 is read when JAX starts.
"""

import sys

import flax.linen as nn
import jax
import numpy as np

from longsum_jax.models.registry import get_family


def compute():
    """Parameters, gradients and states, the last with and without jit, as a list of arrays."""
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
    return jax.tree.leaves((params, gradient, states, eager))


if __name__ == "__main__":
    np.savez(sys.argv[1], *compute())
