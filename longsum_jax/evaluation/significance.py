"""Intervals of scores, and tests whether two systems differ on the same documents.

All functions take one column of scores, [documents], or several at a time, [documents, columns],
and draw the same rounds for every column.
"""

import math
import statistics
from collections.abc import Callable, Iterator

import numpy as np

from longsum_jax.errors import InputError

ROUNDS = 10_000
_ELEMENTS = 1 << 16  # of a table at a time, so that it stays in the caches
_TOLERANCE = 1e-12  # sums of the same numbers may differ by rounding


def randomization_test(
    first: np.ndarray, second: np.ndarray, *, rounds: int = ROUNDS, seed: int = 0
) -> np.ndarray:
    """Tests by paired approximate randomization whether two means differ.

    In every round the scores of each document are exchanged or not, by chance. The p-value is the
    share of rounds whose difference of means is at least as large as the one found, which counts as
    a round itself (Noreen, 1989). Where there are no more than ``rounds`` ways to exchange, each is
    taken once, and the p-value is exact.

    Args:
        first, second: scores of two systems, [documents] or [documents, columns].
        rounds: of the test.
        seed: of the rounds.

    Returns:
        Two-sided p-values, float64, () or [columns].

    Raises:
        InputError: no documents, shapes that differ, or scores that are not finite.
    """
    differences = _differences(first, second)
    found = np.abs(differences.sum(0)) - _TOLERANCE * np.abs(differences).sum(0)
    count = len(differences)
    exact = count < 63 and 2**count <= rounds
    signs = _all_signs(count) if exact else _random_signs(count, rounds, seed)
    hits = sum((np.abs(some @ differences) >= found).sum(0) for some in signs)
    p_values = hits / 2**count if exact else (hits + 1) / (rounds + 1)
    return p_values.reshape(np.shape(first)[1:])


def bootstrap_test(
    first: np.ndarray, second: np.ndarray, *, rounds: int = ROUNDS, seed: int = 0
) -> np.ndarray:
    """Tests by the paired bootstrap whether two means differ.

    The p-value is the share of resamples of the documents in which the difference of means is at
    least as far from the one found as that is from zero, the one found counted as a resample (Efron
    & Tibshirani, 1993, section 16.4; one-sided in Berg-Kirkpatrick et al., 2012).

    Args:
        first, second: scores of two systems, [documents] or [documents, columns].
        rounds: resamples.
        seed: of the resamples.

    Returns:
        Two-sided p-values, float64, () or [columns].

    Raises:
        InputError: no documents, shapes that differ, or scores that are not finite.
    """
    differences = _differences(first, second)
    mean = differences.mean(0)
    found = np.abs(mean) - _TOLERANCE * np.abs(differences).mean(0)
    means = _resampled_means(differences, rounds, seed)
    hits = (np.abs(means - mean) >= found).sum(0)
    return ((hits + 1) / (rounds + 1)).reshape(np.shape(first)[1:])


TESTS: dict[str, Callable[..., np.ndarray]] = {
    "randomization": randomization_test,
    "bootstrap": bootstrap_test,
}


def bootstrap_intervals(
    scores: np.ndarray, *, level: float = 0.95, rounds: int = ROUNDS, seed: int = 0
) -> np.ndarray:
    """Returns percentile intervals of means (Efron & Tibshirani, 1993, chapter 13).

    Of the difference of two systems, give the differences of their scores.

    Args:
        scores: [documents] or [documents, columns].
        level: share of resamples inside the interval.
        rounds: resamples of the documents.
        seed: of the resamples.

    Returns:
        Lower and upper ends, float64 [2] or [2, columns].

    Raises:
        InputError: no documents, scores that are not finite, or a level that is no share.
    """
    if not 0 < level < 1:
        raise InputError(f"level={level} of intervals must lie between 0 and 1, as 0.95")
    table = _table(scores)
    outside = 50 * (1 - level)
    ends = np.percentile(_resampled_means(table, rounds, seed), [outside, 100 - outside], axis=0)
    return ends.reshape(2, *np.shape(scores)[1:])


