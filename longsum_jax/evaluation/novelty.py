"""Novel n-grams: n-grams of a summary that do not occur in its document."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from longsum_jax.evaluation.metric import Metric, Scores, check_sizes
from longsum_jax.text.ngrams import TOKENIZERS, ngrams_of


class Novelty(Metric):
    """Shares of a summary's distinct n-grams that do not occur in the document, in percent.

    Columns are novel_1, novel_2 and so on. Sets are compared, as in SummEval
    (Fabbri et al., 2021); the score of a summary without n-grams is 0.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: sizes: words of n-grams; tokenizer: "default" (ROUGE's) or "unicode"."""

        sizes: tuple[int, ...] = (1, 2, 3, 4)
        tokenizer: Literal["default", "unicode"] = "default"

        def __post_init__(self) -> None:
            check_sizes("novelty", self.sizes)

    columns: tuple[str, ...] = ("novel_1", "novel_2", "novel_3", "novel_4")
    reads_references = False
    options: Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self.columns = tuple(f"novel_{size}" for size in self.options.sizes)

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        pairs = zip(predictions, sources, strict=True)
        return [
            self._shares(prediction, source) for prediction, source in pairs
        ]

    def _shares(self, prediction: str, source: str) -> Scores:
        tokenize = TOKENIZERS[self.options.tokenizer]
        written = tokenize(prediction)
        read = tokenize(source)
        shares = {}
        for size in self.options.sizes:
            distinct = set(ngrams_of(written, size))
            novel = distinct.difference(ngrams_of(read, size))
            shares[f"novel_{size}"] = 100 * len(novel) / max(len(distinct), 1)
        return shares
