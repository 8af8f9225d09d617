import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.attention import blockwise, disentangled
from longsum_jax.ops.attention.disentangled import (
    disentangled_attention,
    distance_buckets,
    table_entries,
)


def test_buckets_of_the_published_code():
    """Values of make_log_bucket_position in DeBERTa's code for 256 buckets and 512 positions."""
    distances = np.array([0, 1, 127, 128, 129, 130, 200, 300, 400, 511, 600])
    expected = [0, 1, 127, 128, 129, 130, 169, 207, 233, 255, 270]
    for sign in (1, -1):
        result = distance_buckets(sign * distances, 256, 512)
        np.testing.assert_array_equal(result, sign * np.array(expected))


@pytest.mark.parametrize("most", [2**40, 1])
def test_attention_to_contents_and_positions(most, monkeypatch):
    """Values and gradients, in one piece and in many, of which the last one is not full."""
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", most)
    monkeypatch.setattr(disentangled, "FULL_BLOCK", 4)
    length, buckets = 10, 4
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2, length, 3, 4)).astype(np.float32)
    position_q, position_k = rng.normal(size=(2, 2 * buckets, 3, 4)).astype(np.float32)
    mask = np.arange(length) < np.array([length, 6])[:, None]
    positions = np.arange(length)
    entries = table_entries(positions[:, None] - positions, buckets, 4)
    assert entries[0, 0] == buckets
    assert (entries.min(), entries.max()) == (0, 2 * buckets - 1)

    def ours(q, k, v, position_q, position_k):
        tables = {"position_q": position_q, "position_k": position_k}
        return disentangled_attention(q, k, v, mask, **tables, max_distance=4, scale=0.7)

    def twin(q, k, v, position_q, position_k):
        scores = jnp.einsum("bihk,bjhk->bhij", q, k)
        scores += jnp.einsum("bihk,ijhk->bhij", q, position_k[entries])
        scores += jnp.einsum("bjhk,ijhk->bhij", k, position_q[entries])
        weights = jax.nn.softmax(jnp.where(mask[:, None, None], 0.7 * scores, -jnp.inf))
        return jnp.einsum("bhij,bjhk->bihk", weights, v)

    @functools.partial(jax.jit, static_argnums=0)
    def with_gradients(function, *inputs):
        out, pull_back = jax.vjp(function, *inputs)
        return out, *pull_back(jnp.cos(out))

    inputs = q, k, v, position_q, position_k
    results = [with_gradients(function, *inputs) for function in (ours, twin)]
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=3e-6)
