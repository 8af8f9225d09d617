"""What a summary takes from its document: fragments copied word for word, and bigrams by where they
stand.

Words are those of ROUGE: runs of a-z and 0-9 in the lower-cased text.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.text.ngrams import words_of

PARTS = 10


class Extractiveness(NamedTuple):
    """Of one document with its summary (Grusky et al. 2018, section 4.1), or means over several.

    Attributes:
        document_words, summary_words: lengths.
        compression: words of the document for one of the summary.
        coverage: share of the summary's words that belong to a fragment.
        density: mean over the summary's words of the length of the fragment they belong to.
    """

    document_words: float
    summary_words: float
    compression: float
    coverage: float
    density: float


def fragments(document: Sequence[bytes], summary: Sequence[bytes]) -> list[int]:
    """Lengths of the extractive fragments: from left to right, the longest run of words that the
    document has, too.

    Grusky et al. (2018, figure 3), whose greedy search steps over a match before it looks for the
    next and so may miss a longer one that overlaps it; here the longest is found.
    """
    places = defaultdict(list)  # of bigrams: single words are too many
    for place, pair in enumerate(itertools.pairwise(document)):
        places[pair].append(place)
    single, lengths, start = set(document), [], 0
    while start < len(summary):
        starts = places.get(tuple(summary[start : start + 2]), ())
        longest = max((_run(document, place, summary, start) for place in starts), default=0)
        longest = longest or int(summary[start] in single)
        if longest:
            lengths.append(longest)
        start += max(longest, 1)
    return lengths


def _run(document: Sequence[bytes], place: int, summary: Sequence[bytes], start: int) -> int:
    """How many words agree from here on; two do."""
    length, most = 2, min(len(document) - place, len(summary) - start)
    while length < most and document[place + length] == summary[start + length]:
        length += 1
    return length


def extractiveness(document: str, summary: str) -> Extractiveness:
    """Compression, coverage and density of one pair.

    Raises:
        InputError: the summary has no words.
    """
    source, target = words_of(document), words_of(summary)
    if not target:
        raise InputError(f'the summary "{summary[:40]}" has no words; leave its row out')
    lengths, words = fragments(source, target), len(target)
    density = sum(length**2 for length in lengths) / words
    return Extractiveness(len(source), words, len(source) / words, sum(lengths) / words, density)


def mean_extractiveness(pairs: Iterable[tuple[str, str]]) -> Extractiveness:
    """The mean of each number over pairs of document and summary; InputError where there are
    none."""
    found = [extractiveness(*pair) for pair in pairs]
    if not found:
        raise InputError("statistics of no documents: give a file with at least one")
    return Extractiveness(*(statistics.fmean(values) for values in zip(*found, strict=True)))


def salient_bigrams(document: str, summary: str, parts: int = PARTS) -> np.ndarray | None:
    """Which share of the summary's bigrams in the document has been read after 1, 2, ... of equal
    parts of it.

    The curve of Huang et al. (2021, figure 2): every bigram counts once, at its first place in the
    document, and the last value is 1.

    Returns:
        float64 [parts], or None where the document has no bigram of the summary.
    """
    words, wanted = words_of(document), set(itertools.pairwise(words_of(summary)))
    ends: dict[tuple[bytes, bytes], int] = {}  # words read when the bigram has been
    for place, pair in enumerate(itertools.pairwise(words), 2):
        if pair in wanted:
            ends.setdefault(pair, place)
    if not ends:
        return None
    edges = np.arange(1, parts + 1) * len(words) / parts
    return np.searchsorted(sorted(ends.values()), edges, side="right") / len(ends)


def mean_salient_bigrams(pairs: Iterable[tuple[str, str]], parts: int = PARTS) -> np.ndarray:
    """The mean of ``salient_bigrams`` over pairs of document and summary that share any; InputError
    where none does."""
    curves = [curve for pair in pairs if (curve := salient_bigrams(*pair, parts)) is not None]
    if not curves:
        raise InputError("no summary shares two words in a row with its document; give other data")
    return np.mean(curves, 0)
