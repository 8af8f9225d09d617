"""The sentences of a document that a perfect extractor would choose (AWESOME, appendix D)."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.text.ngrams import NgramCounts, count_ngrams

_EQUAL = 1e-12  # what two ways to compute the same score may differ by


def greedy_oracle(sentences: Sequence[str], summary: str) -> list[int]:
    """Adds the sentence that raises ROUGE-1 + ROUGE-2 F1 against the summary most, until none
    raises it.

    The chosen sentences are a bag: their bigrams end at their ends, so that the order in which they
    are added or put does not matter. Bigrams of the summary go over the ends of its sentences. No
    stemming.

    Args:
        sentences: of the document.
        summary: the whole reference.

    Returns:
        Indices in document order; none where no sentence shares a word with the summary.
    """
    grams = [_Growing(*count_ngrams(sentences, [summary], n)) for n in (1, 2)]
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < len(sentences):
        scores = sum(gram.scores_with_each() for gram in grams)
        scores[chosen] = -1
        sentence = int((scores >= scores.max() - _EQUAL).argmax())
        if scores[sentence] <= best + _EQUAL:
            break
        best = float(scores[sentence])
        chosen.append(sentence)
        for gram in grams:
            gram.add(sentence)
    return sorted(chosen)


class _Growing:
    """ROUGE-n F1 of a growing bag of texts against one reference."""

    def __init__(self, texts: NgramCounts, reference: NgramCounts):
        self._texts = texts
        self._wanted = reference.dense()[0]
        self._reference_total = int(reference.total[0])
        self._held = np.zeros_like(self._wanted)
        self._overlap = self._total = 0

    def scores_with_each(self) -> np.ndarray:
        """Returns float64 [n], the score with each of the texts added."""
        texts, room = self._texts, np.maximum(self._wanted - self._held, 0)
        gains = np.minimum(texts.count, room[texts.ngram])
        overlap = self._overlap + np.bincount(texts.text, gains, len(texts.total))
        return 2 * overlap / np.maximum(self._total + texts.total + self._reference_total, 1)

    def add(self, index: int) -> None:
        own = slice(*np.searchsorted(self._texts.text, [index, index + 1]))
        ngrams, count = self._texts.ngram[own], self._texts.count[own]
        self._overlap += int(
            np.minimum(count, np.maximum(self._wanted - self._held, 0)[ngrams]).sum()
        )
        self._held[ngrams] += count
        self._total += int(self._texts.total[index])
