"""Sentence vectors without weights: TF-IDF over the words of one document."""

import collections
import itertools
from collections.abc import Sequence

import numpy as np

from longsum_jax.text.ngrams import words_of

WIDTH = 1024  # columns: documents with at most as many distinct words are exact


def tfidf_vectors(sentences: Sequence[str], width: int = WIDTH) -> np.ndarray:
    """Returns TF-IDF vectors of the sentences of a document, to be compared by cosine.

    The weight of a word is its count in the sentence times ln((1 + n) / (1 + df)) + 1, where df of
    the n sentences hold it (smoothed inverse document frequency). Words are numbered in order of
    appearance and share columns modulo ``width``, which bounds the table for whole books; words of
    one passage rarely collide.

    Returns:
        float32 [n, width or fewer]; zeros for a sentence without words.
    """
    numbers = collections.defaultdict(itertools.count().__next__)
    words = [words_of(sentence) for sentence in sentences]
    ids = np.fromiter(map(numbers.__getitem__, itertools.chain.from_iterable(words)), np.int64)
    rows = np.repeat(np.arange(len(words)), [len(line) for line in words])
    size = max(len(numbers), 1)
    pairs, count = np.unique(rows * size + ids, return_counts=True)
    row, word = np.divmod(pairs, size)
    frequency = np.bincount(word, minlength=size)
    weight = count * (np.log((1 + len(words)) / (1 + frequency)) + 1)[word]
    table = np.zeros((len(words), min(size, width)), np.float32)
    np.add.at(table, (row, word % width), weight.astype(np.float32))
    return table
