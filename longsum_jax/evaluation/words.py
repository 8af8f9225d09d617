"""Metrics of the words of a summary and its document: copies, novelty, repetition, support."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from longsum_jax.errors import InputError, check_whole
from longsum_jax.evaluation.metric import (
    PairMetric,
    Scores,
    WordMetric,
    check_sizes,
)
from longsum_jax.text.extractive import (
    NUM_SHARES,
    extractiveness,
    salient_ngrams,
)
from longsum_jax.text.ngrams import TOKENIZERS, ngrams_of
from longsum_jax.text.support import find_statements


class ExtractivenessMetric(WordMetric):
    """Extractive coverage and density, and compression ratio (Grusky et al., 2018).

    coverage is the share of the summary's words in fragments shared with the
    document, from 0 to 1; density the mean length of a word's fragment, in
    words; compression the ratio of the document's to the summary's words. See
    ``text.extractive.fragments``. A summary without words has 0 for each.
    """

    columns = ("coverage", "density", "compression")
    reads_references = False

    def compare(self, prediction: str, other: str) -> Scores:
        tokenize = TOKENIZERS[self.options.tokenizer]
        if not tokenize(prediction):
            return dict.fromkeys(self.columns, 0.0)
        statistics = extractiveness(other, prediction, tokenize=tokenize)
        return {name: float(getattr(statistics, name)) for name in self.columns}


class Novelty(PairMetric):
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

    def compare(self, prediction: str, other: str) -> Scores:
        tokenize = TOKENIZERS[self.options.tokenizer]
        written = tokenize(prediction)
        read = tokenize(other)
        shares = {}
        for size in self.options.sizes:
            distinct = set(ngrams_of(written, size))
            novel = distinct.difference(ngrams_of(read, size))
            shares[f"novel_{size}"] = 100 * len(novel) / max(len(distinct), 1)
        return shares


class Repetition(PairMetric):
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

    def compare(self, prediction: str, other: str) -> Scores:
        del other
        words = TOKENIZERS[self.options.tokenizer](prediction)
        shares = dict.fromkeys(self.columns, 0.0)
        for size in self.options.sizes:
            counts = collections.Counter(ngrams_of(words, size))
            if counts:
                repeated = sum(count > 1 for count in counts.values())
                shares[f"unique_{size}"] = 100 * len(counts) / counts.total()
                shares[f"repeated_{size}"] = 100 * repeated / len(counts)
        return shares


class LengthMetric(WordMetric):
    """Words of a summary, and their ratio to the words of the reference: 1 for equal lengths.

    The ratio to a reference without words is 0.
    """

    columns = ("summary_words", "length_ratio")
    reads_sources = False

    def compare(self, prediction: str, other: str) -> Scores:
        tokenize = TOKENIZERS[self.options.tokenizer]
        words = len(tokenize(prediction))
        reference_words = len(tokenize(other))
        if reference_words:
            ratio = words / reference_words
        else:
            ratio = 0.0
        return {"summary_words": float(words), "length_ratio": ratio}


class Salience(PairMetric):
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

    def from_means(self, means: Mapping[str, Any]) -> dict[str, Any]:
        # percentage of summaries that have a curve
        last = means[self.columns[-1]]
        share = np.where(last > 0, last, 100) / 100
        return {name: means[name] / share for name in self.columns}

    def compare(self, prediction: str, other: str) -> Scores:
        curve = salient_ngrams(
            other,
            prediction,
            size=self.options.size,
            num_shares=self.options.shares,
            tokenize=TOKENIZERS[self.options.tokenizer],
        )
        if curve is None:
            return dict.fromkeys(self.columns, 0.0)
        return dict(zip(self.columns, (100 * curve).tolist(), strict=True))


class SupportMetric(PairMetric):
    """Support of the sentences of a summary by its document, measured by shared n-grams.

    supported_sentences is the percentage of sentences that the document
    sufficiently supports, held_by_document the mean percentage of their words
    in the document (``text.alignment``), and missing_entities the number of
    names, numbers and dates that are not in the document
    (``text.support.find_flags``). A summary without sentences has 0 for each.
    """

    columns = ("supported_sentences", "held_by_document", "missing_entities")
    reads_references = False

    def compare(self, prediction: str, other: str) -> Scores:
        statements = find_statements(prediction, other)
        if not statements:
            return dict.fromkeys(self.columns, 0.0)
        missing = [
            flag
            for statement in statements
            for flag in statement.flags
            if flag.missing == "document"
        ]
        supported = [statement.is_supported for statement in statements]
        support = [statement.support for statement in statements]
        return {
            "supported_sentences": 100 * float(np.mean(supported)),
            "held_by_document": 100 * float(np.mean(support)),
            "missing_entities": float(len(missing)),
        }
