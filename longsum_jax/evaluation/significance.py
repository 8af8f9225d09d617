"""Confidence intervals of scores, and significance tests for two systems on the same documents.

The tests and intervals take one column of scores, [documents], or several
columns, such as metrics, [documents, columns], and use the same random rounds
for every column. They are for the means over documents, or for a ``statistic``
of the means, such as the geometric mean of several columns: a function from
means [rounds, columns] to values [rounds, values]. Without a statistic, the
values are the means, one per column.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from longsum_jax.errors import InputError, check_whole

ROUNDS = 10_000
# maximum elements of a table at a time, to stay in the CPU caches
_ELEMENTS = 1 << 16
_TOLERANCE = 1e-12  # relative; sums of the same numbers may differ by rounding

Statistic = Callable[[np.ndarray], np.ndarray]


def randomization_test(
    first: np.ndarray,
    second: np.ndarray,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    statistic: Statistic | None = None,
) -> np.ndarray:
    """Tests whether two systems differ, by paired approximate randomization.

    Each round swaps the two systems' scores of each document with probability
    1/2. The p-value is the share of rounds whose absolute difference of means
    is at least as large as the observed one; the observed difference counts as
    an additional round (Noreen, 1989). If there are at most ``rounds`` ways to
    swap, 2**documents, each of them is computed once, and the p-value is exact.

    Args:
        first, second: scores of two systems, [documents] or [documents,
            columns].
        rounds: number of rounds.
        seed: random seed of the rounds.
        statistic: function of the means; None for the means themselves.

    Returns:
        Two-sided p-values, float64 [values]; a scalar for scores [documents].

    Raises:
        InputError: no documents, mismatched shapes, scores that are not finite,
            or ``rounds`` below 1.
    """
    tables = _pair(first, second)
    count, columns = tables[0].shape
    both = np.concatenate(tables, 1)

    def difference_of(unswapped: np.ndarray) -> np.ndarray:
        # Sums instead of differences, so that means of nonnegative scores are
        # nonnegative.
        sums = unswapped @ both + (1 - unswapped) @ np.roll(both, columns, 1)
        means = sums / count
        return _apply(statistic, means[:, :columns]) - _apply(
            statistic, means[:, columns:]
        )

    observed = np.abs(difference_of(np.ones((1, count)))) - _rounding(
        tables, statistic
    )
    exact = count < 63 and 2**count <= rounds
    if exact:
        choices = _all_choices(count)
    else:
        choices = _random_choices(count, rounds, seed)
    hits = sum(
        (np.abs(difference_of(unswapped)) >= observed).sum(0)
        for unswapped in choices
    )
    if exact:
        p_values = hits / 2**count
    else:
        p_values = (hits + 1) / (rounds + 1)
    return _shaped(p_values, first)


def bootstrap_test(
    first: np.ndarray,
    second: np.ndarray,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    statistic: Statistic | None = None,
) -> np.ndarray:
    """Tests whether two systems differ, by the paired bootstrap.

    The p-value is the share of resamples of the documents whose difference
    deviates from the observed one at least as far as that one does from zero,
    with the observed one counted as a resample (Efron & Tibshirani, 1993,
    section 16.4; one-sided in Berg-Kirkpatrick et al., 2012). With a single
    document, all resamples are equal, and the p-value is 1.

    Args:
        first, second: scores of two systems, [documents] or [documents,
            columns].
        rounds: number of resamples.
        seed: random seed of the resamples.
        statistic: function of the means; None for the means themselves.

    Returns:
        Two-sided p-values, float64 [values]; a scalar for scores [documents].

    Raises:
        InputError: no documents, mismatched shapes, scores that are not finite,
            or ``rounds`` below 1.
    """
    tables = _pair(first, second)
    means = [table.mean(0)[None] for table in tables]
    observed = _apply(statistic, means[0]) - _apply(statistic, means[1])
    differences = resampled_differences(
        first, second, rounds=rounds, seed=seed, statistic=statistic
    )
    threshold = np.abs(observed) - _rounding(tables, statistic)
    hits = (np.abs(differences - observed) >= threshold).sum(0)
    if len(tables[0]) == 1:
        hits = np.full_like(hits, rounds)
    return _shaped((hits + 1) / (rounds + 1), first)


def resampled_differences(
    first: np.ndarray,
    second: np.ndarray,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    statistic: Statistic | None = None,
) -> np.ndarray:
    """Returns the differences of two systems in resamples of the documents.

    Their percentiles give an interval, and their standard deviation the
    standard error.

    Args:
        first, second: scores of two systems, [documents] or [documents,
            columns].
        rounds: number of resamples.
        seed: random seed of the resamples.
        statistic: function of the means; None for the means themselves.

    Returns:
        float64 [rounds, values].

    Raises:
        InputError: no documents, mismatched shapes, or scores that are not
            finite.
    """
    both = _pair(first, second)
    means = _resampled_means(np.concatenate(both, 1), rounds, seed)
    columns = both[0].shape[1]
    return _apply(statistic, means[:, :columns]) - _apply(
        statistic, means[:, columns:]
    )


TESTS: dict[str, Callable[..., np.ndarray]] = {
    "randomization": randomization_test,
    "bootstrap": bootstrap_test,
}


def bootstrap_intervals(
    scores: np.ndarray,
    *,
    level: float = 0.95,
    rounds: int = ROUNDS,
    seed: int = 0,
    statistic: Statistic | None = None,
) -> np.ndarray:
    """Returns confidence intervals of means, by the percentile bootstrap.

    Source: Efron & Tibshirani, 1993, chapter 13.

    Args:
        scores: scores of one system, [documents] or [documents, columns].
        level: confidence level, the share of resamples inside an interval.
        rounds: number of resamples of the documents.
        seed: random seed of the resamples.
        statistic: function of the means; None for the means themselves.

    Returns:
        Lower and upper bounds, float64 [2, values]; [2] for scores [documents].

    Raises:
        InputError: no documents, scores that are not finite, a level outside of
            (0, 1), or ``rounds`` below 1.
    """
    values = _apply(statistic, _resampled_means(_table(scores), rounds, seed))
    ends = percentile_interval(values, level)
    return ends[:, 0] if np.ndim(scores) == 1 else ends


def percentile_interval(values: np.ndarray, level: float = 0.95) -> np.ndarray:
    """Returns the bounds [2, values] that contain the fraction ``level`` of [rounds, values].

    Raises:
        InputError: a level outside of (0, 1).
    """
    if not 0 < level < 1:
        raise InputError(
            f"level={level} of intervals must lie between 0 and 1, such as 0.95"
        )
    outside = 50 * (1 - level)
    return np.percentile(values, [outside, 100 - outside], axis=0)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Returns p-values adjusted for the number of tests (Holm, 1979).

    Rejecting every null hypothesis whose adjusted p-value is below a level
    bounds the family-wise error rate, the probability of any false rejection,
    by that level.

    Args:
        p_values: [tests] or [tests, columns]; each column is adjusted
            separately.
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, axis=0)
    ascending = np.take_along_axis(p_values, order, 0)
    remaining = np.arange(len(p_values), 0, -1).reshape(
        -1, *[1] * (p_values.ndim - 1)
    )
    # Step-down: the i-th smallest p-value is multiplied by the number of tests
    # not yet rejected.
    stepped = np.minimum(
        np.maximum.accumulate(remaining * ascending, axis=0), 1
    )
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, 0)
    return adjusted


def smallest_difference(standard_error: np.ndarray) -> np.ndarray:
    """Returns the smallest difference that a two-sided test at 5 % detects with a power of 80 %.

    By the normal approximation: z(0.975) + z(0.8) standard errors.
    A significant difference below it was detected by chance.

    Args:
        standard_error: standard error of the difference; for means, the
            standard deviation of the differences over the square root of the
            number of documents.
    """
    normal = statistics.NormalDist()
    quantiles = normal.inv_cdf(0.975) + normal.inv_cdf(0.8)
    return quantiles * np.asarray(standard_error)


def _pair(
    first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of two systems as tables."""
    if np.shape(first) != np.shape(second):
        raise InputError(
            f"scores of shapes {np.shape(first)} and {np.shape(second)}; give scores of the "
            "same documents"
        )
    return _table(first), _table(second)


