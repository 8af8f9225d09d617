"""Coverage, density and compression of generated summaries."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.text.extractive import extractiveness
from longsum_jax.text.ngrams import TOKENIZERS


class ExtractivenessMetric(Metric):
    """Extractive coverage and density, and compression ratio (Grusky et al., 2018).

    coverage is the share of the summary's words in fragments shared with the
    document, from 0 to 1; density the mean length of a word's fragment, in
    words; compression the ratio of the document's to the summary's words. See
    ``text.extractive.fragments``. A summary without words has 0 for each.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: tokenizer: "default" (ROUGE's) or "unicode"."""

        tokenizer: Literal["default", "unicode"] = "default"

    columns = ("coverage", "density", "compression")
    reads_references = False
    options: Options

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        pairs = zip(predictions, sources, strict=True)
        return [
            self._values(prediction, source) for prediction, source in pairs
        ]

    def _values(self, prediction: str, source: str) -> Scores:
        tokenize = TOKENIZERS[self.options.tokenizer]
        if not tokenize(prediction):
            return dict.fromkeys(self.columns, 0.0)
        statistics = extractiveness(source, prediction, tokenize=tokenize)
        return {name: float(getattr(statistics, name)) for name in self.columns}
