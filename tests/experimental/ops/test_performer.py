from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.ops.performer import (
    FEATURE_FLOOR,
    draw_projection,
    performer_attention,
)
from longsum_jax.ops.attention.dense import dot_product_attention

B, L, H, K, FEATURES = 2, 9, 2, 4, 6
LENGTHS = (9, 5)
MASK = jnp.arange(L) < jnp.array(LENGTHS)[:, None]
PROJECTION = draw_projection(jax.random.key(0), FEATURES, K)
SCALE = 0.5


def arrays(scale=1.0):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(B, L, H, K)) * scale, jnp.float32) for _ in range(3)]


def definition(q, k, v, largest):
    """Every pair of tokens and every feature, in float64.

    ``largest`` are the exponents that features are relative to: they have no gradients.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    rows = np.asarray(PROJECTION, np.float64)
    out = np.zeros_like(v)
    for b, length in enumerate(LENGTHS):
        for h in range(H):

            def features(x, top):
                x = x * SCALE**0.5
                norms = (x**2).sum(-1, keepdims=True)
                return np.exp(x @ rows.T - norms / 2 - top) + FEATURE_FLOOR

            phi_q = features(q[b, :length, h], largest[0][b, :length, h, None])
            phi_k = features(k[b, :length, h], largest[1][b, h])
            weights = phi_q @ phi_k.T
            out[b, :length, h] = weights / weights.sum(-1, keepdims=True) @ v[b, :length, h]
    return out


def largest_exponents(q, k):
    """Of a query over its features, of a text's keys over features and real tokens."""
    q, k = (np.asarray(x, np.float64) * SCALE**0.5 for x in (q, k))
    rows = np.asarray(PROJECTION, np.float64)
    q_exponents = q @ rows.T - (q**2).sum(-1, keepdims=True) / 2
    k_exponents = k @ rows.T - (k**2).sum(-1, keepdims=True) / 2
    k_exponents[~np.asarray(MASK)] = -np.inf
    return q_exponents.max(-1), k_exponents.max((1, 3))


def test_it_is_its_quadratic_formula_and_so_are_its_gradients(check_formula):
    qkv = arrays()
    attend = partial(performer_attention, projection=PROJECTION, scale=SCALE)
    check_formula(attend, partial(definition, largest=largest_exponents(*qkv[:2])), qkv, MASK)


def test_rows_are_orthogonal_in_groups_and_as_long_as_normal_vectors():
    rows = np.asarray(draw_projection(jax.random.key(3), 4 * 500 - 1, 4))
    assert rows.shape == (1999, 4)
    groups = rows[:1996].reshape(-1, 4, 4)
    products = groups @ groups.swapaxes(1, 2)
    assert np.abs(products[:, ~np.eye(4, dtype=bool)]).max() < 1e-4
    lengths = np.linalg.norm(rows, axis=-1)
    assert abs((lengths**2).mean() - 4) < 0.2  # chi-squared with 4 degrees
    assert abs((lengths**2).var() - 8) < 1
    assert np.abs(rows.mean(0)).max() < 0.1  # directions are as often one way as the other


@pytest.mark.slow
def test_more_features_come_closer_to_softmax_attention():
    q, k, v = arrays(0.5)
    expected = dot_product_attention(q, k, v, mask=MASK[:, None, None], scale=SCALE)
    rows = draw_projection(jax.random.key(1), 2048, K)
    run = jax.jit(performer_attention, static_argnames="scale")
    errors = []
    for num_features in (32, 2048):
        result = run(q, k, v, MASK, rows[:num_features], scale=SCALE)
        errors.append(float(jnp.abs(result - expected)[MASK].mean()))
    assert errors[1] < errors[0] / 3
    assert errors[1] < 0.02
