"""Salience curve: positions in the document at which n-grams of a summary first occur."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from longsum_jax.errors import InputError, check_whole
from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.text.extractive import NUM_SHARES, salient_ngrams
from longsum_jax.text.ngrams import TOKENIZERS


class Salience(Metric):
    """The curve of salient n-grams (Huang et al., 2021, figure 2) of a summary, in percent.

    salient_30 is the share of the summary's n-grams, among the ones found in
    the document, that first occur within its first 30 percent. The last value
    is 100, or 0 if no n-gram occurs in the document; the mean curve leaves such
    summaries out. See ``text.extractive.salient_ngrams``.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of the curve.

        Attributes:
            size: n-gram length in words.
            shares: number of points of the curve.
            tokenizer: "default" (ROUGE's) or "unicode".
        """

        size: int = 2
        shares: int = NUM_SHARES
        tokenizer: Literal["default", "unicode"] = "default"

        def __post_init__(self) -> None:
            check_whole("metrics.salience.size", self.size, 1)
            if not 1 <= self.shares <= 100:
                raise InputError(
                    f"metrics.salience.shares={self.shares} must be from 1 to 100"
                )

    columns: tuple[str, ...] = tuple(
        f"salient_{percent}" for percent in range(10, 101, 10)
    )
    reads_references = False
    options: Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        shares = self.options.shares
        self.columns = tuple(
            f"salient_{100 * share // shares}" for share in range(1, shares + 1)
        )

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        pairs = zip(predictions, sources, strict=True)
        return [self._curve(prediction, source) for prediction, source in pairs]

    def from_means(self, means: Mapping[str, Any]) -> dict[str, Any]:
        # percentage of summaries that have a curve
        last = means[self.columns[-1]]
        share = np.where(last > 0, last, 100) / 100
        return {name: means[name] / share for name in self.columns}

    def _curve(self, prediction: str, source: str) -> Scores:
        curve = salient_ngrams(
            source,
            prediction,
            size=self.options.size,
            num_shares=self.options.shares,
            tokenize=TOKENIZERS[self.options.tokenizer],
        )
        if curve is None:
            return dict.fromkeys(self.columns, 0.0)
        return dict(zip(self.columns, (100 * curve).tolist(), strict=True))
