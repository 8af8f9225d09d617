"""Statistics of the overlap of summaries and documents: copied fragments, positions of n-grams.

By default, words are runs of a-z and 0-9 in the lowercase text, as in ROUGE.
Means over several documents count words of any script if a document or its
summary is not in Latin script (``ngrams.words_by_script``).
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.text.ngrams import (
    Tokenize,
    ngrams_of,
    words_by_script,
    words_of,
)

NUM_SHARES = 10


class Extractiveness(NamedTuple):
    """Statistics of a document with its summary, or means over several.

    Without a summary, all but ``document_words`` are NaN. Source: Grusky et al.
    2018, section 4.1.

    Attributes:
        document_words, summary_words: lengths in words.
        compression: words of the document divided by words of the summary.
        coverage: share of the summary's words that belong to a fragment.
        density: mean, over the summary's words, of the length of the fragment
            of each word.
    """

    document_words: float
    summary_words: float
    compression: float
    coverage: float
    density: float


def fragments(
    document: Sequence[Hashable], summary: Sequence[Hashable]
) -> list[int]:
    """Returns the lengths of the extractive fragments of a summary, from left to right.

    A fragment is the longest run of words that also occurs in the document. The
    greedy search of Grusky et al. (2018, figure 3) steps over a match before it
    looks for the next and so may miss a longer one that overlaps it; here the
    longest is found.
    """
    # Positions of bigrams; positions of single words would be too many.
    positions: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for position, pair in enumerate(itertools.pairwise(document)):
        positions[pair].append(position)
    words = set(document)
    lengths = []
    start = 0
    while start < len(summary):
        starts = positions.get(tuple(summary[start : start + 2]), ())
        runs = [
            _run_length(document, position, summary, start)
            for position in starts
        ]
        longest = max(runs, default=int(summary[start] in words))
        if longest:
            lengths.append(longest)
        start += max(longest, 1)
    return lengths


def _run_length(
    document: Sequence[Hashable],
    position: int,
    summary: Sequence[Hashable],
    start: int,
) -> int:
    """Returns the length of the common prefix, whose first two words are equal."""
    length = 2
    most = min(len(document) - position, len(summary) - start)
    while (
        length < most and document[position + length] == summary[start + length]
    ):
        length += 1
    return length


def extractiveness(
    document: str, summary: str | None, *, tokenize: Tokenize = words_of
) -> Extractiveness:
    """Returns lengths, compression, coverage and density of one document.

    Args:
        document: text of the document.
        summary: its summary; None for the length of the document only, with NaN
            for the other values.
        tokenize: function that splits a text into words.

    Raises:
        InputError: the summary has no words.
    """
    source = tokenize(document)
    if summary is None:
        return Extractiveness(len(source), *[math.nan] * 4)
    target = tokenize(summary)
    if not target:
        raise InputError(
            f'the summary "{summary[:40]}" has no words; leave its row out'
        )
    lengths = fragments(source, target)
    return Extractiveness(
        document_words=len(source),
        summary_words=len(target),
        compression=len(source) / len(target),
        coverage=sum(lengths) / len(target),
        density=sum(length**2 for length in lengths) / len(target),
    )


def mean_extractiveness(
    pairs: Iterable[tuple[str, str | None]],
) -> Extractiveness:
    """Returns the mean of each statistic over pairs of document and summary, read one at a time.

    Raises:
        InputError: there are no pairs.
    """
    totals = np.zeros(len(Extractiveness._fields))
    count = 0
    for document, summary in pairs:
        tokenize = words_by_script(document, summary or "")
        totals += extractiveness(document, summary, tokenize=tokenize)
        count += 1
    if not count:
        raise InputError(
            "statistics of no documents: give a file with at least one"
        )
    return Extractiveness(*(totals / count).tolist())


def salient_ngrams(
    document: str,
    summary: str,
    *,
    size: int = 2,
    num_shares: int = NUM_SHARES,
    tokenize: Tokenize = words_of,
) -> np.ndarray | None:
    """Returns the cumulative share of the summary's n-grams, by position in the document.

    The curve of Huang et al. (2021, figure 2), over the n-grams that the
    document contains: each counts once, at its first position in the document,
    and the last value is 1.

    Args:
        document, summary: texts.
        size: number of words of an n-gram.
        num_shares: number of values: after 1, 2, ... of this number of equal
            parts of the document.
        tokenize: function that splits a text into words.

    Returns:
        float64 [num_shares], or None if the document contains no n-gram of the
        summary.
    """
    words = tokenize(document)
    summary_ngrams = set(ngrams_of(tokenize(summary), size))
    # number of words up to the end of each n-gram
    words_read: dict[Hashable, int] = {}
    for count, ngram in enumerate(ngrams_of(words, size), size):
        if ngram in summary_ngrams:
            words_read.setdefault(ngram, count)
    if not words_read:
        return None
    edges = np.arange(1, num_shares + 1) * len(words) / num_shares
    return np.searchsorted(
        sorted(words_read.values()), edges, side="right"
    ) / len(words_read)


def mean_salient_ngrams(
    pairs: Iterable[tuple[str, str]],
    *,
    size: int = 2,
    num_shares: int = NUM_SHARES,
) -> np.ndarray:
    """Returns the mean of ``salient_ngrams`` over the pairs that share n-grams.

    Raises:
        InputError: no pair shares n-grams.
    """
    all_curves = [
        salient_ngrams(
            document,
            summary,
            size=size,
            num_shares=num_shares,
            tokenize=words_by_script(document, summary),
        )
        for document, summary in pairs
    ]
    curves = [curve for curve in all_curves if curve is not None]
    if not curves:
        raise InputError(
            f"no summary shares {size} words in a row with its document; give other data"
        )
    return np.mean(curves, 0)
