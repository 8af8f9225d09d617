import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.attention import key_sets
from longsum_jax.ops.attention.key_sets import KeySet, WeightDropout, attend_jointly


def test_dropout_of_weights():
    weights = jnp.ones((1000,))
    dropped = WeightDropout(jax.random.key(0), 0.5)(weights)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert WeightDropout(jax.random.key(0), 0.0)(weights) is weights
    assert np.any(WeightDropout(jax.random.key(0), 0.5).fold(1)(weights) != dropped)


def test_gpus_compute_the_products_of_each_set_by_themselves(monkeypatch):
    """XLA would merge products of the same queries, and copy the keys of both sets for it."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, n, 3, 4)).astype(np.float32) for n in (5, 7, 7, 2, 2)]

    def loss(q, *keys):
        sets = [KeySet(*keys[:2]), KeySet(*keys[2:])]
        return (attend_jointly(q, sets) ** 2).sum()

    def traced():
        # JAX would remember the trace of the same function.
        return str(jax.make_jaxpr(lambda *x: loss(*x))(*arrays))

    differentiate = jax.value_and_grad(loss, range(5))
    expected = differentiate(*arrays)
    assert "optimization_barrier" not in traced()
    monkeypatch.setattr(key_sets, "target_platform", lambda: "gpu")
    assert "optimization_barrier" in traced()
    jax.tree.map(np.testing.assert_array_equal, differentiate(*arrays), expected)
