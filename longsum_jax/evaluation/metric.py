"""Base class of all summary metrics."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from longsum_jax.errors import InputError

Scores = dict[str, float]


class Metric(ABC):
    """A summary metric, a class in ``registry.METRICS``.

    ``score`` returns values for each example. The value for a data set is their
    mean, unless ``from_means`` or ``corpus_values`` is overridden.

    Attributes:
        Options: frozen dataclass of the metric's options, with defaults.
        columns: names of its values, in the order of tables, unique among all
            metrics. If they depend on options, an instance overrides them.
        reads_references, reads_sources: True if the values depend on references
            and documents.
        scored_last: True to score all summaries in one call at the end, for
            metrics that need much memory or whose values depend on all
            references.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """No options."""

    columns: tuple[str, ...]
    reads_references: bool = True
    reads_sources: bool = True
    scored_last: bool = False

    def __init__(self, options: Any = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @abstractmethod
    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        """Returns the scores of every example.

        Args:
            predictions: generated summaries; they may be empty.
            references: reference summaries.
            sources: documents.

        Returns:
            For each example, a value for every name in ``columns``.
        """

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        """Returns the scores of one example from its scores with each reference: their mean."""
        return mean_scores(scores)

    def corpus_values(
        self,
        scores: Sequence[Scores],
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> Scores:
        """Returns the values of a data set, from the means over its examples by ``from_means``.

        A metric whose value is not a function of means overrides this, and has
        no intervals.

        Args:
            scores: scores of every example.
            predictions, references, sources: texts as for ``score``.

        Raises:
            InputError: there are no examples.
        """
        del predictions, references, sources
        values = self.from_means(mean_scores(scores))
        return {name: float(value) for name, value in values.items()}

    def from_means(self, means: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of a data set from the means of all columns over its examples.

        Metrics that are not means over examples, such as ratios of counts,
        override this.

        Args:
            means: column -> its mean, or an array with the means of several
                resamples of the data set.

        Returns:
            Column -> its value, or an array of values.
        """
        return dict(means)

    @property
    def is_function_of_means(self) -> bool:
        """True if ``from_means`` gives the values, so that there are intervals and tests."""
        return type(self).corpus_values is Metric.corpus_values

    def notes(self, references: Sequence[str]) -> list[str]:
        """Returns remarks for readers of the values; none by default.

        Args:
            references: first reference of each example.
        """
        del references
        return []

    def describe(self) -> dict[str, Any]:
        """Returns the settings that determine the values, for reports: versions and options."""
        return dataclasses.asdict(self.options)


class PairMetric(Metric):
    """A metric that compares each summary with one other text.

    The other text is the reference or, without ``reads_references``, the
    document.
    """

    @abstractmethod
    def compare(self, prediction: str, other: str) -> Scores:
        """Returns the scores of one summary, a value for every name in ``columns``."""

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        others = references if self.reads_references else sources
        pairs = zip(predictions, others, strict=True)
        return [self.compare(*pair) for pair in pairs]


class WordMetric(PairMetric):
    """A metric of words, whose tokenizer is an option."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: tokenizer: "default" (ROUGE's) or "unicode"."""

        tokenizer: Literal["default", "unicode"] = "default"

    options: Options


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Returns the mean of each value over examples with the same keys.

    Raises:
        InputError: there are no examples.
    """
    if not scores:
        raise InputError(
            "scores of no examples: give at least one pair of prediction and reference"
        )
    means = {}
    for name in scores[0]:
        values = [score[name] for score in scores]
        means[name] = float(np.mean(values))
    return means


def check_sizes(metric: str, sizes: Sequence[int]) -> None:
    """Raises InputError unless the n-gram sizes are at least 1 and distinct."""
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise InputError(
            f"metrics.{metric}.sizes={list(sizes)} must name sizes of n-grams from 1 on, each once"
        )


def max_scores(scores: Sequence[Scores]) -> Scores:
    """Returns the maximum of each value over examples with the same keys."""
    best = {}
    for name in scores[0]:
        best[name] = max(score[name] for score in scores)
    return best
