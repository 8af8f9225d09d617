"""Local and transient-global attention against dense attention under masks from loops."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparse_twins import (
    LENGTHS,
    SCALE,
    B,
    G,
    H,
    K,
    assert_equal,
    dense,
    make_mask,
    normal,
    rows,
    tokens,
)

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.dense import QKV, dot_product_attention
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.attention.local import (
    _WindowPattern,
    block_sums,
    local_attention,
    local_block_size,
    local_distances,
    side_distances,
    transient_blocks,
    transient_global_attention,
)
from longsum_plan.devices import find_target

# A window


@pytest.mark.parametrize(
    ("length", "radius", "size"), [(16, 4, 4), (13, 9, 4), (13, 0, 1), (13, 5, None), (7, 9, 4)]
)
def test_local_attention(length, radius, size):
    mask = rows(length)
    bias = normal(9, H, *local_distances(size or 8, radius).shape)
    sees = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and mask[b, j] and abs(i - j) <= radius
    )
    distances = local_distances(size or 8, radius)
    column = np.zeros((length, length), int)
    for i, j in np.ndindex(length, length):
        column[i, j] = next(
            (w for w, d in enumerate(distances[i % len(distances)]) if d == j - i), 0
        )
    row = np.arange(length)[:, None] % len(distances)
    assert_equal(
        lambda q, k, v, bias: local_attention(
            q, k, v, jnp.asarray(mask), radius=radius, block_size=size, bias=bias, scale=SCALE
        ),
        lambda q, k, v, bias: dense(q, k, v, sees, bias[None, :, row, column]),
        [*tokens(length), bias],
    )


def test_local_attention_with_extra_keys_and_fewer_in_the_window():
    length, radius = 13, 3
    mask = rows(length)
    key_mask = mask & (np.arange(length) % 3 != 1)
    window = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and key_mask[b, j] and abs(i - j) <= radius
    )
    global_mask = jnp.asarray(np.array([[True, True], [False, True], [True, True]]))
    everywhere = make_mask(length, G, lambda b, h, i, j: mask[b, i] and bool(global_mask[b, j]))

    def sparse(q, k, v, global_k, global_v):
        extra = [KeySet(global_k, global_v, global_mask[:, None, None, None])]
        options = {"key_mask": jnp.asarray(key_mask), "extra": extra, "scale": SCALE}
        return local_attention(q, k, v, jnp.asarray(mask), radius=radius, **options)

    def twin(q, k, v, global_k, global_v):
        together = jnp.concatenate([window, everywhere], -1)
        return dense(
            q, jnp.concatenate([k, global_k], 1), jnp.concatenate([v, global_v], 1), together
        )

    assert_equal(sparse, twin, [*tokens(length), normal(5, B, G, H, K), normal(6, B, G, H, K)])


def test_a_traced_radius():
    q, k, v = tokens(13)
    mask = jnp.asarray(rows(13))
    run = jax.jit(
        lambda radius: local_attention(q, k, v, mask, radius=radius, max_radius=7, scale=SCALE)
    )
    known = jax.jit(
        lambda radius: local_attention(q, k, v, mask, radius=radius, scale=SCALE),
        static_argnums=0,
    )
    for radius in (2, 7):
        expected = known(radius)
        np.testing.assert_allclose(run(radius), expected, rtol=1e-5, atol=1e-6)


def test_the_layout_of_a_window():
    assert [local_block_size(radius) for radius in (0, 5, 127, 256)] == [8, 8, 128, 256]
    np.testing.assert_array_equal(
        local_distances(2, 1), [[-2, -1, 0, 1, 2, 3], [-3, -2, -1, 0, 1, 2]]
    )
    assert local_distances(128, 127).shape == (128, 384)
    assert local_distances(4, 5).shape == (4, 20)


# LongT5


@pytest.mark.parametrize("length", [1, 3, 8, 13])
def test_blocks_of_transient_globals(length):
    size, lengths = 4, [length, max(1, length - 5), min(3, length), 0]
    mask = np.arange(length) < np.array(lengths)[:, None]
    ids, global_mask = transient_blocks(jnp.asarray(mask), size)
    for b, num_tokens in enumerate(lengths):
        full = num_tokens // size
        expected = [min(i // size, full - 1) if i < num_tokens else -1 for i in range(length)]
        np.testing.assert_array_equal(ids[b], expected)
        np.testing.assert_array_equal(global_mask[b], [g < full for g in range(length // size)])


@pytest.mark.parametrize("length", LENGTHS)
def test_block_sums_equal_loops(length):
    size, lengths = 4, [length, max(1, length - 5), min(3, length), 0]
    mask = np.arange(length) < np.array(lengths)[:, None]
    mask[0, 5::7] = False
    mask[1] = mask[1, ::-1]  # padded on the left
    mask = jnp.asarray(mask)
    ids, _ = jax.jit(transient_blocks, static_argnums=1)(mask, size)
    x, weights = normal(0, 4, length, 3), normal(1, 4, length // size, 3)
    expected, gradient = np.zeros(weights.shape), np.zeros(x.shape)
    for b, i in np.ndindex(ids.shape):
        if ids[b, i] >= 0:
            expected[b, ids[b, i]] += np.asarray(x)[b, i]
            gradient[b, i] = np.asarray(weights)[b, ids[b, i]]
    sums = functools.partial(block_sums, mask=mask, size=size, num_blocks=length // size)
    result, pull_back = jax.vjp(jax.jit(sums), x)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pull_back(weights)[0], gradient, rtol=1e-6)
    assert jax.eval_shape(sums, x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_block_sums_neither_gather_nor_scatter_on_tpus():
    device, *_ = find_target("v5e").devices
    sharding = jax.sharding.SingleDeviceSharding(device)
    x = jax.ShapeDtypeStruct((2, 1000, 128), jnp.bfloat16, sharding=sharding)
    mask = jax.ShapeDtypeStruct((2, 1000), bool, sharding=sharding)

    def loss(x, mask):
        return jnp.square(block_sums(x, mask, 16, 62)).sum()

    program = jax.jit(jax.grad(loss)).lower(x, mask).compile().as_text()
    assert not re.findall(r" (?:gather|scatter|sort)\(", program)


@pytest.mark.parametrize("length", LENGTHS)
def test_transient_global_attention(length):
    mask, size, radius = rows(length), 4, 3
    ids, global_mask = (np.asarray(x) for x in transient_blocks(jnp.asarray(mask), size))
    count = length // size
    window = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and mask[b, j] and abs(i - j) <= radius
    )
    everywhere = make_mask(length, count, lambda b, h, i, g: mask[b, i] and global_mask[b, g])
    sees = jnp.concatenate([window, everywhere], -1)
    entry = {distance: i for i, distance in enumerate(side_distances(count))}
    column = np.zeros((B, length, count), int)
    for b, i, g in np.ndindex(column.shape):
        column[b, i, g] = entry[g - ids[b, i]]

    def sparse(q, k, v, global_k, global_v, side):
        global_keys = KeySet(global_k, global_v, jnp.asarray(global_mask)[:, None, None, None])
        arrays = (QKV(q, k, v), jnp.asarray(mask), jnp.asarray(ids), global_keys)
        options = {"radius": radius, "side_bias": side, "scale": SCALE}
        return transient_global_attention(*arrays, **options)

    def twin(q, k, v, global_k, global_v, side):
        bias = jnp.pad(jnp.moveaxis(side[:, column], 0, 1), ((0, 0),) * 3 + ((length, 0),))
        return dense(
            q, jnp.concatenate([k, global_k], 1), jnp.concatenate([v, global_v], 1), sees, bias
        )

    arrays = [
        *tokens(length),
        normal(5, B, count, H, K),
        normal(6, B, count, H, K),
        normal(7, H, 2 * count),
    ]
    assert_equal(sparse, twin, arrays)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": -1}, "the attention radius is -1; it must be 0 or more tokens"),
        (
            {"radius": 3, "block_size": 0},
            "block_size is 0; it must be 1 or more tokens",
        ),
    ],
)
def test_impossible_sizes(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        local_attention(*tokens(13), jnp.asarray(rows(13)), **options)


def test_windows_of_an_even_size_are_narrower_on_the_left():
    """By blocks, and by the pattern of kernels."""
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 21, 2, 4)).astype(np.float32)
    mask = np.ones((1, 21), bool)
    result = jax.jit(functools.partial(local_attention, radius=3, is_even=True))(q, k, v, mask)
    offsets = np.arange(21) - np.arange(21)[:, None]
    window = ((offsets >= -2) & (offsets <= 3))[None, None]
    expected = jax.jit(dot_product_attention)(q, k, v, mask=window)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    reads = _WindowPattern((2, 3), margin=3, num_keys=10)(np.array(0), np.arange(12))
    assert np.flatnonzero(reads).tolist() == [1, 2, 3, 4, 5, 6, 10, 11]