def holm(p_values: np.ndarray) -> np.ndarray:
    """Returns p-values adjusted for the number of tests (Holm, 1979).

    Where those below a level are taken as differences, the probability that any of these is none is
    at most the level.

    Args:
        p_values: [tests] or [tests, columns]; columns are adjusted each for themselves.
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, axis=0)
    ascending = np.take_along_axis(p_values, order, 0)
    remaining = np.arange(len(p_values), 0, -1).reshape(-1, *[1] * (p_values.ndim - 1))
    stepped = np.minimum(np.maximum.accumulate(remaining * ascending, axis=0), 1)
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, 0)
    return adjusted


def smallest_difference(
    first: np.ndarray, second: np.ndarray, *, level: float = 0.05, power: float = 0.8
) -> np.ndarray:
    """Returns the difference of means that a test on as many documents finds with this power.

    By the normal approximation: (z(1 - level / 2) + z(power)) times the standard error of the mean
    difference. A difference that is found and smaller than this was found by luck.

    Args:
        first, second: scores of two systems, [documents] or [documents, columns].
        level: p-value below which a difference counts, two-sided.
        power: probability to find it.

    Returns:
        float64, () or [columns].

    Raises:
        InputError: fewer than two documents, shapes that differ, or scores that are not finite.
    """
    differences = _differences(first, second)
    if len(differences) < 2:
        raise InputError("the spread of differences over one document: give at least two")
    normal = statistics.NormalDist()
    quantiles = normal.inv_cdf(1 - level / 2) + normal.inv_cdf(power)
    error = differences.std(0, ddof=1) / math.sqrt(len(differences))
    return (quantiles * error).reshape(np.shape(first)[1:])


def _differences(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.shape != second.shape:
        raise InputError(
            f"scores of shapes {first.shape} and {second.shape}; give those of the same documents"
        )
    return _table(first) - _table(second)


def _table(scores: np.ndarray) -> np.ndarray:
    """Returns finite scores as [documents, columns]."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim not in (1, 2) or not len(scores):
        raise InputError(
            f"scores of shape {scores.shape}; give [documents] or [documents, columns] of at least "
            "one document"
        )
    if not np.isfinite(scores).all():
        document = int(np.argwhere(~np.isfinite(scores))[0][0])
        raise InputError(f"the score of document {document} is not finite; leave it out")
    return scores.reshape(len(scores), -1)


def _random_signs(count: int, rounds: int, seed: int) -> Iterator[np.ndarray]:
    """Yields -1 and 1 by chance, float64 [some, count], ``rounds`` rows in all."""
    rng = np.random.default_rng(seed)
    for size in _sizes(count, rounds):
        yield 2.0 * rng.integers(0, 2, (size, count), np.int8) - 1


def _all_signs(count: int) -> Iterator[np.ndarray]:
    """Yields every choice of -1 and 1 for ``count`` documents, in one table."""
    choices = np.arange(2**count)[:, None] >> np.arange(count) & 1
    yield 2.0 * choices - 1


def _resampled_means(table: np.ndarray, rounds: int, seed: int) -> np.ndarray:
    """Returns the means [rounds, columns] of as many documents drawn with replacement."""
    rng = np.random.default_rng(seed)
    count = len(table)
    means = []
    for size in _sizes(count, rounds):
        drawn = rng.integers(0, count, (size, count), np.int32)
        drawn += count * np.arange(size, dtype=np.int32)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        means.append(times.astype(np.float64) @ table / count)
    return np.concatenate(means)


def _sizes(count: int, rounds: int) -> list[int]:
    """Returns how many rounds to draw at a time, for ``count`` documents."""
    if rounds < 1:
        raise InputError(f"rounds={rounds} must be at least 1")
    largest = max(_ELEMENTS // count, 1)
    full, rest = divmod(rounds, largest)
    return [largest] * full + [rest] * bool(rest)
