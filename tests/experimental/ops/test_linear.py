from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.ops.linear import (
    WEIGHT_FLOOR,
    efficient_attention,
    linear_attention,
    mix_by_features,
)

B, L, H, K = 2, 11, 2, 3
LENGTHS = (11, 6)
MASK = jnp.arange(L) < jnp.array(LENGTHS)[:, None]
ATTENTIONS = {"linear": linear_attention, "efficient": efficient_attention}


def arrays(scale=1.0):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(B, L, H, K)) * scale, jnp.float32) for _ in range(3)]


def linear_weights(q, k):
    """Of all pairs of tokens of one text and head."""
    phi_q, phi_k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    products = phi_q @ phi_k.T
    return products / (products.sum(-1, keepdims=True) + WEIGHT_FLOOR)


def efficient_weights(q, k):
    by_feature = np.exp(q) / np.exp(q).sum(-1, keepdims=True)
    by_position = np.exp(k) / np.exp(k).sum(0)
    return by_feature @ by_position.T


WEIGHTS = {"linear": linear_weights, "efficient": efficient_weights}


def definition(kind, q, k, v):
    """One text and head at a time, every pair of tokens, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros_like(v)
    for b, length in enumerate(LENGTHS):
        for h in range(H):
            weights = WEIGHTS[kind](q[b, :length, h], k[b, :length, h])
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
            out[b, :length, h] = weights @ v[b, :length, h]
    return out


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_it_is_its_quadratic_formula_and_so_are_its_gradients(check_formula, kind):
    check_formula(ATTENTIONS[kind], partial(definition, kind), arrays(), MASK)


def test_small_features_keep_their_digits():
    """elu(x) + 1 as a sum with 1 would lose all of those of keys."""
    q, k, v = arrays()
    out = jax.jit(linear_attention)(q + 1e7, k - 17, v, MASK)
    np.testing.assert_allclose(out, definition("linear", q + 1e7, k - 17, v), atol=1e-5)


def test_without_products_there_are_zeros():
    _, _, v = arrays()
    assert not np.asarray(mix_by_features(jnp.zeros_like(v), jnp.ones_like(v), v, MASK)).any()
