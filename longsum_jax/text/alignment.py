"""Aligns the sentences of a summary with the sentences of its document that support them.

Example of the greedy search for one summary sentence (here by words, all of
weight 1/5):

    summary     the repair took twelve months
    document    s0  the repair was long         covers: the repair           gain 2/5
                s1  it took twelve months       covers: took twelve months   gain 3/5   chosen first
                s2  months later                covers: months               gain 1/5

    after s1    s0 gains 2/5, s2 nothing more   -> s0 chosen, the sentence is covered completely
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.text.ngrams import (
    NgramCounts,
    Tokenize,
    count_ngrams,
    unicode_words,
)

SIZES = (1, 2)  # words of the n-grams
MAX_SOURCES = 3  # maximum sentences of the document per summary sentence
# Minimum share of a sentence that each source adds, and minimum share that
# counts as supported. The values are the best ones in studies/sources.py.
MIN_GAIN = 0.15
SUPPORTED = 0.2
_TOLERANCE = 1e-12  # equal gains may differ by rounding


class Support(NamedTuple):
    """The sentences of a document that support one sentence of a summary.

    Attributes:
        indices: indices of the document's sentences, in the order of selection.
        scores: share of the summary sentence that each of them adds, from 0 to
            1.
    """

    indices: list[int]
    scores: list[float]

    @property
    def total(self) -> float:
        """The share of the summary sentence that all sources cover together, from 0 to 1."""
        return sum(self.scores)

    @property
    def is_supported(self) -> bool:
        """True if the share is at least ``SUPPORTED``."""
        return self.total >= SUPPORTED


def align(
    summary_sentences: Sequence[str],
    source_sentences: Sequence[str],
    *,
    tokenize: Tokenize = unicode_words,
    max_sources: int = MAX_SOURCES,
    min_gain: float = MIN_GAIN,
) -> list[Support]:
    """Finds the sentences of a document that support each sentence of its summary.

    The covered share of a summary sentence is the mean of its weighted ROUGE-1
    and ROUGE-2 recall over distinct n-grams. An n-gram has the weight ln((1 +
    n) / (1 + df)) + 1 (smoothed inverse document frequency), where df of the n
    sentences of the document contain it, so that frequent words count little,
    and words absent from the document count most. Greedily, the sentence is
    added that raises the share most; ties go to the first one.

    Sentences without shared words have no support. The best sentence is
    returned even if it covers little; ``Support.is_supported`` is True if all
    of them together cover enough.

    Args:
        summary_sentences, source_sentences: sentences as returned by
            ``split_sentences``.
        tokenize: function that splits a text into words.
        max_sources: maximum sentences of the document per summary sentence.
        min_gain: minimum share added by each sentence after the first.
    """
    tokenize = functools.cache(tokenize)  # called again for every n-gram size
    indexes = [
        _Index(source_sentences, summary_sentences, size, tokenize)
        for size in SIZES
    ]
    return [
        _support(
            [index.of(sentence) for index in indexes], max_sources, min_gain
        )
        for sentence in range(len(summary_sentences))
    ]


class _Shared(NamedTuple):
    """The n-grams of one summary sentence, and the document's sentences that contain them.

    Attributes:
        weight: float [n-grams], weights of the n-grams.
        sentence, ngram: int [pairs], a sentence of the document and an n-gram
            in it.
    """

    weight: np.ndarray
    sentence: np.ndarray
    ngram: np.ndarray


class _Index:
    """An inverted index: the sentences of a document by the n-grams of its summary."""

    def __init__(
        self,
        source: Sequence[str],
        summary: Sequence[str],
        size: int,
        tokenize: Tokenize,
    ) -> None:
        held, self._wanted = count_ngrams(
            source, summary, size, tokenize=tokenize
        )
        # n-gram by n-gram
        self._sentences = held.text[np.argsort(held.ngram, kind="stable")]
        frequency = np.bincount(held.ngram, minlength=held.size)
        self._ends = np.cumsum(frequency)
        self._frequency = frequency
        self._weight = np.log((1 + len(source)) / (1 + frequency)) + 1

    def of(self, sentence: int) -> _Shared:
        """Returns the n-grams of a summary sentence and the document's sentences with them."""
        ngrams = _ngrams_of(self._wanted, sentence)
        ends, frequency = self._ends[ngrams], self._frequency[ngrams]
        gathered = [
            self._sentences[end - count : end]
            for end, count in zip(ends, frequency, strict=True)
        ]
        return _Shared(
            self._weight[ngrams],
            np.concatenate([np.zeros(0, np.int64), *gathered]),
            np.repeat(np.arange(len(ngrams)), frequency),
        )


def _ngrams_of(counts: NgramCounts, text: int) -> np.ndarray:
    start, stop = np.searchsorted(counts.text, [text, text + 1])
    return counts.ngram[start:stop]


def _support(
    shared: Sequence[_Shared], max_sources: int, min_gain: float
) -> Support:
    """Greedily selects the sentences of the document that support a summary sentence.

    Args:
        shared: n-grams of the summary sentence, by size.
        max_sources, min_gain: see ``align``.
    """
    present = [
        ngrams_of_sentence
        for ngrams_of_sentence in shared
        if len(ngrams_of_sentence.weight)
    ]
    indices: list[int] = []
    scores: list[float] = []
    if not present:
        return Support(indices, scores)
    # One list of n-grams of all sizes, whose weights sum to 1.
    offsets = np.cumsum([0, *(len(entry.weight) for entry in present)])
    sentence = np.concatenate([entry.sentence for entry in present])
    ngrams = [
        entry.ngram + offset
        for entry, offset in zip(present, offsets, strict=False)
    ]
    ngram = np.concatenate(ngrams)
    normalized = [entry.weight / entry.weight.sum() for entry in present]
    weight = np.concatenate(normalized) / len(present)
    while len(indices) < max_sources and len(sentence):
        gains = np.bincount(sentence, weight[ngram])
        best = int((gains >= gains.max() - _TOLERANCE).argmax())
        if gains[best] <= (min_gain if indices else 0):
            break
        indices.append(best)
        scores.append(float(gains[best]))
        weight[ngram[sentence == best]] = 0  # covered n-grams add nothing again
    return Support(indices, scores)
