"""Cross-attention to the nearest keys in packed rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.attention.nearest import NearestAttention
from longsum_jax.layers.attention.multi_head import causal_mask
from longsum_jax.layers.attention.options import NearestOptions
from longsum_jax.layers.dense import normal
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.packing import SegmentIds

ATTENTION = NearestAttention(
    8, 2, 4, normal(0.5), normal(0.5), options=NearestOptions(cross_nearest=2)
)


def cross(attention, x, states, **options):
    return attention.attend(x, *attention.project_kv(states), **options)


def jointly(attention, x, states, segment_ids=None):
    mask = causal_mask(x.shape[1])
    if segment_ids is not None:
        mask = mask & SegmentIds(segment_ids.target, segment_ids.target).mask()
    target, source = KeySet(*attention.project_kv(x), mask), attention.project_kv(states)
    options = {"mask": jnp.ones((1, 1, 1, states.shape[1]), bool), "segment_ids": segment_ids}
    return attention.attend_with(x, *source, [target], causal=True, **options)


@pytest.mark.parametrize("method", [cross, jointly])
def test_pairs_of_a_packed_row_are_apart(method):
    rng = np.random.default_rng(0)
    x, states = (rng.normal(size=(1, n, 8)).astype(np.float32) for n in (5, 10))
    variables = ATTENTION.init(jax.random.key(0), x, states, method=method)
    ids = SegmentIds(np.repeat([[1, 2]], [6, 4], 1), np.repeat([[1, 2]], [3, 2], 1))
    out = ATTENTION.apply(variables, x, states, method=method, segment_ids=ids)
    pairs = (x[:, :3], states[:, :6]), (x[:, 3:], states[:, 6:])
    apart = [ATTENTION.apply(variables, *pair, method=method) for pair in pairs]
    np.testing.assert_allclose(out, np.concatenate(apart, 1), atol=1e-6)
