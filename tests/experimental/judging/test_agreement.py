"""Correlations against scipy, alpha against its published example and a slow twin."""

import itertools

import numpy as np
import pytest
from scipy import stats

from longsum_jax.errors import InputError
from longsum_jax.experimental.judging.agreement import (
    kendall,
    krippendorff_alpha,
    majority_vote,
    pearson,
    spearman,
)

NONE = np.nan
# Krippendorff (2011), "Computing Krippendorff's alpha-reliability": four observers.
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NONE, NONE, NONE],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NONE, 3],
    [NONE, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NONE],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NONE],
]


@pytest.mark.parametrize(
    ("found", "expected"),
    [(pearson, stats.pearsonr), (spearman, stats.spearmanr), (kendall, stats.kendalltau)],
)
@pytest.mark.parametrize("values", [3, 8, None])
def test_correlations_equal_scipy(found, expected, values):
    """With few values many are equal."""
    rng = np.random.default_rng(0)
    for size in (2, 7, 60):
        drawn = rng.integers(0, values, size) if values else rng.normal(size=size)
        first = np.r_[0, 1, drawn]
        second = rng.permutation(first) + first
        assert found(first, second) == pytest.approx(expected(first, second).statistic, abs=1e-12)
    assert found([1, 2, 4], [2, 4, 8]) == pytest.approx(1)
    assert found([1, 2, 4], [-2, -4, -8]) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("scale", "alpha"),
    [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)],
)
def test_alpha_is_the_published_one(scale, alpha):
    assert krippendorff_alpha(np.array(PUBLISHED), scale) == pytest.approx(alpha, abs=5e-4)


def slow_alpha(ratings, distance):
    """One less the mean distance within units over that of all ratings that can be paired."""
    units = [[r for r in unit if not np.isnan(r)] for unit in np.transpose(ratings)]
    units = [unit for unit in units if len(unit) > 1]
    everything = [rating for unit in units for rating in unit]
    observed = sum(
        sum(distance(a, b) for a, b in itertools.permutations(unit, 2)) / (len(unit) - 1)
        for unit in units
    )
    expected = sum(distance(a, b) for a, b in itertools.permutations(everything, 2))
    return 1 - observed / (expected / (len(everything) - 1))


@pytest.mark.parametrize(
    ("scale", "distance"),
    [
        ("nominal", lambda a, b: float(a != b)),
        ("interval", lambda a, b: (a - b) ** 2),
        ("ratio", lambda a, b: ((a - b) / (a + b)) ** 2 if a + b else 0),
    ],
)
def test_alpha_equals_its_definition(scale, distance):
    rng = np.random.default_rng(0)
    for _ in range(10):
        ratings = rng.integers(0, 4, (3, 9)).astype(float)
        ratings[rng.random((3, 9)) < 0.3] = NONE
        ratings[:2, 0] = (0, 1)
        expected = slow_alpha(ratings, distance)
        assert krippendorff_alpha(ratings, scale) == pytest.approx(expected, abs=1e-12)


def test_ordinal_distances_count_the_ratings_between():
    """Equal ranks, however far apart their numbers, give equal values."""
    ratings = np.array(PUBLISHED)
    stretched = np.select([ratings == 5, ratings == 4], [500, 90], ratings)
    result = krippendorff_alpha(stretched, "ordinal")
    assert result == pytest.approx(krippendorff_alpha(ratings, "ordinal"), abs=1e-12)
    assert krippendorff_alpha(stretched, "interval") != pytest.approx(result, abs=0.01)


def test_majority():
    labels = np.array([[1, 1, 2, NONE, 3], [1, 2, NONE, NONE, 2], [0, 2, 1, NONE, 2]])
    np.testing.assert_array_equal(majority_vote(labels), [1, 2, NONE, NONE, 2])
    np.testing.assert_array_equal(majority_vote([[NONE]]), [NONE])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda: pearson([1, 2], [1, 2, 3]), r"a correlation of shapes \(2,\) and \(3,\)"),
        (lambda: kendall([1], [2]), "give two lists of at least two numbers"),
        (lambda: spearman([1, 1], [1, 2]), "a correlation with numbers that are all 1; leave"),
        (lambda: pearson([1, NONE], [1, 2]), "a correlation with a number that is not finite"),
        (lambda: krippendorff_alpha([[1, 2]]), "no unit has ratings of two raters"),
        (lambda: krippendorff_alpha([[1], [1]]), "all ratings are 1; alpha needs at least two"),
        (lambda: krippendorff_alpha([1, 2]), r"ratings of shape \(2,\); give \[raters, units\]"),
        (lambda: krippendorff_alpha([[1], [2]], "rank"), 'scale="rank" of ratings; known:'),
        (lambda: majority_vote([1]), r"labels of shape \(1,\); give \[raters, units\]"),
    ],
)
def test_bad_input(function, problem):
    with pytest.raises(InputError, match=problem):
        function()
