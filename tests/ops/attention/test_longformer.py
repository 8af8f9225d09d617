"""Longformer attention against dense attention under masks from loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparse_twins import (
    SCALE,
    B,
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

from longsum_jax.ops.attention import longformer
from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.local import local_attention, local_distances
from longsum_jax.ops.attention.longformer import (
    gather_positions,
    longformer_attention,
    scatter_positions,
)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_gather_and_scatter_are_exact(monkeypatch, platform, dtype):
    """TPUs select rows of floats by products with zeros and ones."""
    monkeypatch.setattr(longformer, "target_platform", lambda: platform)
    rng = np.random.default_rng(0)
    x = jnp.asarray(1e3 * rng.normal(size=(2, 30, 3, 4)), dtype)
    rows = jnp.asarray(1e3 * rng.normal(size=(2, 3, 3, 4)), dtype)
    indices = np.array([[29, -1, 4], [0, 7, 30]])
    expected, gathered = np.array(x), np.zeros_like(rows)
    for batch, number in ((0, 0), (0, 2), (1, 0), (1, 1)):
        position = indices[batch, number]
        gathered[batch, number] = x[batch, position]
        expected[batch, position] = rows[batch, number]
    np.testing.assert_array_equal(gather_positions(x, jnp.asarray(indices)), gathered)
    if dtype != "int32":
        rows = rows.at[0, 1].set(np.nan)  # of an absent position
    np.testing.assert_array_equal(scatter_positions(x, rows, jnp.asarray(indices)), expected)


def test_gather_and_scatter_leave_out_absent_positions():
    x, indices = np.arange(1, 11).reshape(2, 5), jnp.array([[3, -1], [-1, 0]])
    np.testing.assert_array_equal(gather_positions(jnp.asarray(x), indices), [[4, 0], [0, 6]])
    out = scatter_positions(jnp.asarray(x), jnp.array([[40, 99], [99, 60]]), indices)
    np.testing.assert_array_equal(out, [[1, 2, 3, 40, 5], [60, 7, 8, 9, 10]])


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_gradients_of_scatter_number_no_entries(monkeypatch, platform):
    monkeypatch.setattr(longformer, "target_platform", lambda: platform)
    x, rows = jnp.ones((2, 5, 1, 1)), jnp.ones((2, 2, 1, 1))
    indices = jnp.array([[3, -1], [-1, 0]])
    run = jax.grad(lambda *arrays: scatter_positions(*arrays, indices).sum(), argnums=(0, 1))
    of_x, of_rows = run(x, rows)
    np.testing.assert_array_equal(of_x[..., 0, 0], [[1, 1, 1, 0, 1], [0, 1, 1, 1, 1]])
    np.testing.assert_array_equal(of_rows[..., 0, 0], [[1, 0], [0, 1]])
    assert "u32[2,5" not in str(jax.make_jaxpr(run)(x, rows))


@pytest.mark.parametrize(("length", "traced"), [(16, False), (13, True), (3, False)])
def test_longformer_attention(length, traced):
    mask, radius = rows(length), 3
    # Two global tokens, one and an index of padding, padding alone.
    indices = np.array([[length - 1, -1, 0], [0, length - 1, -1], [0, -1, -1]])
    is_global = np.array(
        [[j in indices[b] and mask[b, j] for j in range(length)] for b in range(B)]
    )

    def sees(b, h, i, j):
        return mask[b, i] and (is_global[b, j] or (mask[b, j] and abs(i - j) <= radius))

    local = make_mask(length, length, sees)
    everything = make_mask(length, length, lambda b, h, i, j: mask[b, i] and mask[b, j])
    sizes = {"radius": jnp.asarray(radius), "max_radius": 6} if traced else {"radius": radius}

    def sparse(q, k, v, global_q, global_k, global_v):
        global_q = gather_positions(global_q, jnp.asarray(indices))
        where = (jnp.asarray(mask), jnp.asarray(indices))
        triples = QKV(q, k, v), QKV(global_q, global_k, global_v)
        return longformer_attention(*triples, *where, **sizes, scale=SCALE)

    def twin(q, k, v, global_q, global_k, global_v):
        by_globals = dense(global_q, global_k, global_v, everything)
        return jnp.where(is_global[..., None, None], by_globals, dense(q, k, v, local))

    assert_equal(sparse, twin, tokens(length, count=6))


def test_longformer_attention_without_global_tokens_is_local_attention():
    q, k, v = tokens(13)
    mask = jnp.asarray(rows(13))
    attend = jax.jit(functools.partial(longformer_attention, radius=3))
    out = attend(QKV(q, k, v), QKV(q[:, :0], k, v), mask, jnp.zeros((B, 0), int))
    expected = jax.jit(functools.partial(local_attention, radius=3))(q, k, v, mask)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_a_bias_acts_inside_the_window_alone():
    def sparse(q, k, v, mask, table):
        length = mask.shape[1]
        nobody = jnp.full((B, 1), -1)
        absent = QKV(normal(5, B, 1, H, K), *tokens(length, first=6, count=2))
        bias = table[:, jnp.asarray(local_distances(8, 5)) + length]
        options = {"radius": 5, "block_size": 8, "scale": SCALE, "bias": bias}
        return longformer_attention(QKV(q, k, v), absent, mask, nobody, **options)

    assert_bias_acts_within(sparse, lambda i, j: abs(i - j) <= 5)
