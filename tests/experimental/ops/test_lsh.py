import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experimental.ops.lsh import draw_rotations, hash_buckets, lsh_attention
from longsum_jax.ops.attention import blockwise, fused

B, L, H, K, ROUNDS, C = 2, 19, 2, 4, 3, 4
LENGTHS = (19, 10)
MASK = jnp.arange(L) < jnp.array(LENGTHS)[:, None]
ROTATIONS = draw_rotations(jax.random.key(0), H, K, ROUNDS, 4)


def arrays():
    rng = np.random.default_rng(0)
    vectors, v = (jnp.asarray(rng.normal(size=(B, L, H, K)), jnp.float32) for _ in range(2))
    return vectors, v, jnp.asarray(rng.normal(size=(H, 2 * L - 1)), jnp.float32)


def definition(vectors, v, bias, chunk):
    """One token, head and round at a time, in float64."""
    vectors, v, bias = (np.asarray(x, np.float64) for x in (vectors, v, bias))
    out = np.zeros((B, L, H, K))
    for b, length in enumerate(LENGTHS):
        for h in range(H):
            x = vectors[b, :length, h]
            keys = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
            totals, values = np.zeros((ROUNDS, length)), np.zeros((ROUNDS, length, K))
            chunks = []  # of all rounds, in order
            for r in range(ROUNDS):
                rotated = x @ np.asarray(ROTATIONS, np.float64)[h, :, r]
                buckets = np.concatenate([rotated, -rotated], -1).argmax(-1)
                order = sorted(range(length), key=lambda i: (buckets[i], i))
                chunks += [(r, order[start : start + chunk]) for start in range(0, length, chunk)]
            for n, (r, members) in enumerate(chunks):
                # The chunk before the first is the last of all.
                keys_of_chunk = members + (chunks[n - 1][1] if length > chunk else [])
                for i in members:
                    scores = [
                        x[i] @ keys[j] + bias[h, j - i + L - 1] - 1e5 * (i == j)
                        for j in keys_of_chunk
                    ]
                    totals[r, i] = np.logaddexp.reduce(scores)
                    values[r, i] = np.exp(scores - totals[r, i]) @ v[b, keys_of_chunk, h]
            shares = np.exp(totals - np.logaddexp.reduce(totals, axis=0))
            out[b, :length, h] = (shares[..., None] * values).sum(0)
    return out


