import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.ops.sinkhorn import sinkhorn_attention, soft_permutation
from longsum_jax.ops.attention import fused
from longsum_jax.ops.attention.dense import dot_product_attention

B, L, H, K, C, N = 2, 18, 2, 4, 4, 5  # the last block has two tokens
MASK = jnp.arange(L) < jnp.array([18, 11])[:, None]


def arrays():
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(B, L, H, K)), jnp.float32) for _ in range(3)]


def test_an_explicit_permutation_is_attention_to_two_blocks():
    q, k, v = arrays()
    selected = np.array(
        [[[2, 0, 1, 4, 3], [1, 2, 3, 4, 0]], [[1, 2, 0, 3, 4], [0, 1, 2, 3, 4]]]
    )  # [B, H, N]
    permutation = jax.nn.one_hot(selected, N)
    bias = jnp.asarray(np.random.default_rng(1).normal(size=(H, 2 * L - 1)), jnp.float32)
    attend = jax.jit(functools.partial(sinkhorn_attention, block_size=C, scale=0.5))
    result = attend(q, k, v, MASK, permutation, distance_bias=bias)
    i, j = np.arange(L)[:, None], np.arange(L)
    own = np.broadcast_to(i // C == j // C, (B, H, L, L))
    other = selected[:, :, i[:, 0] // C][..., None] == j // C
    # Both sets side by side: a block that sees itself twice counts twice.
    keys, values = (jnp.concatenate([x, x], 1) for x in (k, v))
    mask = np.concatenate([own, other], -1) & np.concatenate([MASK, MASK], -1)[:, None, None]
    table = np.concatenate([bias[:, j - i + L - 1], np.zeros((H, L, L))], -1)[None]
    expected = dot_product_attention(
        q, keys, values, mask=jnp.asarray(mask), bias=jnp.asarray(table), scale=0.5
    )
    np.testing.assert_allclose(result, jnp.where(MASK[..., None, None], expected, 0), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
def test_a_kernel_computes_the_same_with_its_gradients(kernel, monkeypatch):
    """Also of several rows, and of padding."""
    monkeypatch.setattr(fused, "MAX_ROW", 64)
    rng = np.random.default_rng(0)
    *inputs, dy = (rng.normal(size=(2, 150, H, 8)).astype(np.float32) for _ in range(4))
    mask = np.arange(150) < np.array([[150], [70]])

    def total(attend, q, k, v):
        order = soft_permutation(q, k, mask, block_size=16)
        out = sinkhorn_attention(q, k, v, mask, order, block_size=16, scale=0.5, fused=attend)
        return jnp.sum(out * dy), out

    results = [
        jax.jit(jax.value_and_grad(functools.partial(total, attend), (0, 1, 2), has_aux=True))(
            *inputs
        )
        for attend in (None, functools.partial(fused.fused_attention, kernel=kernel))
    ]
    for expected, result in zip(*map(jax.tree.leaves, results), strict=True):
        assert np.isfinite(result).all()
        np.testing.assert_allclose(result, expected, atol=1e-5)


def reference_order(q, k, length, noise=None):
    """Sinkhorn's normalisation of one row, real blocks alone, in float64."""
    blocks = -(-length // C)
    rows = []
    for h in range(H):
        mq, mk = (
            np.stack(
                [
                    np.asarray(x, np.float64)[n * C : min((n + 1) * C, length), h].mean(0)
                    for n in range(blocks)
                ]
            )
            for x in (q, k)
        )
        fit = np.maximum(mq @ mk.T * K**-0.5, 0)
        p = np.exp(
            (np.log(fit + 1e-6) + (0 if noise is None else noise[h, :blocks, :blocks])) / 0.7
        )
        for _ in range(7):
            p /= p.sum(1, keepdims=True)
            p /= p.sum(0, keepdims=True)
        rows.append(np.pad(p, (0, N - blocks)))
    return np.stack(rows)


@pytest.mark.parametrize("noisy", [False, True])
def test_the_order_is_sinkhorns(noisy):
    q, k, _ = arrays()
    noise = jax.random.gumbel(jax.random.key(0), (B, H, N, N)) if noisy else None
    result = jax.jit(functools.partial(soft_permutation, block_size=C))(q, k, MASK, noise=noise)
    for b, length in enumerate((18, 11)):
        expected = reference_order(
            q[b], k[b], length, None if noise is None else np.asarray(noise[b])
        )
        np.testing.assert_allclose(result[b], expected, atol=2e-5)
    np.testing.assert_allclose(result[0].sum(-2), 1, atol=1e-5)
    assert result[1, :, 3:].max() == result[1, :, :, 3:].max() == 0


@pytest.mark.slow
def test_gradients_are_finite_and_pass_through_the_order():
    q, k, v = arrays()

    def loss(q, k, v):
        return (
            sinkhorn_attention(
                q, k, v, MASK, soft_permutation(q, k, MASK, block_size=C), block_size=C
            )
            ** 2
        ).sum()

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(q, k, v)
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        assert not np.asarray(gradient[~MASK]).any()
        assert np.abs(gradient[MASK]).max() > 1e-3
    fixed = soft_permutation(q, k, MASK, block_size=C)

    @jax.jit
    @jax.grad
    def gradient_with_fixed_order(q):
        return (sinkhorn_attention(q, k, v, MASK, fixed, block_size=C) ** 2).sum()

    without = gradient_with_fixed_order(q)
    assert np.abs(without - gradients[0]).max() > 1e-4
