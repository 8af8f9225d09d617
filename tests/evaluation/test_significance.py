"""Tests of significance, against scipy, against all exchanges and resamples, and by simulation."""

import itertools

import numpy as np
import pytest
from scipy import stats

from longsum_jax.errors import InputError
from longsum_jax.evaluation.significance import (
    bootstrap_intervals,
    bootstrap_test,
    holm,
    randomization_test,
    resampled_differences,
    smallest_difference,
)

RNG = np.random.default_rng(0)
FIRST = RNG.normal(size=(60, 3))
SECOND = FIRST + 0.6 * RNG.normal(size=(60, 3)) + [0, 0.15, 0.6]


def test_few_documents_are_exchanged_in_every_way():
    first, second = FIRST[:10], SECOND[:10]
    expected = stats.permutation_test(
        (first, second),
        lambda x, y, axis: (x - y).mean(axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
        axis=0,
    )
    np.testing.assert_allclose(randomization_test(first, second), expected.pvalue, rtol=1e-12)
    assert randomization_test(first[:, 0], second[:, 0]) == pytest.approx(expected.pvalue[0])


def test_random_exchanges_come_near_to_all_of_them():
    exact = randomization_test(FIRST[:12], SECOND[:12])
    result = randomization_test(FIRST[:12], SECOND[:12], rounds=4000)
    np.testing.assert_allclose(result, exact, atol=4 * np.sqrt(0.25 / 4000))
    assert not np.array_equal(result, exact)


def test_rounds_are_seeded_and_shared_by_columns():
    result = randomization_test(FIRST, SECOND, rounds=500, seed=3)
    np.testing.assert_array_equal(result, randomization_test(FIRST, SECOND, rounds=500, seed=3))
    assert result[1] == randomization_test(FIRST[:, 1], SECOND[:, 1], rounds=500, seed=3)
    assert np.any(result != randomization_test(FIRST, SECOND, rounds=500, seed=4))
    assert result[2] == 1 / 501  # the largest difference of all, and no p-value is 0


def all_resampled_means(values):
    count = len(values)
    return np.array([values[list(c)].mean() for c in itertools.product(range(count), repeat=count)])


def test_the_bootstrap_comes_near_to_all_resamples():
    differences = np.array([0.3, -0.1, 0.5, 0.2, 0.4])
    means = all_resampled_means(differences)
    mean = differences.mean()
    exact = (np.abs(means - mean) >= abs(mean) - 1e-12).mean()
    zeros = np.zeros(5)
    result = bootstrap_test(differences, zeros, rounds=20_000)
    assert result == pytest.approx(exact, abs=4 * np.sqrt(exact / 20_000))
    ends = bootstrap_intervals(differences, level=0.8, rounds=20_000)
    np.testing.assert_allclose(ends, np.percentile(means, [10, 90]), atol=0.01)


def test_intervals_agree_with_scipy():
    result = bootstrap_intervals(FIRST, rounds=20_000)
    expected = stats.bootstrap(
        (FIRST,), np.mean, n_resamples=20_000, method="percentile", axis=0, rng=1
    ).confidence_interval
    np.testing.assert_allclose(result, [expected.low, expected.high], atol=0.02)
    np.testing.assert_array_equal(
        bootstrap_intervals(FIRST, seed=2, rounds=99), bootstrap_intervals(FIRST, seed=2, rounds=99)
    )
    np.testing.assert_array_equal(
        bootstrap_intervals(FIRST[:, 1], rounds=99), bootstrap_intervals(FIRST, rounds=99)[:, 1]
    )


@pytest.mark.parametrize("test", [randomization_test, bootstrap_test])
def test_true_hypotheses_are_rejected_as_often_as_the_level_says(test):
    """Under no difference p-values are uniform: 5 % of 400 columns fall below 0.05."""
    rng = np.random.default_rng(5)
    p_values = test(rng.normal(size=(80, 400)), rng.normal(size=(80, 400)), rounds=400)
    assert 0.02 < (p_values < 0.05).mean() < 0.09
    assert 0.4 < (p_values < 0.5).mean() < 0.6


def test_equal_systems_do_not_differ():
    assert randomization_test(FIRST, FIRST, rounds=50).tolist() == [1, 1, 1]
    assert bootstrap_test(FIRST, FIRST, rounds=50).tolist() == [1, 1, 1]


@pytest.mark.parametrize("test", [randomization_test, bootstrap_test])
def test_a_single_document_shows_no_difference(test):
    assert test([1.0], [2.0], rounds=50) == 1
    assert test([[1.0, 3.0]], [[2.0, 3.0]], rounds=50).tolist() == [1, 1]


def test_holm():
    """The example of Holm's procedure with p-values 0.01, 0.04, 0.03 and 0.005."""
    p_values = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(holm(p_values), [0.03, 0.06, 0.06, 0.02])
    table = np.stack([p_values, p_values[::-1], [0.5, 0.6, 0.7, 0.8]], 1)
    result = holm(table)
    for column in range(3):
        np.testing.assert_allclose(result[:, column], holm(table[:, column]))
    assert result[:, 2].tolist() == [1, 1, 1, 1]


def test_the_smallest_difference_is_found_as_often_as_the_power_says():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(200, 1000)), rng.normal(size=(200, 1000))
    expected = smallest_difference(np.sqrt(2 / 200))
    assert expected == pytest.approx((1.959964 + 0.841621) * np.sqrt(2 / 200), rel=1e-6)
    result = stats.ttest_rel(first + expected, second).pvalue < 0.05
    assert result.mean() == pytest.approx(0.8, abs=0.05)


