"""Sparse attention against dense attention under a mask that loops make from the sentence that
defines it."""

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.attention.dense import dot_product_attention

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


def assert_bias_acts_within(attend, where, sees=None):
    """``attend(q, k, v, mask, table)`` is dense attention of 29 tokens to the keys that ``sees``
    allows, with the bias of ``table`` at pairs (i, j) where ``where`` holds."""
    length = 29
    q, k, v = tokens(length)

    def twin(table):
        mask = make_mask(length, length, lambda b, h, i, j: (sees or where)(i, j))
        return dense(q, k, v, mask, distance_bias(table, where))

    mask = jnp.ones((B, length), bool)
    table = normal(9, H, 2 * length)
    assert_equal(lambda table: attend(q, k, v, mask, table), twin, [table])
