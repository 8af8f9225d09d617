import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.attention.hepos import (
    mix_strided,
    project_strided,
    strided_key_mask,
    strided_length,
)

B, T, D, K = 2, 3, 5, 4
# Heads, stride, length: equal shares, heads left over, no stride, fewer heads than columns, less
# text than columns.
SIZES = [(4, 2, 8), (6, 4, 13), (3, 1, 5), (5, 3, 12), (2, 3, 7), (4, 4, 1)]


def hepos_mask(heads, length, stride):
    """Equation (1) as a mask for dense attention, bool [heads, length]."""
    return (np.arange(length) - np.arange(heads)[:, None]) % stride == 0


def arrays(heads, length):
    rng = np.random.default_rng(heads * 100 + length)
    shapes = {"q": (B, T, heads, K), "x": (B, length, D), "k": (D, heads, K), "v": (D, heads, K)}
    values = {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()
    }
    mask = jnp.arange(length) < jnp.array([length, max(1, length - 4)])[:, None]
    return values, mask


def strided(values, mask, stride):
    heads = values["k"].shape[1]
    k, v = (project_strided(values["x"], values[name], stride) for name in "kv")
    key_mask = strided_key_mask(mask, heads, stride)[:, :, None]
    return dot_product_attention(values["q"], k, v, mask=key_mask, scale=0.5)


def dense(values, mask, stride):
    """Equation (1) as a mask over all keys."""
    k, v = (jnp.einsum("bld,dhk->blhk", values["x"], values[name]) for name in "kv")
    allowed = hepos_mask(k.shape[2], k.shape[1], stride)
    key_mask = mask[:, None, None, :] & allowed[None, :, None, :]
    return dot_product_attention(values["q"], k, v, mask=key_mask, scale=0.5)


def dense_in_float64(values, mask, stride):
    """``dense`` written out, in the type of ``values``; rows without a key are zeros."""
    k, v = (jnp.einsum("bld,dhk->blhk", values["x"], values[name]) for name in "kv")
    allowed = mask[:, None, None, :] & hepos_mask(k.shape[2], k.shape[1], stride)[None, :, None]
    scores = 0.5 * jnp.einsum("bthk,blhk->bhtl", values["q"], k)
    weights = jnp.where(allowed, jnp.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = weights.sum(-1, keepdims=True)
    weights = weights / jnp.where(total > 0, total, 1)
    assert weights.dtype == jnp.float64
    return jnp.einsum("bhtl,blhk->bthk", weights, v)


def test_the_mask_is_equation_1():
    mask = hepos_mask(6, 11, 4)
    for h in range(6):
        for i in range(11):
            assert mask[h, i] == ((i - h) % 4 == 0)


def assert_close(found, wanted, atol=1e-6):
    largest = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol * largest)


def relative_error(found, exact):
    """The largest difference, as a share of the largest value."""
    return float(np.abs(found - exact).max() / max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize(("heads", "stride", "length"), SIZES)
def test_values_and_gradients_equal_the_dense_mask(heads, stride, length):
    values, mask = arrays(heads, length)

    def run(attend, values):
        def loss(values):
            out = attend(values, mask, stride)
            factors = jnp.cos(jnp.arange(out.size)).reshape(out.shape)
            return (out * factors).sum() + (out**2).sum(), out

        return jax.jit(jax.grad(loss, has_aux=True))(values)

    result, twin = run(strided, values), run(dense, values)
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(np.asarray(x), jnp.float64) for name, x in values.items()}
        exact = jax.tree.map(np.asarray, run(dense_in_float64, wide))
    for name in values:
        # Float32 takes up to 3e-6 from both, on some machines. Over many draws ours loses less than
        # the twin; in one, up to 2.6 times as much.
        bound = max(1e-6, 3 * relative_error(twin[0][name], exact[0][name]))
        assert relative_error(result[0][name], exact[0][name]) <= min(bound, 5e-6)
    assert_close(result[1], exact[1])
    assert_close(result[1], twin[1])


