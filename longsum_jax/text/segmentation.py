"""Segments of a document: whole sentences, cut where the topic changes (AWESOME, appendix A.1,
algorithm 1; Se3)."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.sentences import sentence_ends, split_sentences
from longsum_jax.text.tfidf import tfidf_vectors
from longsum_jax.tokenizers.base import Tokenizer

SentenceEncoder = Callable[[Sequence[str]], np.ndarray]  # sentences -> float [n, d], of any length
SplitMoves = Literal["sentence", "window"]
_EQUAL = 1e-6  # what float32 means of the same cosines may differ by


@dataclasses.dataclass(frozen=True)
class SegmentOptions:
    """How a document is cut; tokens are counted without special ones.

    Attributes:
        min_tokens: a segment grows by whole sentences to at least this length.
        max_tokens: at this length a segment is over; in between, the sentence goes where it is more
            similar. As in algorithm 1 the length is looked at before a sentence is added, so that
            segments exceed it by up to one.
        max_segment_tokens: what no segment exceeds; None for no such limit. A sentence longer than
            this, or than ``max_tokens``, is cut between words, a word where it must be.
        strict: no segment exceeds ``max_tokens`` (the rule of Se3's code).
        next_includes_sentence: what follows includes the sentence to be placed, which is like
            itself.
        split_moves: what begins a new segment, the "sentence" alone (algorithm 1) or with it the
            "window" of sentences that it was compared with (Se3's code).
    """

    min_tokens: int = 512
    max_tokens: int = 768
    max_segment_tokens: int | None = 1024
    strict: bool = False
    next_includes_sentence: bool = False
    split_moves: SplitMoves = "sentence"

    def __post_init__(self) -> None:
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise InputError(
                f"segments.min_tokens={self.min_tokens} and max_tokens={self.max_tokens} must be at least 1 and in "
                "this order; change either"
            )
        if self.max_segment_tokens is not None and self.max_segment_tokens < self.min_tokens:
            raise InputError(
                f"segments.max_segment_tokens={self.max_segment_tokens} is below min_tokens={self.min_tokens}; raise "
                "it or lower min_tokens"
            )
        if self.split_moves not in get_args(SplitMoves):
            known = did_you_mean(self.split_moves, get_args(SplitMoves))
            raise InputError(f'segments.split_moves: "{self.split_moves}" is not allowed; {known}')

    @cached_property
    def limit(self) -> float:
        """Tokens that no segment exceeds, infinite where there is no limit."""
        hard = math.inf if self.max_segment_tokens is None else self.max_segment_tokens
        return min(hard, self.max_tokens) if self.strict else hard

    @property
    def longest_sentence(self) -> int:
        """Tokens of the longest sentence that is left whole."""
        return int(min(self.max_tokens, self.limit))


class Segment(NamedTuple):
    """Where a segment lies: its characters [start, stop) of the text, its sentences [first, end),
    its tokens."""

    start: int
    stop: int
    first: int
    end: int
    num_tokens: int


class SegmentedDocument(NamedTuple):
    """A document cut into segments.

    Attributes:
        text: the document.
        sentences: without surrounding white space; long ones in pieces, which may be blank.
        token_ids: of each sentence (and the white space before it), without special tokens.
        segments: in order; they hold every character and every sentence once.
    """

    text: str
    sentences: list[str]
    token_ids: list[list[int]]
    segments: list[Segment]

    def segment_text(self, index: int) -> str:
        """Returns the characters of a segment; all segments together are the document."""
        return self.text[self.segments[index].start : self.segments[index].stop]

    def segment_ids(self, index: int) -> list[int]:
        """Returns the tokens of a segment, ``num_tokens`` of them."""
        segment = self.segments[index]
        return list(itertools.chain.from_iterable(self.token_ids[segment.first : segment.end]))


def segment_document(
    text: str,
    tokenizer: Tokenizer,
    options: SegmentOptions = SegmentOptions(),
    encoder: SentenceEncoder = tfidf_vectors,
) -> SegmentedDocument:
    """Cuts a document into segments of similar sentences, in time linear in its length.

    Args:
        text: of any length.
        tokenizer: gives the tokens that lengths are counted in; called for all sentences at once.
        options: lengths, and what algorithm 1 leaves open.
        encoder: sentence vectors, compared by their cosines.

    Raises:
        InputError: a blank text.
    """
    sentences = split_sentences(text)
    if not sentences:
        raise InputError(
            "a document to be cut into segments is empty; give it some text or leave it out"
        )
    slices = _cut(text, sentence_ends(text, sentences))
    token_ids = tokenizer.encode_batch(slices)
    if max(map(len, token_ids)) > options.longest_sentence:
        slices, token_ids = _shortened(slices, token_ids, options.longest_sentence, tokenizer)
        sentences = [piece.strip() for piece in slices]
    lengths = [len(ids) for ids in token_ids]
    vectors = None if sum(lengths) <= options.longest_sentence else encoder(sentences)
    ends = np.cumsum([0, *map(len, slices)])
    segments = [
        Segment(int(ends[first]), int(ends[end]), first, end, sum(lengths[first:end]))
        for first, end in segment_ranges(lengths, vectors, options)
    ]
    return SegmentedDocument(text, sentences, token_ids, segments)


def segment_ranges(
    lengths: Sequence[int], vectors: np.ndarray | None, options: SegmentOptions = SegmentOptions()
) -> list[tuple[int, int]]:
    """Algorithm 1 on numbers alone.

    Args:
        lengths: tokens of each sentence.
        vectors: float [n, d], one a sentence, of any length; None where the document is one
            segment.

    Returns:
        Sentences [first, end) of each segment, in order; a document of at most ``max_tokens`` (and
        the limit) is one.
    """
    total = np.cumsum([0, *lengths]).tolist()
    if total[-1] <= options.longest_sentence:
        return [(0, len(lengths))]
    vectors = _unit_rows(np.asarray(vectors, np.float32))
    ranges, first, position = [], 0, 0
    while position < len(lengths):
        end = _next_end(first, position, total, vectors, options)
        if end is None:
            position += 1
        else:  # the sentence at `position` begins a new segment
            ranges.append((first, position))
            first, position = position, end
    return [*ranges, (first, len(lengths))]


def _next_end(
    first: int, position: int, total: list[int], vectors: np.ndarray, options: SegmentOptions
) -> int | None:
    """Where to go on after a cut before the sentence at ``position``; None if it belongs to the
    segment from ``first``.

    ``total`` [n + 1] are the tokens before each sentence, ``vectors`` [n, d] of length 1.
    """
    length = total[position] - total[first]
    if position > first and total[position + 1] - total[first] > options.limit:
        return position + 1
    if length < options.min_tokens:
        return None
    if length > options.max_tokens:
        return position + 1
    start = position if options.next_includes_sentence else position + 1
    stop = _window_end(start, total, options.min_tokens)
    if start == stop:  # the last sentence has nothing after it
        return None
    sentence = vectors[position]
    before, after = (
        (vectors[first:position] @ sentence).mean(),
        (vectors[start:stop] @ sentence).mean(),
    )
    if after <= before + _EQUAL:
        return None
    moves = options.split_moves == "window" and total[stop] - total[position] <= options.limit
    return stop if moves else position + 1


def _unit_rows(table: np.ndarray) -> np.ndarray:
    """The rows of [n, d] at length 1; rows of zeros stay."""
    norms = np.sqrt(np.einsum("nd,nd->n", table, table))
    return table / np.where(norms > 0, norms, 1)[:, None]


def _window_end(start: int, total: list[int], min_tokens: int) -> int:
    """The end of the shortest run of sentences from ``start`` of at least ``min_tokens``, or of the
    document."""
    stop = start
    while stop < len(total) - 1 and total[stop] - total[start] < min_tokens:
        stop += 1
    return stop


def _cut(text: str, ends: np.ndarray) -> list[str]:
    return [text[start:stop] for start, stop in itertools.pairwise([0, *ends.tolist()])]


def _shortened(
    slices: list[str], token_ids: list[list[int]], limit: int, tokenizer: Tokenizer
) -> tuple[list[str], list[list[int]]]:
    """The slices and their tokens with those of more than ``limit`` tokens cut, again until all are
    short enough."""
    while max(map(len, token_ids)) > limit:
        pieces = [
            _pieces(part, -(-len(ids) // limit))
            for part, ids in zip(slices, token_ids, strict=True)
        ]
        cut = [piece for parts in pieces if len(parts) > 1 for piece in parts]
        if not cut:
            raise InputError(
                f"one character takes more than segments.max_tokens={limit} tokens; raise it"
            )
        new = iter(tokenizer.encode_batch(cut))
        token_ids = [
            ids
            for old, parts in zip(token_ids, pieces, strict=True)
            for ids in ([old] if len(parts) == 1 else itertools.islice(new, len(parts)))
        ]
        slices = list(itertools.chain.from_iterable(pieces))
    return slices, token_ids


def _pieces(text: str, count: int) -> list[str]:
    """``text`` in at most ``count`` pieces of nearly equal length, cut before white space where
    there is some near."""
    goals = (len(text) * i // count for i in range(1, count))
    bounds = sorted(
        {0, *(_near_space(text, goal, len(text) // count) for goal in goals), len(text)}
    )
    return [text[start:stop] for start, stop in itertools.pairwise(bounds)]


def _near_space(text: str, goal: int, reach: int) -> int:
    """The last position of white space among the ``reach`` up to ``goal``, or ``goal``."""
    return next((i for i in range(goal, goal - reach, -1) if text[i].isspace()), goal)
