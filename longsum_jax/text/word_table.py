"""Numbers the words of a document, counts them by sentence, and weights the counts by TF-IDF."""

import collections
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.text.ngrams import unicode_words

# Columns of TF-IDF vectors. Documents with at most as many distinct words are
# exact.
_TFIDF_WIDTH = 1024


class WordTable(NamedTuple):
    """The words of a document in order, and their sparse counts by sentence.

    Attributes:
        ids: int [words], id of every word; ids are assigned in order of
            appearance.
        rows: int [words], index of the sentence of every word, ascending.
        row, word, counts: int [pairs], one entry for each sentence and word in
            it, ordered by both.
        names: distinct words by id.
        num_sentences: number of sentences, with or without words.
    """

    ids: np.ndarray
    rows: np.ndarray
    row: np.ndarray
    word: np.ndarray
    counts: np.ndarray
    names: list[str]
    num_sentences: int

    @property
    def size(self) -> int:
        """The number of distinct words; at least 1, so that tables have a column."""
        return max(len(self.names), 1)

    def by_sentence(self, values: np.ndarray) -> np.ndarray:
        """Returns float64 [sentences], sums of one value per pair."""
        return np.bincount(self.row, values, self.num_sentences).astype(
            np.float64, copy=False
        )

    def by_word(self, values: np.ndarray) -> np.ndarray:
        """Returns float64 [size], sums of one value per pair."""
        return np.bincount(self.word, values, self.size).astype(
            np.float64, copy=False
        )

    def inverse_frequencies(self) -> np.ndarray:
        """Returns float64 [size], ln((1 + n) / (1 + df)) + 1: smoothed inverse frequencies.

        Each word is in df of the n sentences.
        """
        frequency = np.bincount(self.word, minlength=self.size)
        return np.log((1 + self.num_sentences) / (1 + frequency)) + 1


def word_table(
    sentences: Sequence[str],
    words_of: Callable[[str], Sequence[str]],
    stem: Callable[[str], str] | None = None,
) -> WordTable:
    """Returns the words of sentences.

    Args:
        sentences: sentences of a document.
        words_of: function that splits a sentence into words.
        stem: function that maps a word to its stem, called once per distinct
            word; None for the word itself.
    """
    words = [words_of(sentence) for sentence in sentences]
    numbers: dict[str, int] = collections.defaultdict(
        itertools.count().__next__
    )
    number_of = numbers
    if stem is not None:
        distinct = dict.fromkeys(itertools.chain.from_iterable(words))
        number_of = {word: numbers[stem(word)] for word in distinct}
    ids = np.fromiter(
        map(number_of.__getitem__, itertools.chain.from_iterable(words)),
        np.int64,
    )
    rows = np.repeat(np.arange(len(words)), [len(line) for line in words])
    size = max(len(numbers), 1)
    pairs, counts = np.unique(rows * size + ids, return_counts=True)
    row, word = np.divmod(pairs, size)
    return WordTable(ids, rows, row, word, counts, list(numbers), len(words))


def tfidf_vectors(
    sentences: Sequence[str], width: int = _TFIDF_WIDTH
) -> np.ndarray:
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
