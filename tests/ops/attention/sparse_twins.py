"""Sparse attention against dense attention under a mask that loops make from the sentence that
defines it."""

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.attention.key_sets import WeightDropout

B, H, K, G, SCALE = 3, 2, 4, 2, 0.7
LENGTHS = (16, 13, 3)  # whole blocks, a part of one, less than one


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def tokens(length, first=0, count=3):
    return [normal(first + i, B, length, H, K) for i in range(count)]


def rows(length):
    """A full row, a shorter one and one of padding alone."""
    return np.arange(length) < np.array([length, max(1, length - 5), 0])[:, None]


def make_mask(length, keys, sees):
    """bool [B, H, L, keys] of sees(b, h, i, j), a Python function."""
    mask = np.zeros((B, H, length, keys), bool)
    for index in np.ndindex(mask.shape):
        mask[index] = sees(*index)
    return jnp.asarray(mask)


def dense(q, k, v, mask, bias=None):
    return dot_product_attention(q, k, v, mask=mask, bias=bias, scale=SCALE)


def assert_equal(sparse, twin, arrays, atol=3e-6):
    """Values and gradients of two functions of ``arrays`` agree; each returns one array or a tuple
    of them."""

    def both(*arrays):
        results = []
        for function in (sparse, twin):
            out, pull_back = jax.vjp(function, *arrays)
            results.append(
                (
                    out,
                    pull_back(
                        jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), out)
                    ),
                )
            )
        return results

    ours, expected = jax.jit(both)(*arrays)
    for value, wanted in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=atol)


def distance_bias(table, where):
    """Entries [1, H, L, L] of ``table`` [H, 2 L] at j - i + L, zero where not ``where(i, j)``."""
    length = table.shape[1] // 2
    i, j = np.indices((length, length))
    inside = np.vectorize(where)(i, j)
    return jnp.where(jnp.asarray(inside), table[:, j - i + length], 0)[None]


def assert_linear_memory(make_attention, monkeypatch):
    """Memory of gradients grows with the length, not with its square.

    ``make_attention(length)`` returns a function of q, k and v.
    """
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 2**20)

    def temporary_bytes(length):
        attention = make_attention(length)

        def loss(*arrays):
            return sum((y**2).sum() for y in jax.tree.leaves(attention(*arrays)))

        q = jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32)
        program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(q, q, q).compile()
        return program.memory_analysis().temp_size_in_bytes

    short, long = temporary_bytes(4096), temporary_bytes(8192)
    assert 0 < long < 2.3 * short
    assert long < 4 * 8192 * 8192 / 8  # an eighth of the scores of one head


def assert_dropout(attention):
    """Dropout reaches every weight and follows its key, in a function of q, k, v and dropout."""
    ones = jnp.ones((1, 256, 2, 1))

    @jax.jit
    def run(seed):
        return attention(0 * ones, ones, ones, dropout=WeightDropout(jax.random.key(seed), 0.5))

    for out, again, other in zip(*map(jax.tree.leaves, (run(0), run(0), run(1))), strict=True):
        np.testing.assert_array_equal(out, again)
        assert np.mean(np.abs(out - other) < 1e-6) < 0.2
        assert np.mean(np.abs(out - 1) < 1e-6) < 0.2
        assert abs(out.mean() - 1) < 0.05
