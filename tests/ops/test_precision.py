"""Products of bfloat16 arrays with numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.precision import scaled


@pytest.mark.parametrize("factor", [768**-0.5, 80**-0.5, 0.1])
def test_factors_are_not_rounded_to_bfloat16(factor):
    x = jax.random.normal(jax.random.key(0), (1000,), jnp.bfloat16)
    expected = (np.asarray(x, np.float32) * np.float32(factor)).astype(jnp.bfloat16)
    result = scaled(x, factor)
    assert result.dtype == jnp.bfloat16
    np.testing.assert_array_equal(result, expected)