def _apply(statistic: Statistic | None, means: np.ndarray) -> np.ndarray:
    return means if statistic is None else statistic(means)


def _rounding(
    tables: Sequence[np.ndarray], statistic: Statistic | None
) -> np.ndarray:
    """Returns the tolerance for comparing values."""
    sizes = np.mean([np.abs(table).mean(0) for table in tables], 0)
    return _TOLERANCE * np.abs(_apply(statistic, sizes[None]))


def _shaped(values: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns values without the column axis if the scores have none."""
    values = np.asarray(values)
    return values[0] if np.ndim(scores) == 1 else values


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
        raise InputError(
            f"the score of document {document} is not finite; leave it out"
        )
    return scores.reshape(len(scores), -1)


def _random_choices(count: int, rounds: int, seed: int) -> Iterator[np.ndarray]:
    """Yields random choices of 0 and 1, float64 [some, count], ``rounds`` rows in total."""
    rng = np.random.default_rng(seed)
    for size in _sizes(count, rounds):
        yield rng.integers(0, 2, (size, count), np.int8).astype(np.float64)


def _all_choices(count: int) -> Iterator[np.ndarray]:
    """Yields all choices of 0 and 1 for ``count`` documents, in a single table."""
    choices = np.arange(2**count)[:, None] >> np.arange(count) & 1
    yield choices.astype(np.float64)


def _resampled_means(table: np.ndarray, rounds: int, seed: int) -> np.ndarray:
    """Returns the means [rounds, columns] of resamples of the documents, with replacement."""
    rng = np.random.default_rng(seed)
    count = len(table)
    means = []
    for size in _sizes(count, rounds):
        drawn = rng.integers(0, count, (size, count), np.int32)
        # Offset the documents of each round, so that one bincount serves all
        # rounds.
        drawn += count * np.arange(size, dtype=np.int32)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(
            size, count
        )
        means.append(times.astype(np.float64) @ table / count)
    return np.concatenate(means)


def _sizes(count: int, rounds: int) -> list[int]:
    """Returns the numbers of rounds to draw at a time, for ``count`` documents."""
    check_whole("rounds", rounds, 1)
    largest = max(_ELEMENTS // count, 1)
    full, rest = divmod(rounds, largest)
    return [largest] * full + [rest] * bool(rest)
