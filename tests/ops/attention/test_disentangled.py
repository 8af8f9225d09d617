import jax
import numpy as np

from longsum_jax.ops.attention.disentangled import (
    distance_buckets,
    position_scores,
    table_entries,
)


def test_buckets_of_the_published_code():
    """Values of make_log_bucket_position in DeBERTa's code for 256 buckets and 512 positions."""
    distances = np.array([0, 1, 127, 128, 129, 130, 200, 300, 400, 511, 600])
    expected = [0, 1, 127, 128, 129, 130, 169, 207, 233, 255, 270]
    for sign in (1, -1):
        found = distance_buckets(sign * distances, 256, 512)
        np.testing.assert_array_equal(found, sign * np.array(expected))


def test_scores_equal_a_loop():
    keys = jax.random.split(jax.random.key(0), 4)
    length, buckets = 30, 4
    q, k = (jax.random.normal(key, (2, length, 3, 4)) for key in keys[:2])
    position_q, position_k = (jax.random.normal(key, (2 * buckets, 3, 4)) for key in keys[2:])
    entries = table_entries(length, buckets, 4)
    assert entries[0, 0] == buckets
    assert (entries.min(), entries.max()) == (0, 2 * buckets - 1)
    found = position_scores(q, k, position_q, position_k, entries)
    for i in range(length):
        for j in range(length):
            row = entries[i, j]
            wanted = (q[:, i] * position_k[row] + k[:, j] * position_q[row]).sum(-1)
            np.testing.assert_allclose(found[:, :, i, j], wanted, atol=1e-5)
