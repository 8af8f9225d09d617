import math

import jax
import numpy as np
import pytest

from longsum_jax.ops.attention.relative_position import (
    bucket_steps,
    distance_entries,
    first_entries,
    relative_position_bucket,
)


def test_golden_buckets_of_the_decoder(golden):
    expected = golden("d_misc")["rel_bucket_distance_0_299"]
    buckets = relative_position_bucket(
        -np.arange(300), bidirectional=False, num_buckets=32, max_distance=128
    )
    np.testing.assert_array_equal(buckets, expected)
    future = relative_position_bucket(
        np.arange(1, 5), bidirectional=False, num_buckets=32, max_distance=128
    )
    assert not np.asarray(future).any()


def test_buckets_of_both_directions():
    def slow(distance, half=16, exact=8):
        """Scalars in float64, section 2.1 of the T5 paper: half of the buckets for each sign."""
        size, offset = abs(distance), half * (distance > 0)
        if size < exact:
            return offset + size
        far = exact + int(math.log(size / exact) / math.log(128 / exact) * (half - exact) + 1e-6)
        return offset + min(far, half - 1)

    distance = np.arange(-300, 301)
    buckets = relative_position_bucket(
        distance, bidirectional=True, num_buckets=32, max_distance=128
    )
    np.testing.assert_array_equal(buckets, [slow(int(d)) for d in distance])


def test_a_range_begins_at_its_whole_number():
    """8 * 100**(k / 8): the ranges of 80 tokens and more begin at 80, for which a logarithm in
    float32 is a little less than 4."""

    @jax.jit
    def buckets(distance):
        return relative_position_bucket(
            distance, bidirectional=True, num_buckets=32, max_distance=800
        )

    np.testing.assert_array_equal(buckets(np.array([-79, -80, 79, 80])), [11, 12, 27, 28])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 800), (64, 20), (6, 3)])
def test_steps_are_the_buckets_of_all_distances(bidirectional, num_buckets, max_distance):
    sizes = {"num_buckets": num_buckets, "max_distance": max_distance}
    starts, buckets = bucket_steps(bidirectional=bidirectional, **sizes)
    distances = np.arange(-(2**20), 2**20 + 1)
    steps = np.searchsorted(starts, distances, side="right")
    expected = relative_position_bucket(distances, bidirectional=bidirectional, **sizes)
    np.testing.assert_array_equal(np.asarray(buckets)[steps], expected)
    assert (np.diff(starts) > 0).all()
    assert (np.diff(buckets) != 0).all()


def test_entries_of_a_table_by_distance():
    distances = np.arange(-3, 4)  # of four tokens
    table = distances[None].astype(np.float32)
    keys, queries = np.arange(4), np.arange(4)
    entries = distance_entries(table, keys - queries[:, None])
    np.testing.assert_array_equal(table[0, entries], keys - queries[:, None])
    np.testing.assert_array_equal(entries[:, 0], first_entries(table, queries))


def test_entries_of_padding_are_in_the_table():
    table = np.zeros((1, 7), np.float32)
    assert distance_entries(table, np.array([-5, 5])).tolist() == [0, 6]
    assert first_entries(table, np.array([5])).tolist() == [0]
