"""Extractive baselines: the beginning of a document, and random sentences.

Both select sentences until the requested length is reached: the last sentence
is the one with which the number of words reaches ``num_words``. So at least one
sentence is selected, and all of a short document. Text without punctuation is
cut into pieces, which count as sentences. For a fair comparison, use the mean
length of the reference summaries.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.text import ngrams
from longsum_jax.text.sentences import bounded_sentences


def lead(
    document: str,
    *,
    num_words: int | None = None,
    num_sentences: int | None = None,
) -> str:
    """Returns the first sentences of ``document``, one per line.

    Args:
        document: text of the document.
        num_words: length to reach, in words.
        num_sentences: number of sentences, instead of ``num_words``.

    Raises:
        InputError: both or neither of the two are given, or one is less than 1.
    """
    sentences = bounded_sentences(document)
    selected = _take(sentences, range(len(sentences)), num_words, num_sentences)
    return "\n".join(sentences[i] for i in selected)


def random_sentences(
    document: str,
    *,
    num_words: int | None = None,
    num_sentences: int | None = None,
    seed: int | Sequence[int] = 0,
) -> str:
    """Returns random sentences of ``document`` in document order, one per line.

    Args:
        document: text of the document.
        num_words: length to reach, in words.
        num_sentences: number of sentences, instead of ``num_words``.
        seed: random seed, one number or several such as (seed, index of the
            example).

    Raises:
        InputError: both or neither of the two lengths are given, or one is less
            than 1.
    """
    sentences = bounded_sentences(document)
    order = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    selected = sorted(_take(sentences, order, num_words, num_sentences))
    return "\n".join(sentences[i] for i in selected)


def _take(
    sentences: Sequence[str],
    order: Iterable[int],
    num_words: int | None,
    num_sentences: int | None,
) -> list[int]:
    """Returns the first indices of ``order`` up to the requested length."""
    if (num_words is None) == (num_sentences is None):
        raise InputError("give either num_words or num_sentences of a baseline")
    limit = num_words or num_sentences or 0
    if limit < 1:
        raise InputError(
            f"the length of a baseline must be at least 1, got {limit}"
        )
    selected = []
    length = 0
    for index in order:
        if length >= limit:
            break
        selected.append(index)
        if num_sentences is None:
            length += ngrams.num_words(sentences[index])
        else:
            length += 1
    return selected
