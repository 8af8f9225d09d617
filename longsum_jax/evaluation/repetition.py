"""Repetition: distinct and repeated n-grams of a summary."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Literal

from longsum_jax.evaluation.metric import Metric, Scores, check_sizes
from longsum_jax.text.ngrams import TOKENIZERS, ngrams_of


class Repetition(Metric):
    """Unique and repeated n-grams of a summary, in percent.

    unique_n is the number of distinct n-grams over the number of all n-grams,
    so higher means less repetition; repeated_n is the share of distinct n-grams
    that occur more than once (SummEval, Fabbri et al., 2021). The scores of a
    summary without n-grams are 0.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: sizes: words of n-grams; tokenizer: "default" (ROUGE's) or "unicode"."""

        sizes: tuple[int, ...] = (1, 2, 3)
        tokenizer: Literal["default", "unicode"] = "default"

        def __post_init__(self) -> None:
            check_sizes("repetition", self.sizes)

    columns: tuple[str, ...] = (
        "unique_1",
        "unique_2",
        "unique_3",
        "repeated_1",
        "repeated_2",
        "repeated_3",
    )
    reads_references = False
    reads_sources = False
    options: Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        sizes = self.options.sizes
        self.columns = tuple(
            f"{kind}_{size}"
            for kind in ("unique", "repeated")
            for size in sizes
        )

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references, sources
        return [self._shares(prediction) for prediction in predictions]

    def _shares(self, prediction: str) -> Scores:
        words = TOKENIZERS[self.options.tokenizer](prediction)
        shares = dict.fromkeys(self.columns, 0.0)
        for size in self.options.sizes:
            counts = collections.Counter(ngrams_of(words, size))
            if counts:
                repeated = sum(count > 1 for count in counts.values())
                shares[f"unique_{size}"] = 100 * len(counts) / counts.total()
                shares[f"repeated_{size}"] = 100 * repeated / len(counts)
        return shares
