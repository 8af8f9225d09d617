import numpy as np

from longsum_jax.inference.padding import bucket_length, global_indices, padded_length


def test_bucket_lengths():
    buckets = [bucket_length(length) for length in range(1, 5000)]
    assert buckets == sorted(buckets)
    for length, bucket in enumerate(buckets, 1):
        assert bucket % 64 == 0
        assert length <= bucket < length + max(64, length / 8)
        assert bucket_length(bucket) == bucket
    assert len(set(buckets)) == 8 + 3 * 8 + 2  # 64 to 512, three octaves to 4096, 4608 and 5120


def test_padded_lengths():
    assert [padded_length(n, None, 0) for n in (3, 65)] == [64, 128]
    assert padded_length(65, 100, 0) == 100
    assert padded_length(65, 100, 16) == 80
    assert padded_length(65, None, 0, 16) == 80
    assert padded_length(98, 100, 16) == 100


def test_positions_of_global_tokens():
    mask = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 1]])
    np.testing.assert_array_equal(global_indices(mask), [[0, 3, -1, -1], [-1] * 4, [0, 1, 3, -1]])
    assert global_indices(mask[1:2]).shape == (1, 1)
