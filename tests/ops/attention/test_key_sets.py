import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.attention.key_sets import WeightDropout


def test_dropout_of_weights():
    weights = jnp.ones((1000,))
    dropped = WeightDropout(jax.random.key(0), 0.5)(weights)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert WeightDropout(jax.random.key(0), 0.0)(weights) is weights
    assert np.any(WeightDropout(jax.random.key(0), 0.5).fold(1)(weights) != dropped)
