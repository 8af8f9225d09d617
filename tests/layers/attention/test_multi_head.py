from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.layers.attention import multi_head
from longsum_jax.layers.attention.multi_head import MultiHeadAttention, RelativePositionBias
from longsum_jax.layers.dense import normal

D, H, K = 6, 2, 4
RNG = np.random.default_rng(0)
QUERIES, MEMORY = (RNG.normal(size=(2, n, D)).astype(np.float32) for n in (3, 5))


def module(**options):
    return MultiHeadAttention(D, H, K, normal(0.5), normal(0.5), **options)


def cross(attention, x, memory, **options):
    return attention.attend(x, *attention.project_kv(memory), **options)


@partial(jax.jit, static_argnums=0, static_argnames=("method", "deterministic"))
def apply(attention, *args, **options):
    return attention.apply(*args, **options)


@pytest.fixture
def draw(draw_params):
    """A function that returns random variables of a module."""
    return lambda attention: draw_params(partial(attention.init, method=cross), QUERIES, MEMORY)


def test_attention_equals_one_head_at_a_time(draw):
    attention = module(scale=K**-0.5)
    variables = draw(attention)
    weight = {
        name: np.asarray(value["kernel"], np.float64) for name, value in variables["params"].items()
    }
    mask, bias = RNG.random((2, 1, 3, 5)) < 0.7, RNG.normal(size=(1, H, 3, 5))
    mask[..., 0] = True
    expected = np.zeros((2, 3, D))
    for h in range(H):
        q, k, v = (
            x @ weight[name][:, h] for name, x in (("q", QUERIES), ("k", MEMORY), ("v", MEMORY))
        )
        scores = np.exp(q @ k.swapaxes(1, 2) * K**-0.5 + bias[0, h]) * mask[:, 0]
        expected += scores / scores.sum(-1, keepdims=True) @ v @ weight["o"][h]
    bias = bias.astype(np.float32)
    out = apply(attention, variables, QUERIES, MEMORY, mask=mask, bias=bias, method=cross)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


def test_rows_that_see_nothing_are_zero_with_finite_gradients(draw):
    attention = module()
    variables = draw(attention)
    mask = np.array([[True], [False]])[:, :, None, None].repeat(3, 2).repeat(5, 3)

    def loss(variables, x):
        out = attention.apply(variables, x, MEMORY, mask=mask, method=cross)
        return (out**2).sum(), out

    value_and_grad = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    (_, out), gradients = value_and_grad(variables, QUERIES)
    assert not np.asarray(out[1]).any()
    assert np.asarray(out[0]).any()
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))


def test_attention_without_projected_keys_and_values_is_the_same(draw):
    attention = module(scale=0.5)
    variables = draw(attention)
    mask = (RNG.random((2, 1, 1, 5)) < 0.7) & np.array([True, False])[:, None, None, None]
    expected = apply(attention, variables, QUERIES, MEMORY, mask=mask, method=cross)
    out = apply(attention, variables, QUERIES, MEMORY, mask=mask, method="attend_absorbed")
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


def test_dropout_needs_deterministic_off(draw):
    attention = module(dropout_rate=0.5)
    variables = draw(attention)
    run = lambda seed, **options: apply(  # noqa: E731
        attention,
        variables,
        QUERIES,
        MEMORY,
        rngs={"dropout": jax.random.key(seed)},
        method=cross,
        **options,
    )
    np.testing.assert_array_equal(run(0), run(1))
    assert not np.allclose(run(0, deterministic=False), run(1, deterministic=False))


def test_relative_position_bias_looks_up_the_golden_buckets(golden):
    buckets = golden("d_misc")["rel_bucket_distance_0_299"]
    bias = RelativePositionBias(H, 32, 128, bidirectional=False)
    table = jnp.asarray(RNG.normal(size=(32, H)), jnp.float32)
    out = bias.apply({"params": {"embedding": table}}, jnp.array([299]), jnp.arange(300))
    assert out.shape == (1, H, 1, 300)
    np.testing.assert_array_equal(out[0, :, 0].T, np.asarray(table)[buckets[::-1]])


@pytest.mark.parametrize("num_layers", [None, 3])
def test_relative_position_biases_of_tpus_and_their_gradients_equal_a_gather(
    num_layers, monkeypatch
):
    module = RelativePositionBias(H, 32, 128, bidirectional=True, num_layers=num_layers)
    shape = (32, H) if num_layers is None else (num_layers, 32, H)
    # integers, whose sums are exact in any order
    table, gradient = (
        jnp.float32(RNG.integers(-99, 99, size)) for size in (shape, (*shape[:-2], 1, H, 40, 300))
    )

    def bias_and_gradient():
        def apply(table):
            variables = {"params": {"embedding": table}}
            return module.apply(variables, jnp.arange(40), jnp.arange(300))

        bias, pull_back = jax.vjp(apply, table)
        return bias, *pull_back(gradient)

    expected = bias_and_gradient()
    monkeypatch.setattr(multi_head, "target_platform", lambda: "tpu")
    assert "gather" not in str(jax.make_jaxpr(bias_and_gradient)())
    for result, of_gather in zip(bias_and_gradient(), expected, strict=True):
        np.testing.assert_array_equal(result, of_gather)
