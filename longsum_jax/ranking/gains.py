"""Training targets of a ranker: overlap of each sentence of a document with a reference."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.text.ngrams import (
    count_ngrams,
    is_latin,
    unicode_words,
    words_of,
)

SHRINKAGE = 5.0  # n-grams without a match added to every sentence


def reference_gains(sentences: Sequence[str], reference: str) -> np.ndarray:
    """Returns float64 [n], the density of ROUGE in each sentence, with mean 0 and deviation 1.

    The density is the sum over unigrams and bigrams of hits / (n-grams of the
    sentence + ``SHRINKAGE``), stemmed; hits are clipped to the counts in the
    reference. References in non-Latin scripts are compared by Unicode words.
    Under a word budget, the densest sentences cover the most of the reference
    (the greedy rule for knapsacks); the constant penalizes fragments that match
    by chance. Densities are standardized, because they compare sentences of one
    document, not documents.

    Args:
        sentences: sentences of a document.
        reference: summary of the document.
    """
    density = np.zeros(len(sentences))
    tokenize = _stemmed_words if is_latin(reference) else unicode_words
    for size in (1, 2):
        texts, expected = count_ngrams(
            sentences, [reference], size, tokenize=tokenize
        )
        most = expected.dense()[0][texts.ngram]
        hits = np.bincount(
            texts.text, np.minimum(texts.counts, most), len(sentences)
        )
        density += hits / (texts.total + SHRINKAGE)
    spread = density.std()
    if spread > 0:
        return (density - density.mean()) / spread
    return density * 0.0


def _stemmed_words(text: str) -> list[bytes]:
    return words_of(text, stemmer=True)
