"""Sentence vectors without weights: TF-IDF over the words of one document."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.text.ngrams import unicode_words
from longsum_jax.text.word_table import word_table

WIDTH = 1024  # columns: documents with at most as many distinct words are exact


def tfidf_vectors(sentences: Sequence[str], width: int = WIDTH) -> np.ndarray:
    """Returns TF-IDF vectors of the sentences of a document, for comparison by cosine.

    The weight of a word is its count in the sentence times ln((1 + n) / (1 +
    df)) + 1, where df of the n sentences contain it (smoothed inverse document
    frequency). Words are ``unicode_words``, numbered in order of appearance,
    and share columns modulo ``width``, which limits the table size for whole
    books; words of one passage rarely collide.

    Args:
        sentences: the n sentences of the document.
        width: maximum number of columns.

    Returns:
        float32 [n, width or fewer]; zeros for a sentence without words.
    """
    words = word_table(sentences, unicode_words)
    weight = words.counts * words.inverse_frequencies()[words.word]
    vectors = np.zeros(
        (words.num_sentences, min(words.size, width)), np.float32
    )
    np.add.at(
        vectors, (words.row, words.word % width), weight.astype(np.float32)
    )
    return vectors