@pytest.mark.parametrize("chunk", [4, 5, 32])
def test_it_is_what_its_definition_says(chunk):
    vectors, v, bias = arrays()
    buckets = hash_buckets(vectors, MASK, ROTATIONS)
    assert buckets.shape == (B, H, ROUNDS, L)
    result = jax.jit(
        lambda *x: lsh_attention(*x, MASK, buckets, chunk_length=chunk, distance_bias=bias)
    )(vectors, v)
    np.testing.assert_allclose(result, definition(vectors, v, bias, chunk), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
def test_a_kernel_computes_the_same_with_its_gradients(kernel, monkeypatch):
    """Also of padding, of several rows, and of a text of one token, which only sees itself."""
    monkeypatch.setattr(fused, "MAX_ROW", 64)
    rng = np.random.default_rng(0)
    vectors, v, dy = (rng.normal(size=(3, 150, H, 8)).astype(np.float32) for _ in range(3))
    mask = np.arange(150) < np.array([[150], [70], [1]])
    buckets = hash_buckets(vectors, mask, draw_rotations(jax.random.key(0), H, 8, ROUNDS, 16))

    def total(attend, vectors, v):
        out = lsh_attention(vectors, v, mask, buckets, chunk_length=16, fused=attend)
        return jnp.sum(out * dy), out

    results = [
        jax.jit(jax.value_and_grad(functools.partial(total, attend), (0, 1), has_aux=True))(
            vectors, v
        )
        for attend in (None, functools.partial(fused.fused_part, kernel=kernel))
    ]
    for expected, result in zip(*map(jax.tree.leaves, results), strict=True):
        assert np.isfinite(result).all()
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_only_the_order_of_buckets_counts():
    """Even of numbers whose products with the length are beyond int32."""
    vectors, v, _ = arrays()
    buckets = hash_buckets(vectors, MASK, ROTATIONS)
    attend = jax.jit(lambda buckets: lsh_attention(vectors, v, MASK, buckets, chunk_length=C))
    np.testing.assert_array_equal(attend(buckets * 2**27), attend(buckets))


@pytest.mark.slow
def test_a_bias_of_zeros_and_longer_padding_change_nothing():
    vectors, v, bias = arrays()

    @jax.jit
    def run(vectors, v, mask, bias):
        buckets = hash_buckets(vectors, mask, ROTATIONS)
        return lsh_attention(vectors, v, mask, buckets, chunk_length=C, distance_bias=bias)

    plain = run(vectors, v, MASK, None)
    np.testing.assert_allclose(plain, run(vectors, v, MASK, jnp.zeros_like(bias)), atol=1e-6)
    longer = [jnp.pad(x, ((0, 0), (0, 13)) + ((0, 0),) * (x.ndim - 2)) for x in (vectors, v, MASK)]
    np.testing.assert_allclose(run(*longer, None)[:, :L], plain, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("biased", [True, False])
def test_few_scores_at_a_time_change_nothing(biased, monkeypatch):
    vectors, v, bias = arrays()
    buckets = hash_buckets(vectors, MASK, ROTATIONS)
    options = {"chunk_length": C, "distance_bias": bias if biased else None}
    result = []
    for limit in (2**28, 1):
        monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", limit)
        run = jax.jit(lambda *x: lsh_attention(*x, MASK, buckets, **options))
        result.append(run(vectors, v))
    np.testing.assert_allclose(*result, atol=1e-6)


def test_one_chunk_is_dense_attention_of_others():
    """A chunk as long as the text: every token sees all others, and itself hardly ever."""
    vectors, v, _ = arrays()
    buckets = hash_buckets(vectors, MASK, ROTATIONS)
    result = jax.jit(functools.partial(lsh_attention, chunk_length=L))(vectors, v, MASK, buckets)
    keys = vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    scores = jnp.einsum("blhk,bmhk->bhlm", vectors, keys)
    others = MASK[:, None, None] & ~jnp.eye(L, dtype=bool)
    weights = jax.nn.softmax(jnp.where(others, scores, -1e9), -1)
    expected = jnp.where(MASK[..., None, None], jnp.einsum("bhlm,bmhk->blhk", weights, v), 0)
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_gradients_reach_vectors_and_values_and_hashing_has_none():
    vectors, v, _ = arrays()

    def loss(x, v):
        buckets = hash_buckets(x, MASK, ROTATIONS)
        return (lsh_attention(x, v, MASK, buckets, chunk_length=C) ** 2).sum()

    for gradient in jax.jit(jax.grad(loss, argnums=(0, 1)))(vectors, v):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient[MASK]).min(axis=(1, 2)).max() > 0
        assert not np.asarray(gradient[~MASK]).any()


def test_a_vector_of_zeros_is_a_key_of_zeros_and_has_finite_gradients():
    vectors, v, bias = arrays()
    vectors = vectors.at[0, 3].set(0)

    def loss(x, v):
        buckets = hash_buckets(x, MASK, ROTATIONS)
        out = lsh_attention(x, v, MASK, buckets, chunk_length=C, distance_bias=bias)
        return (out**2).sum(), out

    gradients, out = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(vectors, v)
    np.testing.assert_allclose(out, definition(vectors, v, bias, C), atol=1e-5)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_a_chunk_needs_a_token():
    vectors, v, _ = arrays()
    with pytest.raises(InputError, match="lsh_chunk_length=0 must be at least 1"):
        lsh_attention(vectors, v, MASK, hash_buckets(vectors, MASK, ROTATIONS), chunk_length=0)
