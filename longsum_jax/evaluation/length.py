"""Lengths of summaries, in words and relative to their references."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.text.ngrams import TOKENIZERS


class LengthMetric(Metric):
    """Words of a summary, and their ratio to the words of the reference: 1 for equal lengths.

    The ratio to a reference without words is 0.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: tokenizer: "default" (ROUGE's) or "unicode"."""

        tokenizer: Literal["default", "unicode"] = "default"

    columns = ("summary_words", "length_ratio")
    reads_sources = False
    options: Options

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del sources
        tokenize = TOKENIZERS[self.options.tokenizer]
        scores = []
        for prediction, reference in zip(predictions, references, strict=True):
            words = len(tokenize(prediction))
            reference_words = len(tokenize(reference))
            if reference_words:
                ratio = words / reference_words
            else:
                ratio = 0.0
            scores.append(
                {"summary_words": float(words), "length_ratio": ratio}
            )
        return scores
