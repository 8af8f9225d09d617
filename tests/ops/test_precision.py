"""Products of bfloat16 arrays with numbers, and into float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.precision import (
    _products_of_bfloat16_rows,
    bfloat16_parts,
    products_of_rows,
    scaled,
)


@pytest.mark.parametrize("factor", [768**-0.5, 80**-0.5, 0.1])
def test_factors_are_not_rounded_to_bfloat16(factor):
    x = jax.random.normal(jax.random.key(0), (1000,), jnp.bfloat16)
    expected = (np.asarray(x, np.float32) * np.float32(factor)).astype(jnp.bfloat16)
    result = scaled(x, factor)
    assert result.dtype == jnp.bfloat16
    np.testing.assert_array_equal(result, expected)


def test_two_parts_represent_a_float32_array():
    x = jax.random.normal(jax.random.key(0), (10_000,)) * 10.0 ** np.linspace(-30, 30, 10_000)
    high, low = jax.jit(bfloat16_parts)(x)
    assert high.dtype == low.dtype == jnp.bfloat16
    total = np.asarray(high, np.float64) + np.asarray(low, np.float64)
    np.testing.assert_allclose(total, x, rtol=2**-16)
    assert not np.allclose(np.asarray(high, np.float64), x, rtol=2**-12)


def test_gradients_of_products_into_float32_are_those_in_float64():
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (2, 3, 40), jnp.bfloat16)
    table = jax.random.normal(keys[1], (50, 40), jnp.bfloat16)
    gradient = jax.random.normal(keys[2], (2, 3, 50))
    y, pull_back = jax.vjp(_products_of_bfloat16_rows, x, table)
    exact = [np.asarray(array, np.float64) for array in (x, table, gradient)]
    np.testing.assert_allclose(y, np.einsum("...d,vd->...v", *exact[:2]), rtol=1e-5, atol=1e-5)
    of_x, of_table = jax.jit(pull_back)(gradient)
    assert of_x.dtype == of_table.dtype == jnp.bfloat16
    expected = np.einsum("...v,vd->...d", exact[2], exact[1])
    # Results are rounded to bfloat16, once.
    rounding = {"rtol": 2**-8, "atol": 1e-4}
    np.testing.assert_allclose(np.asarray(of_x, np.float64), expected, **rounding)
    expected = np.einsum("abv,abd->vd", exact[2], exact[0])
    np.testing.assert_allclose(np.asarray(of_table, np.float64), expected, **rounding)
    # Rounding the gradient first would show in the mean error.
    rounded = np.asarray(gradient.astype(jnp.bfloat16), np.float64)
    once = np.einsum("abv,abd->vd", rounded, exact[0])
    error = np.abs(np.asarray(of_table, np.float64) - expected).mean()
    bound = np.abs(np.asarray(jnp.bfloat16(once), np.float64) - expected).mean()
    assert error < 0.75 * bound


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_only_accelerators_split_gradients_of_bfloat16_products(platform, dtype):
    x, table = jnp.ones((3, 4), dtype), jnp.ones((5, 4), dtype)

    def loss(x, table):
        return products_of_rows(x, table).sum()

    with jax.default_device(platform):
        program = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(x, table))
    is_split = platform != "cpu" and dtype == jnp.bfloat16
    assert ("bitcast_convert_type" in program) == is_split
