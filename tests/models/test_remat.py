"""What layers save for their gradients: the same update, more or less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.models.locost import LocostConfig
from longsum_jax.models.t5 import T5

# From everything computed again to almost nothing.
SETTINGS = (True, "attention", "projections", False)
SIZES = {
    "vocab_size": 16, "d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 128, "num_layers": 6,
    "num_decoder_layers": 6, "dropout_rate": 0.3,
}  # fmt: skip


@functools.cache
def compiled(remat):
    """A compiled function of parameters that returns the loss and its gradients."""
    model = T5(LocostConfig.of(**SIZES, remat=remat))
    ids = jax.random.randint(jax.random.key(0), (2, 128), 2, 16)
    inputs = ids, jnp.ones_like(ids), ids

    def loss(params):
        logits = model.apply(params, *inputs, False, rngs={"dropout": jax.random.key(1)})
        return jnp.mean(logits**2)

    params = model.init(jax.random.key(2), *inputs)
    return jax.jit(jax.value_and_grad(loss)).lower(params).compile(), params


@pytest.mark.slow
@pytest.mark.parametrize("remat", SETTINGS[:-1])
def test_what_is_saved_changes_no_gradient_with_dropout(remat):
    step, params = compiled(remat)
    expected, expected_gradients = compiled(False)[0](params)
    loss, gradients = step(params)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    pairs = zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=0, atol=2e-6 * max(1.0, np.abs(y).max()))


@pytest.mark.slow
def test_what_is_saved_orders_the_memory():
    sizes = [compiled(remat)[0].memory_analysis().temp_size_in_bytes for remat in SETTINGS]
    assert sizes == sorted(set(sizes)), sizes
