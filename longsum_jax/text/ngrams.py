"""Splits texts into the words of ROUGE, stems them (Porter with the extensions of NLTK), and counts
n-grams of many texts at a time.
"""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Tokenize = Callable[[str], Sequence[Hashable]]

# A table for bytes.translate that replaces all except a-z and 0-9 by spaces, as
# rouge-score does.
_KEEP_WORDS = bytes(
    byte if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789" else 32
    for byte in range(256)
)

_OTHER_LETTER = re.compile(
    r"[^\W\d_\x00-\u024f\u1e00-\u1eff]"
)  # outside the blocks of Latin letters

# Letters of scripts without spaces between words.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3041-\u3096\u309d-\u309f"  # Hiragana
    "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Katakana
    "\U0001aff0-\U0001b167"  # rare letters of both
    # Chinese
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
# and vowel signs, punctuation
_MARKED_LETTER = re.compile(rf"[^\w\s]?[{_UNSPACED}][^\w\s]*")
_WORD = re.compile(
    rf"{_MARKED_LETTER.pattern}|(?:(?!{_MARKED_LETTER.pattern})\S)+"
)


def words_of(text: str, *, stemmer: bool = False) -> list[bytes]:
    """Returns the words of a text as rouge-score splits them: runs of a-z and 0-9, in lower case.

    Args:
        text: text of any length.
        stemmer: True to stem the words (Porter).
    """
    words = text.lower().encode(errors="replace").translate(_KEEP_WORDS).split()
    if stemmer:
        return [_stem(word) for word in words]
    return words


def _stem(word: bytes) -> bytes:
    """Returns the stem of a word; words of up to three letters are unchanged, as in rouge-score."""
    if len(word) > 3:
        return stem(word.decode()).encode()
    return word


def unicode_words(text: str) -> list[str]:
    """Returns the words of ``text`` in any script; for ASCII texts the result of ``words_of``.

    Words are runs of letters, digits and combining marks, after case folding
    and compatibility composition (NFKC). In scripts without spaces between
    words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) every letter is a word.
    """
    if text.isascii():
        return text.lower().encode().translate(_KEEP_WORDS).decode().split()
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_SPACED).split()


def is_unspaced_letter(word: str) -> bool:
    """Returns True for a letter of a script without spaces between words."""
    return len(word) == 1 and _UNSPACED_LETTER.match(word) is not None


def is_latin(text: str) -> bool:
    """Returns True if at most a quarter of the letters of a text are from non-Latin scripts.

    ``words_of`` then finds its words. Texts without letters count as Latin.
    """
    if text.isascii():
        return True
    num_letters = sum(map(str.isalpha, text))
    return 4 * len(_OTHER_LETTER.findall(text)) <= num_letters


def num_words(text: str) -> int:
    """Returns the number of words separated by white space, for lengths in words.

    In scripts without spaces between words every letter is a word, as in
    ``unicode_words`` and in word processors. Marks next to a letter belong to
    it.
    """
    if text.isascii():
        return len(text.split())
    rest, letters = _MARKED_LETTER.subn(" ", text)
    return letters + len(rest.split())


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns the start and end of the words that ``num_words`` counts."""
    return [match.span() for match in _WORD.finditer(text)]


class _Spaced(dict[int, str]):
    """A table for str.translate, filled lazily.

    It maps characters outside of words to a space, and surrounds characters
    that are words with spaces.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char)[0] not in "LMN":
            replacement = " "
        elif _UNSPACED_LETTER.match(char):
            replacement = f" {char} "
        else:
            replacement = char
        self[code] = replacement
        return replacement


_SPACED = _Spaced()

# Tokenizers by the name used in options.
TOKENIZERS: Mapping[str, Tokenize] = {
    "default": words_of,
    "unicode": unicode_words,
}


def words_by_script(*texts: str) -> Tokenize:
    """Returns the tokenizer for texts: rouge-score's if all are in Latin script, else Unicode."""
    return words_of if all(map(is_latin, texts)) else unicode_words


def ngrams_of(words: Sequence[Hashable], size: int) -> Iterable[Hashable]:
    """Returns the n-grams of a text in order, as tuples; for size 1, the words themselves.

    Args:
        words: words of the text.
        size: number of words of an n-gram.
    """
    if size == 1:
        return words
    return zip(*(words[start:] for start in range(size)), strict=False)


