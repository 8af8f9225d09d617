"""Cuts long documents for gap-sentence pre-training, so that a novel yields many
examples instead of a truncated one.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from longsum_jax.text.documents import DataRow
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import split_sentences


def in_pieces(docs: Iterable[DataRow], piece_words: int) -> Iterator[DataRow]:
    """Yields the pieces of all documents in order.

    Each piece is a document with id ``<id>#0``, ``<id>#1`` and so on. A short
    document is its only piece ``<id>#0``, so that ``is_first_piece`` is
    unambiguous.
    """
    for document in docs:
        for number, text in enumerate(cut_text(document.document, piece_words)):
            yield document._replace(id=f"{document.id}#{number}", document=text)


def is_first_piece(piece_id: str) -> bool:
    """Returns True if ``in_pieces`` assigned this id to the first piece of a document."""
    return piece_id.endswith("#0")


def cut_text(text: str, piece_words: int) -> list[str]:
    """Cuts a text at sentence ends into ceil(words / piece_words) pieces of nearly equal length.

    The sentences of each piece are separated by blank lines, so that splitting
    it again does not join any. Its length differs from the mean by less than
    the sentences at its ends. A sentence longer than a piece is not cut, and
    there are then fewer pieces. Words are counted by ``num_words``. The time is
    linear in the length of the text.

    Args:
        text: text of any length.
        piece_words: words of a piece, at least 1.

    Returns:
        The pieces in order, none of them empty; the unchanged text if it is
        short enough or a single sentence.
    """
    if num_words(text) <= piece_words:
        return [text]
    sentences = split_sentences(text)
    words = [num_words(sentence) for sentence in sentences]
    ends = np.cumsum([0, *words])  # words before each sentence, and in total
    num_pieces = -(-ends[-1] // piece_words)
    goals = ends[-1] * np.arange(1, num_pieces) / num_pieces
    # The sentence end nearest to each goal: the midpoint of two ends separates
    # them.
    nearest = np.searchsorted((ends[:-1] + ends[1:]) / 2, goals)
    bounds = np.unique([0, *nearest, len(sentences)])
    if len(bounds) == 2:
        return [text]
    return [
        "\n\n".join(sentences[start:stop])
        for start, stop in itertools.pairwise(bounds)
    ]
