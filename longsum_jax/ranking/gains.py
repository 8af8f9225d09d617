"""Training targets of a ranker: how much of a reference each sentence of a document contains."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.text.ngrams import count_ngrams, is_latin, unicode_words, words_of

SHRINKAGE = 5.0  # n-grams without a match that every sentence is given


def reference_gains(sentences: Sequence[str], reference: str) -> np.ndarray:
    """Returns float64 [n], the density of ROUGE in each sentence, of mean 0 and deviation 1.

    It is the sum over unigrams and bigrams of hits / (n-grams of the sentence + ``SHRINKAGE``),
    stemmed, where a hit counts no more often than the reference has it. References in other
    scripts than Latin are compared by Unicode words. Under a budget of words the
    densest sentences reach the most of the reference (the greedy rule for knapsacks); the constant
    keeps fragments down that match by chance. Densities are standardised, as they say which
    sentences of one document are better and not how much of the reference is in the document.

    Args:
        sentences: sentences of a document.
        reference: its summary.
    """
    density = np.zeros(len(sentences))
    tokenize = _stemmed_words if is_latin(reference) else unicode_words
    for size in (1, 2):
        texts, wanted = count_ngrams(sentences, [reference], size, tokenize=tokenize)
        most = wanted.dense()[0][texts.ngram]
        hits = np.bincount(texts.text, np.minimum(texts.counts, most), len(sentences))
        density += hits / (texts.total + SHRINKAGE)
    spread = density.std()
    return (density - density.mean()) / spread if spread > 0 else density * 0.0


def _stemmed_words(text: str) -> list[bytes]:
    return words_of(text, stemmer=True)
