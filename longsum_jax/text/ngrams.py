"""The words and n-grams that ROUGE counts, for many texts against one reference at a time."""

import collections
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Turns every byte of lower-case UTF-8 but a-z and 0-9 into a space: rouge-score's words, without
# stemming.
_KEEP_WORDS = bytes(
    byte if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789" else 32 for byte in range(256)
)


def words_of(text: str) -> list[bytes]:
    """Returns the words of ``text`` as rouge-score has them, without stemming."""
    return text.lower().encode(errors="replace").translate(_KEEP_WORDS).split()


class NgramCounts(NamedTuple):
    """Sparse counts of n-grams: one entry for each pair of a text and an n-gram of it that is in
    the vocabulary."""

    text: np.ndarray  # [P] int, which text, ascending
    ngram: np.ndarray  # [P] int, which n-gram of the vocabulary
    count: np.ndarray  # [P] int, how often the n-gram stands in the text
    total: np.ndarray  # [n] int, n-grams of each text, in the vocabulary or not
    size: int  # of the vocabulary

    def dense(self) -> np.ndarray:
        """Returns int64 [n, size]."""
        table = np.zeros((len(self.total), self.size), np.int64)
        table[self.text, self.ngram] = self.count
        return table


def count_ngrams(
    texts: Sequence[str], others: Sequence[str], n: int
) -> tuple[NgramCounts, NgramCounts]:
    """Counts the n-grams of two lists of texts; the vocabulary are those of ``others``.

    An n-gram does not go from one text into the next.
    """
    numbers = collections.defaultdict(itertools.count().__next__)  # numbers words as they come
    ids, owners = _numbered(others, numbers)
    size = len(numbers)
    numbers.default_factory = lambda: size  # one number for all words that the others lack
    codes, owners = _ngrams(ids, owners, n, size + 1)
    vocabulary = np.unique(codes)
    text_codes, text_owners = _ngrams(*_numbered(texts, numbers), n, size + 1)
    return _counts(text_codes, text_owners, vocabulary, len(texts)), _counts(
        codes, owners, vocabulary, len(others)
    )


def _numbered(texts: Sequence[str], numbers: dict[bytes, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of every word and of its text, int64 [words]."""
    words = [words_of(text) for text in texts]
    ids = np.fromiter(map(numbers.__getitem__, itertools.chain.from_iterable(words)), np.int64)
    return ids, np.repeat(np.arange(len(texts)), [len(line) for line in words])


def _ngrams(
    ids: np.ndarray, owners: np.ndarray, n: int, base: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a number for every n-gram of words that belong to one text, and the number of the
    text."""
    length = max(len(ids) - n + 1, 0)
    codes = np.zeros(length, np.int64)
    for offset in range(n):
        codes = codes * base + ids[offset : offset + length]
    whole = owners[:length] == owners[n - 1 :][:length]
    return codes[whole], owners[:length][whole]


def _counts(
    codes: np.ndarray, owners: np.ndarray, vocabulary: np.ndarray, num_texts: int
) -> NgramCounts:
    size = max(len(vocabulary), 1)
    index = np.minimum(np.searchsorted(vocabulary, codes), size - 1)
    known = vocabulary[index] == codes if len(vocabulary) else np.zeros(len(codes), bool)
    pairs, count = np.unique(owners[known] * size + index[known], return_counts=True)
    return NgramCounts(
        pairs // size, pairs % size, count, np.bincount(owners, minlength=num_texts), size
    )
