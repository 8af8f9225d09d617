"""The base of all metrics of summaries."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from longsum_jax.errors import InputError

Scores = dict[str, float]


class Metric(ABC):
    """A metric of summaries: one file of this directory and one line of ``registry.METRICS``.

    Attributes:
        Options: a frozen dataclass of the metric's options, with defaults.
        columns: the names of its values, in the order of tables; no other metric has them. Where
            they depend on options, an instance has its own.
        reads_references, reads_sources: whether the values depend on references and documents.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """No options."""

    columns: ClassVar[tuple[str, ...]]
    reads_references: ClassVar[bool] = True
    reads_sources: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @abstractmethod
    def score(
        self, predictions: Sequence[str], references: Sequence[str], sources: Sequence[str]
    ) -> list[Scores]:
        """Returns the scores of every example.

        Args:
            predictions: generated summaries; they may be empty.
            references: the summaries to compare with.
            sources: the documents.

        Returns:
            For each example a value of every name in ``columns``.
        """

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        """Returns the scores of one example from those with each of its references: the mean."""
        return mean_scores(scores)

    def corpus_values(
        self,
        scores: Sequence[Scores],
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> Scores:
        """Returns the values of all examples together: the mean of ``scores``.

        Metrics that are not means over examples, such as ratios of counts, override this, and
        ``mean_columns`` with it.

        Raises:
            InputError: there are no examples.
        """
        del predictions, references, sources
        return mean_scores(scores)

    @property
    def mean_columns(self) -> tuple[str, ...]:
        """The columns whose values are means over examples; only these have intervals and tests."""
        averaged = type(self).corpus_values is Metric.corpus_values
        return self.columns if averaged else ()

    def describe(self) -> dict[str, Any]:
        """Returns what the values depend on, for reports: versions and options."""
        return dataclasses.asdict(self.options)


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Returns the mean of each value over examples that all have the same keys.

    Raises:
        InputError: there are no examples.
    """
    if not scores:
        raise InputError(
            "scores of no examples: give at least one pair of prediction and reference"
        )
    return {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}


def check_sizes(metric: str, sizes: Sequence[int]) -> None:
    """Raises InputError unless the sizes of n-grams are at least 1 and differ."""
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise InputError(
            f"metrics.{metric}.sizes={list(sizes)} must name sizes of n-grams from 1 on, each once"
        )
