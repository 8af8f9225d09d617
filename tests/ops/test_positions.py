"""Rotary positions compared with complex numbers in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.positions import Rotary
from longsum_jax.ops.positions import rotated as rotated_by_operations

rotated = jax.jit(rotated_by_operations, static_argnums=2)


@pytest.mark.parametrize("rotary", [Rotary(10000.0), Rotary(1e6, 8.0)])
@pytest.mark.parametrize("first", [0, 131_000])
def test_rotated_pairs(rotary, first):
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype(np.float32)
    positions = first + np.array([[0, 1, 2, 3, 4], [7, 7, 1, 0, 9]])
    frequencies = rotary.base ** (-np.arange(4) / 4) / rotary.factor
    turns = np.exp(1j * positions[..., None, None] * frequencies)
    turned = (x[..., :4] + 1j * x[..., 4:]) * turns
    expected = np.concatenate([turned.real, turned.imag], -1)
    result = rotated(jnp.asarray(x), jnp.asarray(positions), rotary)
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-6)


def test_products_depend_on_distances():
    q, k = np.random.default_rng(1).normal(size=(2, 1, 1, 1, 16)).astype(np.float32)

    def product(i, j):
        at = [rotated(jnp.asarray(x), jnp.array([[p]]), Rotary(100.0)) for x, p in ((q, i), (k, j))]
        return float((at[0] * at[1]).sum())

    assert product(7, 4) == pytest.approx(product(1003, 1000), abs=1e-5)
    assert product(7, 4) != pytest.approx(product(4, 7), abs=1e-2)
