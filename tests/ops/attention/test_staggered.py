"""Block-staggered attention against dense attention under masks from loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparse_twins import (
    SCALE,
    B,
    G,
    H,
    K,
    assert_bias_acts_within,
    assert_equal,
    dense,
    make_mask,
    normal,
    rows,
    tokens,
)

from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.staggered import block_staggered_attention


def staggered_twin(mask, size, stagger):
    """Dense attention where token i sees token j if both lie in one block, the borders half a block
    earlier or not."""
    length, shift = mask.shape[1], size // 2 if stagger else 0
    same_block = make_mask(
        length,
        length,
        lambda b, h, i, j: mask[b, i] and mask[b, j] and (i + shift) // size == (j + shift) // size,
    )
    sees = jnp.concatenate([make_mask(length, G, lambda b, h, i, g: mask[b, i]), same_block], -1)
    all_real = make_mask(G, G + length, lambda b, h, g, j: j < G or mask[b, j - G])

    def twin(q, k, v, global_q, global_k, global_v):
        k, v = jnp.concatenate([global_k, k], 1), jnp.concatenate([global_v, v], 1)
        return dense(q, k, v, sees), dense(global_q, k, v, all_real)

    return twin


@pytest.mark.parametrize(("length", "size"), [(16, 4), (13, 5), (3, 4)])
def test_block_staggered_attention(length, size):
    mask = rows(length)
    arrays = [*tokens(length), *[normal(5 + i, B, G, H, K) for i in range(3)]]

    def sparse(*arrays, stagger):
        triples = QKV(*arrays[:3]), QKV(*arrays[3:])
        options = {"block_size": size, "stagger": stagger, "scale": SCALE}
        return block_staggered_attention(*triples, jnp.asarray(mask), **options)

    def with_both(function):
        return lambda *arrays: [function(*arrays, stagger=stagger) for stagger in (False, True)]

    assert_equal(
        with_both(sparse),
        with_both(lambda *arrays, stagger: staggered_twin(mask, size, stagger)(*arrays)),
        arrays,
    )


@pytest.mark.slow
def test_layers_that_alternate_in_a_scan():
    length = 13
    mask = jnp.asarray(rows(length))
    q, *token_arrays = tokens(length)
    global_q, *global_arrays = [normal(5 + i, B, G, H, K) for i in range(3)]

    def layer(x, stagger):
        out = block_staggered_attention(
            QKV(x[0], *token_arrays),
            QKV(x[1], *global_arrays),
            mask,
            block_size=4,
            stagger=stagger,
            scale=SCALE,
        )
        return out, None

    def loss(run):
        return lambda x: sum((y**2).sum() for y in jax.tree.leaves(run(x)))

    scanned = lambda x: jax.lax.scan(layer, x, jnp.array([False, True]))[0]  # noqa: E731
    unrolled = lambda x: layer(layer(x, False)[0], True)[0]  # noqa: E731
    results = [jax.jit(jax.value_and_grad(loss(run)))((q, global_q)) for run in (scanned, unrolled)]
    for value, expected in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


def test_a_bias_acts_inside_blocks_alone():
    size = 4
    empty = QKV(*[jnp.zeros((B, 0, H, K))] * 3)
    within = np.arange(size) - np.arange(size)[:, None]

    def sparse(q, k, v, mask, table):
        bias = table[:, jnp.asarray(within) + mask.shape[1]]
        options = {"block_size": size, "stagger": False, "scale": SCALE, "bias": bias}
        return block_staggered_attention(QKV(q, k, v), empty, mask, **options)[0]

    assert_bias_acts_within(sparse, lambda i, j: i // size == j // size)
