"""Measures the share of every part of a document that supports a summary."""

from collections.abc import Iterable, Sequence

import numpy as np

from longsum_jax.text.alignment import align
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.statements import Statement
from longsum_jax.text.support import PlacedSentences

NUM_PARTS = 10


def covered_parts(
    spans: Sequence[tuple[int, int]],
    indices: Iterable[int],
    num_parts: int = NUM_PARTS,
) -> tuple[float, ...]:
    """Returns the share of every part of a document covered by some of its sentences.

    Parts are of equal length in characters of sentences; characters between
    sentences do not count, so all sentences together cover everything.

    Args:
        spans: characters [start, stop) of every sentence, in document order.
        indices: indices of the covered sentences, in any order, with
            repetitions.
        num_parts: number of parts.

    Returns:
        ``num_parts`` shares from 0 to 1; all are 0 for a document without
        characters.
    """
    lengths = np.array([stop - start for start, stop in spans], np.float64)
    ends = np.cumsum([0.0, *lengths])
    counts = np.zeros(len(lengths))
    counts[list(indices)] = 1
    covered = np.cumsum([0.0, *lengths * counts])
    bounds = np.linspace(0, ends[-1], num_parts + 1)
    covered_lengths = np.diff(np.interp(bounds, ends, covered))
    shares = covered_lengths * num_parts / max(ends[-1], 1)
    return tuple(np.round(shares, 6).tolist())


def summary_coverage(text: str, summary: str) -> tuple[float, ...]:
    """Returns the share of every tenth of a document that supports its summary.

    The supporting sentences are the result of ``align``.

    Args:
        text: text of the document.
        summary: summary of the document.
    """
    placed = PlacedSentences.of(text)
    supports = align(split_sentences(summary), placed.sentences)
    return _coverage(
        placed, [index for support in supports for index in support.indices]
    )


def statement_coverage(
    text: str, statements: Sequence[Statement]
) -> tuple[float, ...]:
    """Returns the share of every tenth of a document that is a source of its summary.

    Args:
        text: text of the document.
        statements: statements of the summary, with their sources.
    """
    numbers = [
        source.number
        for statement in statements
        for source in statement.sources
    ]
    return _coverage(PlacedSentences.of(text), numbers)


def _coverage(
    placed: PlacedSentences, numbers: Sequence[int]
) -> tuple[float, ...]:
    spans = list(zip(placed.starts.tolist(), placed.ends.tolist(), strict=True))
    return covered_parts(spans, numbers)
