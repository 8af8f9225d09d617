"""Porter's stemmer with the extensions of NLTK."""

import functools
from collections.abc import Callable


def stem(word: str) -> str:
    """Returns the lowercase stem of an English word; other words are unchanged.

    Words with characters beyond ASCII are not stemmed.
    """
    return _stem(word) if word.isascii() else word


@functools.lru_cache(maxsize=1 << 18)
def _stem(word: str) -> str:
    return _porter()(word)


@functools.cache
def _porter() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer().stem
