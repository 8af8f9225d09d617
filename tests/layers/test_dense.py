"""Initialisers, dense maps, norms and the feed-forward."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from longsum_jax.layers import dense
from longsum_jax.layers.dense import (
    ACTIVATIONS,
    FeedForward,
    Linear,
    RMSNorm,
    normal,
    torch_uniform,
)
from longsum_jax.ops.storage import Unmerged

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(2, 11, 6)), jnp.float32)


def initialised(module, *args):
    return meta.unbox(module.init(jax.random.key(0), *args))


def test_rms_norm():
    norm = RMSNorm(1e-3)
    variables = {"params": {"scale": jnp.asarray(RNG.normal(size=6), jnp.float32)}}
    x = np.asarray(X, np.float64)
    expected = (
        x
        / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
        * np.asarray(variables["params"]["scale"])
    )
    np.testing.assert_allclose(norm.apply(variables, X), expected, rtol=1e-5)


def test_rms_norm_of_bfloat16_is_computed_in_float32():
    norm = RMSNorm(1e-6, jnp.bfloat16)
    x = (300 * X).astype(jnp.bfloat16)
    out = norm.apply({"params": {"scale": jnp.ones(6)}}, x)
    wide = np.asarray(x, np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True))
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(out, np.float64), expected, rtol=2**-8)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_bfloat16_are_computed_in_float32(name):
    """The tail of a GELU, -0.0036 at -3, would be lost."""
    x = jnp.linspace(-6, 6, 1001, dtype=jnp.bfloat16)
    expected = ACTIVATIONS[name](x.astype(jnp.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(ACTIVATIONS[name](x), expected)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_exact_gelu_has_the_gradient_of_its_formula_and_stores_its_input_alone(dtype):
    x = jnp.linspace(-6, 6, 1001, dtype=dtype)
    weights = jnp.asarray(RNG.normal(size=1001), dtype)
    value, backward = jax.vjp(ACTIVATIONS["gelu"], x)
    wide_value, wide_backward = jax.vjp(
        lambda x: jax.nn.gelu(x, approximate=False), x.astype(jnp.float32)
    )
    np.testing.assert_array_equal(value, wide_value.astype(dtype))
    [result], [expected] = backward(weights), wide_backward(weights.astype(jnp.float32))
    np.testing.assert_array_equal(result, expected.astype(dtype))
    [stored] = jax.tree.leaves(backward)
    np.testing.assert_array_equal(stored, x)


@pytest.mark.parametrize(("inputs", "shape"), [(1, (6, 3)), (1, (6, 2, 4)), (2, (11, 6, 5))])
def test_linear_sums_over_its_inputs(inputs, shape):
    linear = Linear(shape, ("embed",) * len(shape), normal(1.0), torch_uniform(6), inputs)
    variables = initialised(linear, X)
    expected = np.tensordot(X, variables["params"]["kernel"], inputs) + variables["params"]["bias"]
    assert variables["params"]["bias"].shape == shape[inputs:]
    np.testing.assert_allclose(linear.apply(variables, X), expected, rtol=1e-5, atol=1e-5)


def test_a_bias_of_several_axes_is_added_to_the_product_on_gpus(monkeypatch):
    """XLA for GPUs adds a bias of one axis in the kernel of the product."""
    linear = Linear((6, 4, 5), "abc", normal(1.0), normal(1.0))
    variables = initialised(linear, X)

    def run(variables, x):
        y, pull_back = jax.vjp(lambda *arrays: linear.apply(*arrays), variables, x)
        return y, pull_back(jnp.sin(y))

    expected = run(variables, X)
    monkeypatch.setattr(dense, "target_platform", lambda: "gpu")
    monkeypatch.setattr(dense, "is_on_one_cpu", lambda: False)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, run(variables, X), expected)
    lines = str(jax.make_jaxpr(linear.apply)(variables, X)).splitlines()
    [added] = [line for line in lines if " add " in f"{line} "]
    assert "f32[2,11,20]" in added


def test_unmerged_kernels_have_the_same_products_and_their_own_inputs():
    linear = Linear((6, 4, 5), "abc", normal(1.0), normal(1.0))
    params = initialised(linear, X)["params"]
    unmerged = params | {"kernel": Unmerged(params["kernel"])}

    def apply(params):
        return linear.apply({"params": params}, X)

    np.testing.assert_array_equal(apply(unmerged), apply(params))
    np.testing.assert_array_equal(
        linear.bind({"params": unmerged}).updated_kernel, params["kernel"]
    )
    barriers = [
        str(jax.make_jaxpr(apply)(x)).count("optimization_barrier") for x in (unmerged, params)
    ]
    assert barriers == [1, 0]


def test_torch_uniform_fills_its_range():
    values = torch_uniform(100)(jax.random.key(0), (10_000,))
    assert 0.0995 < np.abs(values).max() <= 0.1
    assert abs(np.std(values) - 0.1 / math.sqrt(3)) < 1e-3


def feed_forward_in_numpy(params, x, kind):
    weight = {name: np.asarray(linear["kernel"], np.float64) for name, linear in params.items()}
    gelu = lambda z: 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))  # noqa: E731
    silu = lambda z: z / (1 + np.exp(-z))  # noqa: E731
    if kind == "relu":
        return np.maximum(x @ weight["wi"], 0) @ weight["wo"]
    activation = {"gated-gelu": gelu, "gated-silu": silu}[kind]
    return (activation(x @ weight["wi_0"]) * (x @ weight["wi_1"])) @ weight["wo"]


@pytest.mark.parametrize("kind", ["relu", "gated-gelu", "gated-silu"])
def test_feed_forward(kind):
    module = FeedForward(16, kind)
    variables = initialised(module, X)
    expected = feed_forward_in_numpy(variables["params"], np.asarray(X, np.float64), kind)
    np.testing.assert_allclose(module.apply(variables, X), expected, rtol=1e-4, atol=1e-6)
