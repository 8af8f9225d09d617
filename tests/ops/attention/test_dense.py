import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.attention.blockwise import attend_shared_keys
from longsum_jax.ops.attention.dense import (
    CappedScale,
    dot_product_attention,
    masked_softmax,
    mix_states,
    repeat_heads,
)
from longsum_jax.ops.attention.key_sets import KeySet, attend_jointly
from longsum_jax.ops.storage import Stored, stored_attention

B, T, L, H, K = 2, 3, 5, 2, 4


def tensors():
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=shape) for shape in ((B, T, H, K), (B, L, H, K), (B, L, H, K), (1, H, T, L))
    ]


def attention_by_loops(q, k, v, mask, bias, scale):
    """One query and one head at a time, over the keys it may see, in float64."""
    out = np.zeros((B, T, H, K))
    for b, t, h in np.ndindex(B, T, H):
        keys = [i for i in range(L) if mask[b, t, i]]
        weights = [math.exp(scale * (q[b, t, h] @ k[b, i, h]) + bias[0, h, t, i]) for i in keys]
        for weight, i in zip(weights, keys, strict=True):
            out[b, t, h] += weight / sum(weights) * v[b, i, h]
    return out


def test_attention_equals_loops_and_blind_queries_get_zeros():
    q, k, v, bias = tensors()
    mask = np.random.default_rng(1).random((B, T, L)) < 0.6
    mask[0, 1] = False
    out = dot_product_attention(
        *map(jnp.asarray, (q, k, v)),
        mask=jnp.asarray(mask[:, None]),
        bias=jnp.asarray(bias),
        scale=0.7,
    )
    np.testing.assert_allclose(out, attention_by_loops(q, k, v, mask, bias, 0.7), rtol=0, atol=1e-6)
    assert not np.asarray(out[0, 1]).any()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.02)])
def test_states_are_keys_and_values_of_every_head(dtype, tolerance):
    rng = np.random.default_rng(0)
    q, states = (rng.normal(size=n).astype(dtype) for n in ((2, 3, 4, 16), (2, 40, 16)))
    mask = rng.random((2, 1, 3, 40)) < 0.6
    mask[0, :, 1] = False
    out = jax.jit(partial(mix_states, scale=0.25))(q, states, mask)
    keys = jnp.repeat(jnp.asarray(states, jnp.float32)[:, :, None], 4, 2)
    expected = dot_product_attention(q.astype("float32"), keys, keys, mask=mask, scale=0.25)
    np.testing.assert_allclose(out.astype("float32"), expected, rtol=0, atol=tolerance)
    assert not out[0, 1].any()


def capped_attention_by_loops(q, k, v, mask, factor, cap):
    """Softmax of capped scores; each head of the keys is for a group of the queries' heads."""
    out = np.zeros(q.shape)
    for b, t, h in np.ndindex(q.shape[:3]):
        group = h * k.shape[2] // q.shape[2]
        keys = [i for i in range(L) if mask[b, t, i]]
        scores = [cap * math.tanh(factor * (q[b, t, h] @ k[b, i, group]) / cap) for i in keys]
        weights = [math.exp(score) for score in scores]
        for weight, i in zip(weights, keys, strict=True):
            out[b, t, h] += weight / sum(weights) * v[b, i, group]
    return out


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_soft_caps_and_grouped_queries(kv_heads):
    rng = np.random.default_rng(0)
    q = 2 * rng.normal(size=(B, T, 4, K)).astype(np.float32)
    k, v = (rng.normal(size=(B, L, kv_heads, K)).astype(np.float32) for _ in "kv")
    mask = rng.random((B, T, L)) < 0.6
    mask[0, 1] = False
    scale = CappedScale(0.7, 1.5)
    expected = capped_attention_by_loops(q, k, v, mask, *scale)
    queries_mask = jnp.asarray(mask[:, None])

    def dense(q, k, v):
        return dot_product_attention(q, k, v, mask=queries_mask, scale=scale)

    def jointly(q, k, v):
        parts = [slice(0, 2), slice(2, L)]
        sets = [KeySet(k[:, part], v[:, part], queries_mask[..., part]) for part in parts]
        return attend_jointly(q, sets, scale=scale)

    def blocks(q, k, v):
        keys = KeySet(repeat_heads(k, 4), repeat_heads(v, 4), queries_mask[:, None])
        return attend_shared_keys(q, [keys], scale=scale)

    arrays = tuple(map(jnp.asarray, (q, k, v)))
    gradients = []
    for attend in (dense, jointly, blocks):
        np.testing.assert_allclose(attend(*arrays), expected, rtol=0, atol=2e-6)
        loss = jax.jit(jax.grad(lambda *x, attend=attend: (attend(*x) ** 2).sum(), (0, 1, 2)))
        gradients.append(loss(*arrays))
    for other in gradients[1:]:
        for result, wanted in zip(other, gradients[0], strict=True):
            np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-5)

    # Stored keys have one mask for all queries.
    first = mask[:, :1]
    expected = capped_attention_by_loops(q, k, v, np.repeat(first, T, 1), *scale)
    stored_k = Stored(jnp.moveaxis(arrays[1], 1, -1), None)
    stored_v = Stored(jnp.moveaxis(arrays[2], 1, -2), None)
    result = stored_attention(
        arrays[0], stored_k, stored_v, mask=jnp.asarray(first[:, None]), scale=scale
    )
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


def test_attention_without_mask_and_bias():
    q, k, v, bias = tensors()
    out = dot_product_attention(*map(jnp.asarray, (q, k, v)))
    expected = attention_by_loops(q, k, v, np.ones((B, T, L), bool), 0 * bias, 1.0)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6)


def test_gradients_of_blind_queries_are_finite_and_zero():
    q, k, v, bias = map(jnp.asarray, tensors())
    mask = jnp.zeros((B, 1, T, L), bool).at[1].set(True)

    def loss(q, k, v, bias):
        return (dot_product_attention(q, k, v, mask=mask, bias=bias) ** 2).sum()

    dq, dk, dv, dbias = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(q, k, v, bias)
    for gradient in (dq, dk, dv):
        assert not np.asarray(gradient[0]).any()
        assert np.isfinite(gradient).all()
        assert np.asarray(gradient[1]).any()
    assert np.isfinite(dbias).all()


def test_bfloat16_attention_has_float32_scores():
    q, k, v, _ = (jnp.asarray(x, jnp.bfloat16) for x in tensors())
    out = dot_product_attention(q * 4, k * 4, v)
    assert out.dtype == jnp.bfloat16
    wide = [np.asarray(x, np.float64) for x in (q * 4, k * 4, v)]
    exact = attention_by_loops(*wide, np.ones((B, T, L), bool), np.zeros((1, H, T, L)), 1.0)
    np.testing.assert_allclose(np.asarray(out, np.float64), exact, rtol=0, atol=2e-2)


def test_dropout_acts_on_the_weights():
    q, k, v, _ = map(jnp.asarray, tensors())
    out = dot_product_attention(q, k, v, dropout=lambda weights: weights.at[..., 1:].set(0.0))
    first = masked_softmax(jnp.einsum("bthk,blhk->bhtl", q, k), None)[..., 0]
    np.testing.assert_allclose(
        out, jnp.einsum("bht,bhk->bthk", first, v[:, 0]), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_masked_softmax_of_a_row_without_entries(shape):
    assert not np.asarray(masked_softmax(jnp.ones(shape), jnp.zeros(shape, bool))).any()
