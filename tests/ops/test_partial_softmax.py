import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.key_sets import KeySet, attend_key_sets
from longsum_jax.ops.partial_softmax import NEVER, attend_partially, merge_partials

pytestmark = pytest.mark.usefixtures("fast_compilation")

B, N, C, H, K = 2, 3, 2, 2, 4


def key_sets():
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    own = KeySet(draw(B, N, 5, H, K), draw(B, N, 5, H, K), jnp.asarray(rng.random((B, N, 1, C, 5)) < 0.6))
    shared = KeySet(draw(B, 7, H, K), draw(B, 7, H, K), None, draw(1, N, H, C, 7))
    return draw(B, N, C, H, K), own, shared


def test_merged_parts_are_one_softmax_with_its_gradients():
    q, own, shared = key_sets()

    def merged(q):
        return merge_partials([attend_partially(q, x, scale=0.5) for x in (own, shared)])

    together = lambda q: attend_key_sets(q, [own, shared], scale=0.5)  # noqa: E731
    np.testing.assert_allclose(merged(q), together(q), atol=2e-6)
    wave = np.cos(np.arange(q.size)).reshape(q.shape)
    gradients = [jax.jit(jax.grad(lambda q, f=f: (f(q) * wave).sum()))(q) for f in (merged, together)]
    np.testing.assert_allclose(*gradients, atol=5e-6)


def test_parts_that_see_nothing_do_not_count():
    q, own, shared = key_sets()
    nothing = attend_partially(q, own._replace(mask=jnp.zeros((1,), bool)))
    assert (nothing.log_total == NEVER).all()
    np.testing.assert_array_equal(merge_partials([nothing, nothing]), jnp.zeros(q.shape))
    part = attend_partially(q, shared)
    np.testing.assert_allclose(merge_partials([nothing, part]), part.out, atol=1e-6)
