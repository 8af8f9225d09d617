"""A check of attentions that never form their weights."""

import jax
import numpy as np
import pytest


@pytest.fixture
def check_formula():
    """check_formula(attend, definition, qkv, mask): values of ``attend`` equal its definition in
    float64, its gradients equal differences of it, and padding has none."""

    def check(attend, definition, qkv, mask):
        cotangent = np.cos(np.arange(qkv[0].size)).reshape(qkv[0].shape)

        def loss(q, k, v):
            out = attend(q, k, v, mask)
            return (out * cotangent).sum(), out

        gradients, out = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(*qkv)
        np.testing.assert_allclose(out, definition(*qkv), atol=1e-6)
        step = 1e-5
        rng = np.random.default_rng(1)
        for i, gradient in enumerate(gradients):
            direction = rng.normal(size=gradient.shape)
            ends = []
            for sign in (1, -1):
                moved = [np.asarray(x, np.float64) for x in qkv]
                moved[i] = moved[i] + sign * step * direction
                ends.append((definition(*moved) * cotangent).sum())
            expected = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=1e-4, atol=1e-5)
            assert not np.asarray(gradient[~mask]).any()

    return check
