"""Finds the sentences of a document that the sentences of a summary rest on, by shared n-grams."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.text.ngrams import NgramCounts, Tokenize, count_ngrams, unicode_words

SIZES = (1, 2)  # words of the n-grams
MAX_SOURCES = 3  # sentences of the document for one of the summary
# The share of a sentence that each of them adds, and the share from which on a document is said to
# support a sentence: those that do best in benchmarks/sources.py.
MIN_GAIN = 0.15
SUPPORTED = 0.2
_TOLERANCE = 1e-12  # equal gains may differ by rounding


class Support(NamedTuple):
    """What one sentence of a summary rests on.

    Attributes:
        indices: of sentences of the document, in the order in which they were chosen.
        scores: the share of the sentence that each of them adds, from 0 to 1.
    """

    indices: list[int]
    scores: list[float]

    @property
    def total(self) -> float:
        """The share of the sentence that all of them hold, from 0 to 1."""
        return sum(self.scores)

    @property
    def is_supported(self) -> bool:
        """Whether the share is at least ``SUPPORTED``."""
        return self.total >= SUPPORTED


def align(
    summary_sentences: Sequence[str],
    source_sentences: Sequence[str],
    *,
    tokenize: Tokenize = unicode_words,
    max_sources: int = MAX_SOURCES,
    min_gain: float = MIN_GAIN,
) -> list[Support]:
    """Returns for every sentence of a summary the sentences of its document that it rests on.

    The share of a sentence that others hold is the mean of its weighted ROUGE-1 and ROUGE-2 recall:
    of its distinct words and of its distinct pairs of words. An n-gram weighs
    ln((1 + n) / (1 + df)) + 1, where df of the n sentences of the document hold it, so that words
    which are everywhere say little, and those which the document lacks say most. Greedily, the
    sentence is added that raises the share most, the first one of several.

    Where nothing is shared, or there are no words, nothing is found. The first sentence is named
    even if it holds little; ``Support.is_supported`` tells whether all of them hold enough.

    Args:
        summary_sentences, source_sentences: as ``split_sentences`` gives them.
        tokenize: makes words of a text.
        max_sources: sentences of the document for one of the summary.
        min_gain: the share that each but the first has to add.
    """
    tokenize = functools.cache(tokenize)  # which every size of n-grams asks for
    indexes = [_Index(source_sentences, summary_sentences, size, tokenize) for size in SIZES]
    return [
        _support([index.of(sentence) for index in indexes], max_sources, min_gain)
        for sentence in range(len(summary_sentences))
    ]


class _Shared(NamedTuple):
    """The n-grams of one sentence of a summary, and where they stand in the document.

    Attributes:
        weight: [n-grams].
        sentence, ngram: [P], pairs of a sentence of the document and an n-gram in it.
    """

    weight: np.ndarray
    sentence: np.ndarray
    ngram: np.ndarray


class _Index:
    """Finds the sentences of a document that hold the n-grams of a summary's sentences."""

    def __init__(
        self, source: Sequence[str], summary: Sequence[str], size: int, tokenize: Tokenize
    ) -> None:
        held, self._wanted = count_ngrams(source, summary, size, tokenize=tokenize)
        self._sentences = held.text[np.argsort(held.ngram, kind="stable")]  # n-gram by n-gram
        frequency = np.bincount(held.ngram, minlength=held.size)
        self._ends = np.cumsum(frequency)
        self._frequency = frequency
        self._weight = np.log((1 + len(source)) / (1 + frequency)) + 1

    def of(self, sentence: int) -> _Shared:
        """Returns what the document shares with a sentence of the summary."""
        ngrams = _ngrams_of(self._wanted, sentence)
        ends, frequency = self._ends[ngrams], self._frequency[ngrams]
        found = [
            self._sentences[end - count : end] for end, count in zip(ends, frequency, strict=True)
        ]
        return _Shared(
            self._weight[ngrams],
            np.concatenate([np.zeros(0, np.int64), *found]),
            np.repeat(np.arange(len(ngrams)), frequency),
        )


def _ngrams_of(counts: NgramCounts, text: int) -> np.ndarray:
    start, stop = np.searchsorted(counts.text, [text, text + 1])
    return counts.ngram[start:stop]


def _support(shared: Sequence[_Shared], max_sources: int, min_gain: float) -> Support:
    """Chooses sentences of the document for one of the summary, whose n-grams are given by size."""
    present = [each for each in shared if len(each.weight)]
    indices: list[int] = []
    scores: list[float] = []
    if not present:
        return Support(indices, scores)
    offsets = np.cumsum([0, *(len(each.weight) for each in present)])
    sentence = np.concatenate([each.sentence for each in present])
    ngram = np.concatenate(
        [each.ngram + offset for each, offset in zip(present, offsets, strict=False)]
    )
    weight = np.concatenate([each.weight / each.weight.sum() for each in present]) / len(present)
    while len(indices) < max_sources and len(sentence):
        gains = np.bincount(sentence, weight[ngram])
        best = int((gains >= gains.max() - _TOLERANCE).argmax())
        if gains[best] <= (min_gain if indices else 0):
            break
        indices.append(best)
        scores.append(float(gains[best]))
        weight[ngram[sentence == best]] = 0
    return Support(indices, scores)
