"""Tells how much of every part of a document a summary rests on."""

from collections.abc import Iterable, Sequence

import numpy as np

from longsum_jax.text.alignment import align
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.statements import Statement
from longsum_jax.text.support import PlacedSentences

NUM_PARTS = 10


def covered_parts(
    spans: Sequence[tuple[int, int]], indices: Iterable[int], num_parts: int = NUM_PARTS
) -> tuple[float, ...]:
    """Returns the share of every tenth of a document that stands in some of its sentences.

    Parts are of equal length in characters of sentences, so that those between sentences count
    nowhere, and all sentences together cover everything.

    Args:
        spans: characters [start, stop) of every sentence, in the order of the document.
        indices: of the sentences that count, in any order, maybe several times.
        num_parts: into which the document is cut.

    Returns:
        ``num_parts`` shares from 0 to 1; all are 0 for a document without characters.
    """
    lengths = np.array([stop - start for start, stop in spans], np.float64)
    ends = np.cumsum([0.0, *lengths])
    counts = np.zeros(len(lengths))
    counts[list(indices)] = 1
    covered = np.cumsum([0.0, *lengths * counts])
    bounds = np.linspace(0, ends[-1], num_parts + 1)
    found = np.diff(np.interp(bounds, ends, covered))
    shares = found * num_parts / max(ends[-1], 1)
    return tuple(np.round(shares, 6).tolist())


def summary_coverage(text: str, summary: str) -> tuple[float, ...]:
    """Returns the share of every tenth of a document that its summary rests on.

    A summary rests on the sentences that ``align`` finds for its own.

    Args:
        text: the document.
        summary: of it.
    """
    placed = PlacedSentences.of(text)
    found = align(split_sentences(summary), placed.sentences)
    return _coverage(placed, [index for support in found for index in support.indices])


def statement_coverage(text: str, statements: Sequence[Statement]) -> tuple[float, ...]:
    """Returns the share of every tenth of a document that stands in the sources of its summary.

    Args:
        text: the document.
        statements: of the summary, with their sources.
    """
    numbers = [source.number for each in statements for source in each.sources]
    return _coverage(PlacedSentences.of(text), numbers)


def _coverage(placed: PlacedSentences, numbers: Sequence[int]) -> tuple[float, ...]:
    spans = list(zip(placed.starts.tolist(), placed.ends.tolist(), strict=True))
    return covered_parts(spans, numbers)
