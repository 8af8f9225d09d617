"""Pieces of long documents for gap-sentence pre-training: a novel gives many examples instead of
one cut short."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from longsum_jax.text.documents import Document
from longsum_jax.text.sentences import split_sentences


def in_pieces(docs: Iterable[Document], piece_words: int) -> Iterator[Document]:
    """Yields the pieces of all documents in order, as documents with ids ``<id>#0``, ``<id>#1`` and
    so on.

    A document that needs no cut is its own only piece ``<id>#0``, so that ``begins_document`` is
    never in doubt.
    """
    for document in docs:
        for number, text in enumerate(cut(document.document, piece_words)):
            yield document._replace(id=f"{document.id}#{number}", document=text)


def begins_document(piece_id: str) -> bool:
    """Whether the id that ``in_pieces`` gave is of a document's first piece."""
    return piece_id.endswith("#0")


def cut(text: str, piece_words: int) -> list[str]:
    """Cuts a text at sentence ends into ceil(words / piece_words) pieces of nearly equal length, in
    linear time.

    A piece is its sentences with blank lines between them, so that splitting it again joins no two
    of them. Its length is off the mean by less than the sentences at its ends; where a sentence is
    longer than a piece it stays whole, and the pieces are fewer. Words are what white space
    separates.

    Args:
        text: any length.
        piece_words: words of a piece, at least 1.

    Returns:
        The pieces in order, none empty; the text as it is where it has no more words or is a single
        sentence.
    """
    if len(text.split()) <= piece_words:
        return [text]
    sentences = split_sentences(text)
    ends = np.cumsum([0, *(len(sentence.split()) for sentence in sentences)])
    count = -(-ends[-1] // piece_words)
    goals = ends[-1] * np.arange(1, count) / count
    nearest = np.searchsorted((ends[:-1] + ends[1:]) / 2, goals)
    bounds = np.unique([0, *nearest, len(sentences)])
    if len(bounds) == 2:
        return [text]
    return ["\n\n".join(sentences[start:stop]) for start, stop in itertools.pairwise(bounds)]
