"""Agreement between human judges, and correlation of metrics with their judgments."""

from typing import Literal, get_args

import numpy as np

from longsum_jax.errors import InputError, did_you_mean

Scale = Literal["nominal", "ordinal", "interval", "ratio"]


def pearson(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the linear correlation of two lists of numbers, from -1 to 1.

    Raises:
        InputError: lists of different or too small lengths, not finite, or with
            all values equal.
    """
    first, second = _two_lists(first, second)
    first = first - first.mean()
    second = second - second.mean()
    scale = np.sqrt((first @ first) * (second @ second))
    return float(np.clip(first @ second / scale, -1, 1))


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Spearman's rank correlation of two lists of numbers; ties get their mean rank.

    Raises:
        InputError: as ``pearson``.
    """
    first, second = _two_lists(first, second)
    return pearson(_ranks(first), _ranks(second))


def kendall(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Kendall's tau-b of two lists of numbers, from -1 to 1.

    The number of concordant pairs less the number of discordant pairs, over the
    geometric mean of the numbers of pairs that are not tied in either list
    (Kendall, 1945).

    Raises:
        InputError: as ``pearson``.
    """
    first, second = _two_lists(first, second)
    agreement = first_untied = second_untied = 0
    for row in range(1, len(first)):
        order = np.sign(first[row] - first[:row])
        other = np.sign(second[row] - second[:row])
        agreement += int(order @ other)
        first_untied += int(np.count_nonzero(order))
        second_untied += int(np.count_nonzero(other))
    return float(agreement / np.sqrt(first_untied * second_untied))


CORRELATIONS = {"pearson": pearson, "spearman": spearman, "kendall": kendall}


def krippendorff_alpha(ratings: np.ndarray, scale: Scale = "nominal") -> float:
    """Returns Krippendorff's alpha: 1 for perfect agreement, 0 for agreement by chance.

    One minus the ratio of the observed disagreement to the disagreement
    expected if ratings are assigned to units at random (Krippendorff, 2011,
    "Computing Krippendorff's alpha-reliability"). Units with fewer than two
    ratings are ignored.

    Args:
        ratings: float [raters, units]; NaN for missing ratings.
        scale: scale of the ratings: categories as numbers, ranks, differences,
            or ratios to a true zero.

    Raises:
        InputError: an unknown scale, no unit with two ratings, or only equal
            ratings, for which alpha is undefined.
    """
    if scale not in get_args(Scale):
        raise InputError(
            f'scale="{scale}" of ratings; {did_you_mean(scale, get_args(Scale))}'
        )
    ratings = np.asarray(ratings, np.float64)
    if ratings.ndim != 2:
        raise InputError(
            f"ratings of shape {ratings.shape}; give [raters, units]"
        )
    ratings = ratings[:, np.count_nonzero(~np.isnan(ratings), 0) >= 2]
    values = np.unique(ratings[~np.isnan(ratings)])
    if not values.size:
        raise InputError(
            "no unit has ratings of two raters; alpha compares them"
        )
    if values.size == 1:
        raise InputError(
            f"all ratings are {values[0]:g}; alpha needs at least two values"
        )
    counts = (ratings == values[:, None, None]).sum(1)  # [values, units]
    raters = counts.sum(0)
    # Pairs of ratings of a unit by different raters, weighted to count each
    # rating once.
    coincidences = (counts / (raters - 1)) @ counts.T - np.diag(
        (counts / (raters - 1)).sum(1)
    )
    totals = counts.sum(1)
    expected = (np.outer(totals, totals) - np.diag(totals)) / (totals.sum() - 1)
    distances = _distances(values, totals, scale)
    return float(
        1 - (coincidences * distances).sum() / (expected * distances).sum()
    )


def majority_vote(labels: np.ndarray) -> np.ndarray:
    """Returns the majority label of every unit, NaN if the two most frequent labels are tied.

    Args:
        labels: numbers [raters, units]; NaN for missing labels.

    Returns:
        float64 [units].

    Raises:
        InputError: labels of a wrong shape.
    """
    labels = np.asarray(labels, np.float64)
    if labels.ndim != 2:
        raise InputError(
            f"labels of shape {labels.shape}; give [raters, units]"
        )
    values = np.unique(labels[~np.isnan(labels)])
    if not values.size:
        return np.full(labels.shape[1], np.nan)
    votes = (labels == values[:, None, None]).sum(1)  # [values, units]
    most = votes.max(0)
    clear = np.count_nonzero(votes == most, 0) == 1
    return np.where(clear, values[votes.argmax(0)], np.nan)


def _two_lists(
    first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    first, second = (
        np.asarray(first, np.float64),
        np.asarray(second, np.float64),
    )
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise InputError(
            f"a correlation of shapes {first.shape} and {second.shape}; give two lists of at least "
            "two numbers for the same things"
        )
    for values in (first, second):
        if not np.isfinite(values).all():
            raise InputError(
                "a correlation with a number that is not finite; leave it out"
            )
        if (values == values[0]).all():
            raise InputError(
                f"a correlation with numbers that are all {values[0]:g}; leave it out"
            )
    return first, second


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks from 1; ties get their mean rank."""
    _, index, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[index]


def _distances(
    values: np.ndarray, totals: np.ndarray, scale: Scale
) -> np.ndarray:
    """Returns the squared distance [values, values] of every pair of values."""
    low, high = (
        np.minimum.outer(values, values),
        np.maximum.outer(values, values),
    )
    if scale == "nominal":
        return (low != high).astype(np.float64)
    if scale == "interval":
        return (high - low) ** 2
    if scale == "ratio":
        return (
            np.divide(
                high - low,
                high + low,
                where=high + low != 0,
                out=np.zeros_like(low),
            )
            ** 2
        )
    # The number of ratings between two values, with each value's own ratings
    # counted half.
    middle = np.cumsum(totals) - totals / 2
    return np.subtract.outer(middle, middle) ** 2
