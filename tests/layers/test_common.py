import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from longsum_jax.layers.chunking import _chunk_length, map_over_length
from longsum_jax.layers.dense import FeedForward, Linear, RMSNorm, normal, torch_uniform

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


@pytest.mark.parametrize(("inputs", "shape"), [(1, (6, 3)), (1, (6, 2, 4)), (2, (11, 6, 5))])
def test_linear_sums_over_its_inputs(inputs, shape):
    linear = Linear(shape, ("embed",) * len(shape), normal(1.0), torch_uniform(6), inputs)
    variables = initialised(linear, X)
    expected = np.tensordot(X, variables["params"]["kernel"], inputs) + variables["params"]["bias"]
    assert variables["params"]["bias"].shape == shape[inputs:]
    np.testing.assert_allclose(linear.apply(variables, X), expected, rtol=1e-5, atol=1e-5)


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


class Chunked(nn.Module):
    """A feed-forward over pieces of the length, of the input scaled by a second array."""

    chunk: int
    dropout_rate: float = 0.0

    def setup(self):
        self.inner = FeedForward(16, dropout_rate=self.dropout_rate)

    def __call__(self, x, scale, deterministic=True):
        fn = lambda module, x, scale: module.inner(x * scale, deterministic)  # noqa: E731
        return map_over_length(self, fn, self.chunk, x, scale)


@pytest.mark.parametrize("chunk", [1, 4, 5, 10, 11, 12])
def test_map_over_length_equals_all_at_once(chunk):
    scale = jnp.linspace(0.5, 2, 11)[None, :, None]
    variables = initialised(Chunked(0), X, scale)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(
        jnp.shape, initialised(Chunked(chunk), X, scale)
    )

    def loss(variables, x, module):
        out = module.apply(variables, x, jnp.broadcast_to(scale, (2, 11, 1)))
        return (out**2).sum(), out

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True), static_argnums=2)
    whole, pieces = run(variables, X, Chunked(0)), run(variables, X, Chunked(chunk))
    for x, y in zip(jax.tree.leaves(pieces), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_dropout_differs_from_piece_to_piece():
    ones = jnp.ones((1, 12, 6))
    module = Chunked(4, dropout_rate=0.5)
    variables = initialised(module, ones, ones[..., :1])

    def run(seed):
        return module.apply(
            variables, ones, ones[..., :1], False, rngs={"dropout": jax.random.key(seed)}
        )

    first, second, third = np.split(np.asarray(run(0)), 3, axis=1)
    for a, b in ((first, second), (second, third), (first, third)):
        assert not np.allclose(a, b)
    np.testing.assert_array_equal(run(0), run(0))
    assert not np.allclose(run(0), run(1))


def test_pieces_are_about_equal_and_small_on_cpus(monkeypatch):
    sizes = [
        (0, 1, 4096),
        (16384, 8, 4096),
        (0, 1, 4160),
        (100, 1, 250),
        (300, 1, 250),
        (0, 1000, 3),
    ]
    assert [_chunk_length(*size) for size in sizes] == [512, 64, 463, 84, 250, 1]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [_chunk_length(*size) for size in sizes] == [4096, 4096, 4160, 84, 250, 3]