def ratio(means):
    """Of two columns, and the first one."""
    return np.stack([means[..., 0] / means[..., 1], means[..., 0]], -1)


COUNTS = np.add(np.abs(FIRST[:8, :2]), [0, 1]), np.add(np.abs(SECOND[:8, :2]), [0.2, 1])


def test_exchanges_for_a_function_of_means():
    first, second = COUNTS
    choices = np.array(list(itertools.product([True, False], repeat=8)))
    exchanged = [
        ratio(np.where(choice[:, None], first, second).mean(0))
        - ratio(np.where(choice[:, None], second, first).mean(0))
        for choice in choices
    ]
    result = ratio(first.mean(0)) - ratio(second.mean(0))
    expected = (np.abs(exchanged) >= np.abs(result) - 1e-12).mean(0)
    p_values = randomization_test(first, second, statistic=ratio)
    np.testing.assert_allclose(p_values, expected)
    assert p_values[1] == randomization_test(first[:, 0], second[:, 0])


def test_resamples_for_a_function_of_means():
    first, second = COUNTS
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 8, (4000, 8))
    values = ratio(first[drawn].mean(1))
    differences = values - ratio(second[drawn].mean(1))
    ends = bootstrap_intervals(first, statistic=ratio)
    np.testing.assert_allclose(ends, np.percentile(values, [2.5, 97.5], axis=0), atol=0.05)
    result = resampled_differences(first, second, statistic=ratio)
    np.testing.assert_allclose(result.std(0), differences.std(0), rtol=0.06)
    mean = ratio(first.mean(0)) - ratio(second.mean(0))
    expected = (np.abs(differences - mean) >= np.abs(mean)).mean(0)
    p_values = bootstrap_test(first, second, statistic=ratio)
    np.testing.assert_allclose(p_values, expected, atol=0.04)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda: randomization_test(FIRST, FIRST[:5]), r"scores of shapes \(60, 3\) and \(5, 3\)"),
        (lambda: bootstrap_test([], []), "at least one document"),
        (lambda: bootstrap_intervals(np.zeros((2, 2, 2))), r"scores of shape \(2, 2, 2\); give"),
        (lambda: bootstrap_intervals([1, np.nan]), "the score of document 1 is not finite"),
        (lambda: bootstrap_intervals([1, 2], level=95), "level=95 of intervals must lie between"),
        (lambda: bootstrap_intervals([1, 2], rounds=0), "rounds=0 must be at least 1"),
    ],
)
def test_bad_input(function, problem):
    with pytest.raises(InputError, match=problem):
        function()
