"""Statistics of the lengths of texts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError


class LengthStatistics(NamedTuple):
    """Statistics of several lengths, in the unit of the lengths.

    Attributes:
        mean: arithmetic mean.
        median: middle length; the mean of the two middle lengths if their
            number is even.
        percentile_90: 90th percentile, linearly interpolated: for n sorted
            lengths the one with index 0.9 (n - 1), counted from 0 (the default
            of ``numpy.percentile``).
        largest: largest length.
    """

    mean: float
    median: float
    percentile_90: float
    largest: int


def length_statistics(lengths: Sequence[int]) -> LengthStatistics:
    """Returns mean, median, 90th percentile and largest of some lengths.

    Raises:
        InputError: there are no lengths.
    """
    values = np.asarray(lengths, np.int64)
    if not values.size:
        raise InputError(
            "statistics of no documents: give a file with at least one"
        )
    median, percentile_90 = np.percentile(values, [50, 90])
    return LengthStatistics(
        float(values.mean()),
        float(median),
        float(percentile_90),
        int(values.max()),
    )