class NgramCounts(NamedTuple):
    """Sparse counts of n-grams: one entry for each pair of a text and an n-gram in it.

    Attributes:
        text: int [P], index of the text, ascending.
        ngram: int [P], index of the n-gram in the vocabulary.
        counts: int [P], number of occurrences of the n-gram in the text.
        total: int [n], number of n-grams of each text, in the vocabulary or
            not.
        size: number of n-grams in the vocabulary.
    """

    text: np.ndarray
    ngram: np.ndarray
    counts: np.ndarray
    total: np.ndarray
    size: int

    def dense(self) -> np.ndarray:
        """Returns the counts as a table, int64 [n, size]."""
        table = np.zeros((len(self.total), self.size), np.int64)
        table[self.text, self.ngram] = self.counts
        return table


def count_ngrams(
    texts: Sequence[str],
    others: Sequence[str],
    n: int,
    *,
    tokenize: Tokenize = words_of,
) -> tuple[NgramCounts, NgramCounts]:
    """Counts the n-grams of two lists of texts; the vocabulary is the n-grams of ``others``.

    N-grams do not cross text boundaries.

    Args:
        texts, others: the two lists of texts.
        n: number of words of an n-gram.
        tokenize: function that splits a text into words.

    Returns:
        The counts of ``texts`` and of ``others``.
    """
    # Ids of words, in order of appearance.
    word_ids: collections.defaultdict[Hashable, int] = collections.defaultdict(
        itertools.count().__next__
    )
    ids, owners = _numbered(others, word_ids, tokenize)
    size = len(word_ids)
    # All words absent from the others share one id.
    word_ids.default_factory = itertools.repeat(size).__next__
    codes, owners = _ngrams(ids, owners, n, size + 1)
    vocabulary = np.unique(codes)
    text_codes, text_owners = _ngrams(
        *_numbered(texts, word_ids, tokenize), n, size + 1
    )
    counts = _counts(text_codes, text_owners, vocabulary, len(texts))
    return counts, _counts(codes, owners, vocabulary, len(others))


def _numbered(
    texts: Sequence[str], word_ids: dict[Hashable, int], tokenize: Tokenize
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the id of every word and the index of its text, int64 [words] each."""
    words = [tokenize(text) for text in texts]
    ids = np.fromiter(
        map(word_ids.__getitem__, itertools.chain.from_iterable(words)),
        np.int64,
    )
    return ids, np.repeat(np.arange(len(texts)), [len(line) for line in words])


def _ngrams(
    ids: np.ndarray, owners: np.ndarray, n: int, base: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a code for every n-gram inside a text, and the index of the text.

    A code is a number whose digits in the given base are the n-gram's word ids.
    """
    length = max(len(ids) - n + 1, 0)
    codes = np.zeros(length, np.int64)
    for offset in range(n):
        codes = codes * base + ids[offset : offset + length]
    inside = owners[:length] == owners[n - 1 :][:length]
    return codes[inside], owners[:length][inside]


def _counts(
    codes: np.ndarray,
    owners: np.ndarray,
    vocabulary: np.ndarray,
    num_texts: int,
) -> NgramCounts:
    size = max(len(vocabulary), 1)
    index = np.minimum(np.searchsorted(vocabulary, codes), size - 1)
    if len(vocabulary):
        is_known = vocabulary[index] == codes
    else:
        is_known = np.zeros(len(codes), bool)
    pairs, counts = np.unique(
        owners[is_known] * size + index[is_known], return_counts=True
    )
    return NgramCounts(
        pairs // size,
        pairs % size,
        counts,
        np.bincount(owners, minlength=num_texts),
        size,
    )


def stem(word: str) -> str:
    """Returns the lowercase stem of an English word; other words are unchanged.

    Words with characters beyond ASCII are not stemmed.
    """
    return _cached_stem(word) if word.isascii() else word


@functools.lru_cache(maxsize=1 << 18)
def _cached_stem(word: str) -> str:
    return _porter()(word)


@functools.cache
def _porter() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer().stem
