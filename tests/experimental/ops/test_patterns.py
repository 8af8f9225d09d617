import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.ops.patterns import (
    KeyPattern,
    drawn_blocks,
    pattern_attention,
    soft_span,
)
from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.attention.key_sets import WeightDropout

B, L, H, K = 2, 21, 3, 4
MASK = jnp.arange(L) < jnp.array([L, 13])[:, None]
BLOCK = 4
DRAWS = jnp.asarray(np.random.default_rng(7).random((1, 6, H, 2)), jnp.float32)
SPAN = jnp.array([0.4, 2.0, 4.6])

PATTERNS = {
    "window": KeyPattern(radius=3),
    "wide window": KeyPattern(radius=30),
    "global": KeyPattern(num_global=3, block_size=BLOCK),
    "stride": KeyPattern(stride=4),
    "random": KeyPattern(draws=DRAWS, block_size=BLOCK),
    "window+global": KeyPattern(radius=3, num_global=5),
    "window+stride": KeyPattern(radius=5, stride=2),
    "window+random": KeyPattern(radius=2, draws=DRAWS, block_size=BLOCK),
    "window+global+stride+random": KeyPattern(
        radius=2, num_global=2, stride=5, draws=DRAWS, block_size=BLOCK
    ),
    "span": KeyPattern(radius=5, span=SPAN, ramp=3),
    "span+stride": KeyPattern(radius=4, span=SPAN, ramp=2, stride=3),
    "span+global+random": KeyPattern(
        radius=4, span=SPAN, ramp=2, num_global=3, draws=DRAWS, block_size=BLOCK
    ),
}


def arrays():
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(B, L, H, K)), jnp.float32) for _ in range(3))
    return {
        "q": q,
        "k": k,
        "v": v,
        "bias": jnp.asarray(rng.normal(size=(H, 2 * L - 1)), jnp.float32),
    }


def pattern_mask(length, blocks, pattern):
    """The keys of each query, bool [B or 1, H or 1, L, L], without padding or spans.

    `blocks`: int [B, N, H, R] from `drawn_blocks`, or None.
    """
    i, j = jnp.arange(length)[:, None], jnp.arange(length)
    mask = pattern.in_window(i, j) | pattern.in_stride(i, j)
    mask = mask | (j < pattern.num_global) | (i < pattern.num_global)
    mask = mask[None, None]
    if blocks is not None:
        block_of_query = jnp.arange(length) // pattern.block_size
        of_query = jnp.moveaxis(blocks, 2, 1)[:, :, block_of_query]  # [B, H, L, R]
        mask = mask | (of_query[..., None] == j // pattern.block_size).any(3)
    return mask


def dense(x, pattern):
    """Full attention under the union of the sets as one mask, spans as weights of the
    exponentials."""
    i, j = jnp.arange(L)[:, None], jnp.arange(L)
    blocks = (
        None if pattern.draws is None else drawn_blocks(pattern.draws, MASK, pattern.block_size)
    )
    mask = pattern_mask(L, blocks, pattern) & MASK[:, None, None]
    bias = x["bias"][:, j - i + L - 1]
    if pattern.span is not None:
        # Inside the window a span decides, whatever else would show a key, but for global tokens.
        decides = pattern.in_window(i, j) & (j >= pattern.num_global) & (i >= pattern.num_global)
        soft = jnp.where(decides, soft_span(j - i, pattern.span, pattern.ramp), 1.0)
        mask, bias = mask & (soft > 0), bias + jnp.log(jnp.where(soft > 0, soft, 1.0))
    out = dot_product_attention(x["q"], x["k"], x["v"], mask=mask, bias=bias[None], scale=0.7)
    return jnp.where(MASK[..., None, None], out, 0)


def sparse(x, pattern):
    return pattern_attention(
        x["q"], x["k"], x["v"], MASK, pattern, distance_bias=x["bias"], scale=0.7
    )


@functools.cache
def run_sparse(name):
    return run(sparse, PATTERNS[name])


def run(attend, pattern):
    """Values, and gradients of all arrays (and the spans)."""

    def loss(x, span):
        out = attend(x, pattern._replace(span=span))
        return (out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(
        arrays(), pattern.span
    )
    return out, gradients


@pytest.mark.parametrize("name", PATTERNS)
def test_values_and_gradients_equal_a_dense_mask(name):
    result, expected = run_sparse(name), run(dense, PATTERNS[name])
    for a, b in zip(*map(jax.tree.leaves, (result, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5e-6 * max(1.0, float(np.abs(b).max())))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["window+stride", "window+global+stride+random"])
def test_few_scores_at_a_time_change_nothing(name, monkeypatch):
    expected = run_sparse(name)
    monkeypatch.setattr(blockwise, "max_score_bytes", lambda: 2000)
    for a, b in zip(*map(jax.tree.leaves, (run(sparse, PATTERNS[name]), expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_traced_windows_equal_known_ones():
    x, pattern = arrays(), PATTERNS["span+stride"]
    traced = jax.jit(lambda radius: sparse(x, pattern._replace(radius=radius, max_radius=7)))
    known = jax.jit(lambda x: sparse(x, pattern))
    np.testing.assert_allclose(traced(4), known(x), atol=2e-6)


def test_spans_fade_out():
    soft = np.asarray(soft_span(jnp.arange(-8, 9)[None], jnp.array([3.0, 0.0]), 4))
    assert soft.shape == (2, 1, 17)
    np.testing.assert_allclose(soft[0, 0, 8:], [1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    np.testing.assert_allclose(soft[0, 0], soft[0, 0, ::-1])
    np.testing.assert_allclose(soft[1, 0, 8:13], [1, 1, 0.75, 0.5, 0.25])


def test_drawn_blocks_are_real_ones_whatever_the_padding():
    blocks = np.asarray(drawn_blocks(DRAWS, MASK, BLOCK))
    assert blocks[0].max() <= 5
    assert blocks[1].max() <= 3
    shorter = drawn_blocks(DRAWS[:, :4], MASK[1:, :13], BLOCK)
    np.testing.assert_array_equal(shorter[0], blocks[1, :4])
    even = jnp.linspace(0, 0.999, 40)[None, :, None, None]
    assert len(np.unique(drawn_blocks(even, MASK[:1], BLOCK))) == 6


def test_only_scores_of_attended_keys_are_computed():
    """The largest product has window or stride keys, not all of them."""
    x = jax.ShapeDtypeStruct((1, 4096, 1, 8), np.float32)
    for pattern, keys in (
        (KeyPattern(radius=64), 3 * 64),
        (KeyPattern(radius=64, stride=32), 3 * 64 + 128),
    ):
        attend = lambda q, k, v, p=pattern: pattern_attention(q, k, v, jnp.ones((1, 4096), bool), p)  # noqa: E731
        cost = jax.jit(attend).lower(x, x, x).cost_analysis()
        assert cost["flops"] < 2 * 2 * 4096 * keys * 8 * 3  # a third for the softmax


def test_dropout_keeps_the_mean():
    """Values of one: what is left of them is the sum of the weights."""
    x = arrays()
    pattern = KeyPattern(radius=8, stride=2)
    q, v = x["q"] * 0, jnp.ones_like(x["v"])

    @jax.jit
    def attend(rng):
        return pattern_attention(q, x["k"], v, MASK, pattern, dropout=WeightDropout(rng, 0.3))

    outs = [attend(rng) for rng in jax.random.split(jax.random.key(0), 30)]
    means = np.asarray(jnp.stack(outs))[:, np.asarray(MASK)].mean()
    assert abs(means - 1) < 0.03
    assert np.std(outs) > 0.05
