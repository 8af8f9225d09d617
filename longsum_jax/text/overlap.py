"""The overlap of evaluation documents with training documents, in shared n-grams of words.

A document that shares an n-gram of 13 words with the training data is usually
counted as seen in training (Brown et al. 2020, "Language Models are Few-Shot
Learners", appendix C).
"""

from collections.abc import Iterable

import numpy as np

from longsum_jax.text.ngrams import unicode_words

# An odd number with random bits: powers of it make n-grams of the same words in
# another order differ.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class NgramOverlap:
    """The n-grams of some evaluation texts, and which of them occur elsewhere.

    Words are compared in lower case, without punctuation. N-grams are compared
    by hashes of 64 bits, up to 17 bytes of memory for each.

    Args:
        texts: evaluation texts.
        size: number of words of an n-gram.
    """

    def __init__(self, texts: Iterable[str], size: int = 13) -> None:
        self._size = size
        codes = [_ngram_codes(text, size) for text in texts]
        self._lengths = [len(row) for row in codes]
        together = np.concatenate([np.zeros(0, np.uint64), *codes])
        self._codes, self._positions = np.unique(together, return_inverse=True)
        self._are_shared = np.zeros(len(self._codes), bool)

    def add(self, text: str) -> None:
        """Marks the n-grams of a training text as shared."""
        codes = _ngram_codes(text, self._size)
        if not len(self._codes):
            return
        nearest = np.searchsorted(self._codes, codes)
        nearest = np.minimum(nearest, len(self._codes) - 1)
        self._are_shared[nearest[self._codes[nearest] == codes]] = True

    def shares(self) -> list[float]:
        """Returns the share of n-grams of each text that are shared; 0 for a text without any."""
        ends = np.cumsum(self._lengths, dtype=np.int64)
        # The part after the last end is empty.
        rows = np.split(self._are_shared[self._positions], ends)[:-1]
        return [float(row.mean()) if len(row) else 0.0 for row in rows]


def _ngram_codes(text: str, size: int) -> np.ndarray:
    """Returns uint64 [n-grams], the hash of every n-gram of a text, valid in this process."""
    words = [hash(word) for word in unicode_words(text)]
    codes = np.array(words, np.int64).astype(np.uint64)
    num_ngrams = max(0, len(words) - size + 1)
    ngrams = np.zeros(num_ngrams, np.uint64)
    for offset in range(size):
        ngrams = ngrams * _FACTOR + codes[offset : offset + num_ngrams]
    return ngrams
