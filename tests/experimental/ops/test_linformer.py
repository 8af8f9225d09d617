import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experimental.ops.linformer import compress_length

X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 3)), jnp.float32)


def test_rows_are_sums_over_positions():
    projection = jnp.asarray(np.random.default_rng(1).normal(size=(4, 9)), jnp.float32)
    out = compress_length(X, projection)
    assert out.shape == (2, 4, 3)
    for row in range(4):
        expected = sum(projection[row, i] * X[:, i] for i in range(6))
        np.testing.assert_allclose(out[:, row], expected, atol=1e-5)


def test_an_identity_changes_nothing():
    np.testing.assert_allclose(compress_length(X, jnp.eye(6, 10)), X, atol=1e-6)


def test_longer_inputs_than_the_projection_are_refused():
    with pytest.raises(
        InputError, match="an input of 6 tokens is longer than the 5 tokens that the Linformer proj"
    ):
        compress_length(X, jnp.ones((4, 5)))
