"""Selects sentences of a document by a greedy search for ROUGE (AWESOME, appendix D)."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.text.ngrams import NgramCounts, count_ngrams, words_by_script

_TOLERANCE = 1e-12  # equal scores may differ by rounding


def greedy_oracle(sentences: Sequence[str], summary: str) -> list[int]:
    """Selects sentences greedily for ROUGE-1 + ROUGE-2 F1 with a summary.

    Each step adds the best sentence; the search ends when none raises the
    score. Bigrams do not cross the ends of selected sentences, so their order
    does not matter; bigrams of the summary do cross sentence ends. Words are
    not stemmed; they are rouge-score's, or Unicode words if the summary is in a
    non-Latin script.

    Args:
        sentences: sentences of a document.
        summary: reference summary.

    Returns:
        Indices in document order; [] if no sentence shares a word with the
        summary.
    """
    tokenize = words_by_script(summary)
    grams = []
    for size in (1, 2):
        counts = count_ngrams(sentences, [summary], size, tokenize=tokenize)
        grams.append(_IncrementalRouge(*counts))
    selected: list[int] = []
    best = 0.0
    while len(selected) < len(sentences):
        scores = np.sum([gram.scores_after_adding() for gram in grams], axis=0)
        scores[selected] = -1
        sentence = int((scores >= scores.max() - _TOLERANCE).argmax())
        if scores[sentence] <= best + _TOLERANCE:
            break
        best = float(scores[sentence])
        selected.append(sentence)
        for gram in grams:
            gram.add(sentence)
    return sorted(selected)


def recalled_sentences(
    sentences: Sequence[str], summary: str, *, sizes: Sequence[int], room: int
) -> list[int]:
    """Selects sentences greedily for ROUGE-2 recall of a summary, within a length.

    Each step adds the best sentence that still fits; the search ends when none
    raises the recall. Words and bigrams are counted as in ``greedy_oracle``.

    Args:
        sentences: sentences of a document.
        summary: reference summary.
        sizes: length of each sentence, in words or in tokens.
        room: maximum sum of sizes.

    Returns:
        Indices in document order.
    """
    tokenize = words_by_script(summary)
    bigrams = _IncrementalRouge(
        *count_ngrams(sentences, [summary], 2, tokenize=tokenize)
    )
    lengths = np.asarray(sizes)
    selected: list[int] = []
    while len(selected) < len(sentences):
        gains = bigrams.gains()
        gains[selected] = 0
        gains[lengths > room] = 0
        best = int(gains.argmax())
        if not gains[best]:
            break
        selected.append(best)
        bigrams.add(best)
        room -= int(sizes[best])
    return sorted(selected)


class _IncrementalRouge:
    """ROUGE-n of a growing collection of texts against one reference."""

    def __init__(self, texts: NgramCounts, reference: NgramCounts):
        self._texts = texts
        self._wanted = reference.dense()[0]
        self._reference_total = int(reference.total[0])
        self._held = np.zeros_like(self._wanted)
        self._overlap = self._total = 0

    def gains(self) -> np.ndarray:
        """Returns float64 [n]: reference n-grams that each of the texts would add."""
        texts, room = self._texts, np.maximum(self._wanted - self._held, 0)
        counts = np.minimum(texts.counts, room[texts.ngram])
        return np.bincount(texts.text, counts, len(texts.total))

    def scores_after_adding(self) -> np.ndarray:
        """Returns float64 [n]: F1 after adding each of the texts."""
        texts, overlap = self._texts, self._overlap + self.gains()
        return (
            2
            * overlap
            / np.maximum(self._total + texts.total + self._reference_total, 1)
        )

    def add(self, index: int) -> None:
        """Adds a text to the collection."""
        start, stop = np.searchsorted(self._texts.text, [index, index + 1])
        ngrams = self._texts.ngram[start:stop]
        count = self._texts.counts[start:stop]
        room = np.maximum(self._wanted - self._held, 0)
        self._overlap += int(np.minimum(count, room[ngrams]).sum())
        self._held[ngrams] += count
        self._total += int(self._texts.total[index])
