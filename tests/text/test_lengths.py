import math
import random

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.lengths import length_statistics


def percentile_by_hand(lengths, percent):
    """Linear interpolation between the two sorted lengths around an index."""
    ordered = sorted(lengths)
    index = percent / 100 * (len(ordered) - 1)
    low, high = math.floor(index), math.ceil(index)
    return ordered[low] + (index - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("count", [1, 2, 10, 11, 200])
def test_statistics_are_those_by_hand(count):
    generator = random.Random(count)
    lengths = [generator.randrange(400_000) for _ in range(count)]
    result = length_statistics(lengths)
    expected = (
        sum(lengths) / count,
        percentile_by_hand(lengths, 50),
        percentile_by_hand(lengths, 90),
        max(lengths),
    )
    assert result == pytest.approx(expected, rel=1e-12)
    assert result.percentile_90 == np.percentile(lengths, 90, method="linear")
    assert [type(value) for value in result] == [float, float, float, int]


def test_a_percentile_between_two_lengths():
    assert length_statistics([10, 20, 30]).percentile_90 == pytest.approx(28)
    assert length_statistics([10, 20]).median == 15


def test_no_lengths():
    with pytest.raises(InputError, match="statistics of no documents"):
        length_statistics([])
