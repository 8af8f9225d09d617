import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.attention import blockwise, full
from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.attention.full import full_attention

B, H, K = 2, 2, 4


@pytest.mark.parametrize("most", [2**40, 1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_full_attention_is_dense_attention(with_bias, most, monkeypatch):
    """Values and gradients, with a length that is no multiple of the block, in one piece and in
    many."""
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", most)
    monkeypatch.setattr(full, "FULL_BLOCK", 4)
    length = 11
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(B, length, H, K)).astype(np.float32) for _ in range(3))
    table = rng.normal(size=(H, 2 * length - 1)).astype(np.float32)
    mask = np.arange(length) < np.array([length, 6])[:, None]
    distances = np.arange(length) - np.arange(length)[:, None]

    def ours(q, k, v, table):
        return full_attention(q, k, v, mask, distance_bias=table if with_bias else None, scale=0.7)

    def twin(q, k, v, table):
        bias = table[None, :, distances + length - 1] if with_bias else None
        return dot_product_attention(q, k, v, mask=mask[:, None, None], bias=bias, scale=0.7)

    def with_gradients(function, *inputs):
        out, pull_back = jax.vjp(function, *inputs)
        return out, *pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    results = []
    for function in (ours, twin):
        run = jax.jit(functools.partial(with_gradients, function))
        results.append(run(q, k, v, table))
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=3e-6)