def test_every_head_projects_what_it_reads_alone():
    values, _ = arrays(6, 10)
    keys = project_strided(values["x"], values["k"], 4)
    assert keys.shape == (B, 3, 6, K) == (B, strided_length(10, 4), 6, K)
    for h in range(6):
        for n in range(3):
            position = 4 * n + h % 4
            expected = (
                values["x"][:, position] @ values["k"][:, h] if position < 10 else np.zeros((B, K))
            )
            np.testing.assert_allclose(keys[:, n, h], expected, atol=1e-5)
    noise = values["x"].at[:, 5::4].set(jnp.nan)  # what heads 1 and 5 read
    assert np.isfinite(project_strided(noise, values["k"], 4)[:, :, [0, 2, 3, 4]]).all()


def test_flops_and_bytes_shrink_with_the_stride():
    x, kernel = (
        jax.ShapeDtypeStruct((1, 64, 32), np.float32),
        jax.ShapeDtypeStruct((32, 8, 16), np.float32),
    )
    project = jax.jit(project_strided, static_argnums=2)
    flops = {s: project.lower(x, kernel, s).compile().cost_analysis()["flops"] for s in (1, 4)}
    assert flops[1] == pytest.approx(2 * 64 * 32 * 8 * 16, rel=0.01)
    assert flops[4] == pytest.approx(flops[1] / 4, rel=0.01)


def test_heads_that_read_padding_alone_give_zeros_with_finite_gradients():
    values, _ = arrays(4, 8)
    mask = (
        jnp.zeros((B, 8), bool).at[0, :6].set(True).at[1, 0].set(True)
    )  # row 1: one token, read by head 0
    run = jax.jit(strided, static_argnums=2)
    out = run(values, mask, 4)
    assert not np.asarray(out[1, :, 1:]).any()
    assert np.asarray(out[1, :, 0]).any()
    gradient = jax.grad(lambda values: (run(values, mask, 4) ** 2).sum())(values)
    assert all(np.isfinite(g).all() for g in gradient.values())


@pytest.mark.parametrize(("heads", "stride", "length"), SIZES[:2])
def test_mixing_states_equals_mixing_values(heads, stride, length):
    """Queries moved to the states, and the value map behind the weights."""
    values, mask = arrays(heads, length)

    @jax.jit
    def run(values, mask):
        q = jnp.einsum("bthk,dhk->bthd", values["q"], values["k"])
        key_mask = strided_key_mask(mask, heads, stride)[:, :, None]
        mixed = mix_strided(q, values["x"], key_mask, stride, scale=0.5)
        assert mixed.shape == (B, T, heads, D)
        return jnp.einsum("bthd,dhk->bthk", mixed, values["v"]), dense(values, mask, stride)

    assert_close(*run(values, mask))


def published(values, mask, stride):
    """What the published code computes: whole blocks are padded by s - L mod s rows, and those are
    not masked."""
    extra = stride - values["x"].shape[1] % stride
    longer = values | {"x": jnp.pad(values["x"], ((0, 0), (0, extra), (0, 0)))}
    return strided(longer, jnp.pad(mask, ((0, 0), (0, extra)), constant_values=True), stride)


@pytest.mark.slow
@pytest.mark.parametrize("length", [13, 16])
def test_the_published_zero_rows_are_seen_by_nobody_here(length):
    """The published code lets heads see extra rows of zeros; they take weight from the text, so
    results differ."""
    values, _ = arrays(4, length)
    mask = jnp.ones((B, length), bool)
    theirs = published(values, mask, 4)
    k, v = (jnp.einsum("bld,dhk->blhk", values["x"], values[name]) for name in "kv")
    rows = 4 - length % 4
    k, v = (jnp.pad(y, ((0, 0), (0, rows), (0, 0), (0, 0))) for y in (k, v))
    key_mask = hepos_mask(4, length + rows, 4)[None, :, None]
    assert_close(theirs, dot_product_attention(values["q"], k, v, mask=key_mask, scale=0.5))
    assert np.abs(theirs - strided(values, mask, 4)).max() > 0.01
