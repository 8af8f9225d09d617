"""Cuts documents into segments of whole sentences at changes of topic.

Source: AWESOME (Cao & Wang 2023), appendix A.1, algorithm 1, after Se3.

    sentences   s0 s1 s2 s3 s4 s5 s6 s7 s8
                            |-- segment grows --|          up to min_tokens: every sentence joins
                                    s4 ?       up to max_tokens: s4 joins if it is more similar to
                                               s0..s3 than to the window of min_tokens
                                               after it
                [s0 s1 s2 s3] [s4 s5 ...       otherwise it begins the next segment
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.sentences import sentence_ends, split_sentences
from longsum_jax.text.word_table import tfidf_vectors
from longsum_jax.tokenizers.base import Tokenizer

# sentences -> float [n, d], of any length
SentenceEncoder = Callable[[Sequence[str]], np.ndarray]
SplitMoves = Literal["sentence", "window"]
_TOLERANCE = 1e-6  # equal means of float32 cosines may differ by rounding


@dataclasses.dataclass(frozen=True)
class SegmentOptions:
    """Options of segmentation; token counts exclude special tokens.

    Attributes:
        min_tokens: minimum length of a segment in tokens, reached by adding
            whole sentences.
        max_tokens: length at which a segment ends. Between ``min_tokens`` and
            ``max_tokens``, a sentence joins the segment or begins the next one,
            whichever is more similar. As in algorithm 1 of AWESOME, the length
            is checked before a sentence is added, so that a segment may exceed
            it by one sentence.
        max_segment_tokens: hard limit of a segment; None for no limit. A
            sentence longer than this, or than ``max_tokens``, is cut between
            words, or inside a word if it has no space.
        strict: True if ``max_tokens`` is a hard limit as well (as in Se3's
            code).
        next_includes_sentence: True if the window after a sentence, with which
            it is compared, includes the sentence itself.
        split_moves: sentences with which a new segment begins. A sentence is
            compared with its segment, and with a window of the following
            sentences that has at least ``min_tokens`` tokens. If the window is
            more similar, the new segment begins with only this "sentence"
            (algorithm 1), or with the sentence and the whole "window" (Se3's
            code), unless these exceed the hard limit.
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
                f"segments.min_tokens={self.min_tokens} and max_tokens={self.max_tokens} must be "
                "at least 1 and in this order; change either"
            )
        if (
            self.max_segment_tokens is not None
            and self.max_segment_tokens < self.min_tokens
        ):
            raise InputError(
                f"segments.max_segment_tokens={self.max_segment_tokens} is below "
                f"min_tokens={self.min_tokens}; raise it or lower min_tokens"
            )
        if self.split_moves not in get_args(SplitMoves):
            suggestion = did_you_mean(self.split_moves, get_args(SplitMoves))
            raise InputError(
                f'segments.split_moves: "{self.split_moves}" is not allowed; {suggestion}'
            )

    @cached_property
    def limit(self) -> float:
        """The hard limit of a segment in tokens; infinite without a limit."""
        if self.max_segment_tokens is None:
            hard = math.inf
        else:
            hard = self.max_segment_tokens
        if self.strict:
            return min(hard, self.max_tokens)
        return hard

    @property
    def longest_sentence(self) -> int:
        """The length in tokens above which a sentence is cut."""
        return int(min(self.max_tokens, self.limit))


class Segment(NamedTuple):
    """The bounds of a segment.

    Attributes:
        start, stop: characters [start, stop) of the segment in the text.
        first, end: sentences [first, end) of the segment.
        num_tokens: length of the segment in tokens.
    """

    start: int
    stop: int
    first: int
    end: int
    num_tokens: int


class SegmentedDocument(NamedTuple):
    """A document cut into segments.

    Attributes:
        text: text of the document.
        sentences: sentences without surrounding white space; long sentences are
            cut into pieces, which may be blank.
        token_ids: token ids of each sentence and the white space before it,
            without special tokens.
        segments: segments in document order; every character and every sentence
            is in exactly one.
    """

    text: str
    sentences: list[str]
    token_ids: list[list[int]]
    segments: list[Segment]

    def segment_text(self, index: int) -> str:
        """Returns the characters of a segment; all segments together are the document."""
        return self.text[self.segments[index].start : self.segments[index].stop]

    def segment_ids(self, index: int) -> list[int]:
        """Returns the token ids of a segment, ``num_tokens`` of them."""
        segment = self.segments[index]
        return list(
            itertools.chain.from_iterable(
                self.token_ids[segment.first : segment.end]
            )
        )


def segment_document(
    text: str,
    tokenizer: Tokenizer,
    options: SegmentOptions = SegmentOptions(),
    encoder: SentenceEncoder = tfidf_vectors,
    borders: Sequence[int] = (),
    headings: Collection[str] = (),
) -> SegmentedDocument:
    """Cuts a document into segments of similar sentences, in time linear in its length.

    Args:
        text: document of any length.
        tokenizer: tokenizer; called once for all sentences.
        options: lengths, and choices that algorithm 1 leaves open.
        encoder: function that computes sentence vectors, which are compared by
            cosine.
        borders: positions in the text at which a segment always begins.
        headings: sentences before which a segment ends if it has
            ``min_tokens``.

    Raises:
        InputError: the text is blank.
    """
    if borders:
        cuts = [0, *borders, len(text)]
        parts = [text[start:stop] for start, stop in itertools.pairwise(cuts)]
        return _together(
            [
                segment_document(
                    part, tokenizer, options, encoder, (), headings
                )
                for part in parts
            ]
        )
    sentences = split_sentences(text)
    if not sentences:
        raise InputError(
            "a document to be cut into segments is empty; give it some text or leave it out"
        )
    bounds = [0, *sentence_ends(text, sentences).tolist()]
    slices = [text[start:stop] for start, stop in itertools.pairwise(bounds)]
    token_ids = tokenizer.encode_batch(slices)
    if max(map(len, token_ids)) > options.longest_sentence:
        slices, token_ids = _split_long(
            slices, token_ids, options.longest_sentence, tokenizer
        )
        sentences = [piece.strip() for piece in slices]
    lengths = [len(ids) for ids in token_ids]
    if sum(lengths) <= options.longest_sentence:
        vectors = None
    else:
        vectors = encoder(sentences)
    ends = np.cumsum([0, *map(len, slices)])
    sections = {
        i for i, sentence in enumerate(sentences) if sentence in headings
    }
    segments = [
        Segment(
            int(ends[first]),
            int(ends[end]),
            first,
            end,
            sum(lengths[first:end]),
        )
        for first, end in segment_ranges(lengths, vectors, options, sections)
    ]
    return SegmentedDocument(text, sentences, token_ids, segments)


def _together(documents: Sequence[SegmentedDocument]) -> SegmentedDocument:
    """Concatenates documents."""
    segments: list[Segment] = []
    offset, number = 0, 0
    for document in documents:
        for start, stop, first, end, num_tokens in document.segments:
            bounds = start + offset, stop + offset, first + number, end + number
            segments.append(Segment(*bounds, num_tokens))
        offset += len(document.text)
        number += len(document.sentences)
    return SegmentedDocument(
        "".join(document.text for document in documents),
        [sentence for document in documents for sentence in document.sentences],
        [ids for document in documents for ids in document.token_ids],
        segments,
    )


def segment_ranges(
    lengths: Sequence[int],
    vectors: np.ndarray | None,
    options: SegmentOptions = SegmentOptions(),
    sections: Collection[int] = (),
) -> list[tuple[int, int]]:
    """Returns the sentences [first, end) of each segment by algorithm 1.

    A document of at most ``max_tokens`` (and the hard limit) is one segment.

    Args:
        lengths: number of tokens of each sentence.
        vectors: float [n, d], vector of each sentence, of any norm; None for a
            document of one segment.
        sections: indices of sentences that begin a section of the document. A
            segment begins there if the previous one is long enough.
    """
    total = np.cumsum([0, *lengths]).tolist()
    if total[-1] <= options.longest_sentence:
        return [(0, len(lengths))]
    vectors = _normalize_rows(np.asarray(vectors, np.float32))
    ranges, first, position = [], 0, 0
    while position < len(lengths):
        end = _next_end(first, position, total, vectors, options, sections)
        if end is None:
            position += 1
        else:  # the sentence at `position` begins a new segment
            ranges.append((first, position))
            first, position = position, end
    return [*ranges, (first, len(lengths))]


def _next_end(
    first: int,
    position: int,
    total: list[int],
    vectors: np.ndarray,
    options: SegmentOptions,
    sections: Collection[int],
) -> int | None:
    """Decides whether the sentence at ``position`` begins a new segment.

    Args:
        first: first sentence of the current segment.
        total: [n + 1], number of tokens before each sentence.
        vectors: [n, d] of norm 1.
        sections: sentences that begin a segment if the current one has
            ``min_tokens``.

    Returns:
        The next sentence to examine if a new segment begins; otherwise None.
    """
    length = total[position] - total[first]
    if position > first and total[position + 1] - total[first] > options.limit:
        return position + 1
    if length < options.min_tokens:
        return None
    if length > options.max_tokens or position in sections:
        return position + 1
    if options.next_includes_sentence:
        start = position
    else:
        start = position + 1
    stop = _window_end(start, total, options.min_tokens)
    if start == stop:  # no following sentences to compare with
        return None
    sentence = vectors[position]
    before = (vectors[first:position] @ sentence).mean()
    after = (vectors[start:stop] @ sentence).mean()
    if after <= before + _TOLERANCE:
        return None
    moves = (
        options.split_moves == "window"
        and total[stop] - total[position] <= options.limit
    )
    return stop if moves else position + 1


def _normalize_rows(table: np.ndarray) -> np.ndarray:
    """Returns the rows of [n, d] scaled to norm 1; zero rows remain zero."""
    norms = np.sqrt(np.einsum("nd,nd->n", table, table))
    return table / np.where(norms > 0, norms, 1)[:, None]


def _window_end(start: int, total: list[int], min_tokens: int) -> int:
    """Returns the end of the shortest window from ``start`` with ``min_tokens`` tokens.

    The window ends at the end of the document at the latest.
    """
    stop = start
    while stop < len(total) - 1 and total[stop] - total[start] < min_tokens:
        stop += 1
    return stop


def _split_long(
    slices: list[str],
    token_ids: list[list[int]],
    limit: int,
    tokenizer: Tokenizer,
) -> tuple[list[str], list[list[int]]]:
    """Cuts slices of more than ``limit`` tokens into pieces, until all are short enough."""
    while max(map(len, token_ids)) > limit:
        pieces_of_slices = []
        for text, ids in zip(slices, token_ids, strict=True):
            pieces_of_slices.append(_pieces(text, -(-len(ids) // limit)))
        changed = [pieces for pieces in pieces_of_slices if len(pieces) > 1]
        if not changed:
            raise InputError(
                f"one character takes more than segments.max_tokens={limit} tokens; raise it"
            )
        # Only the pieces of cut slices are encoded again.
        new_ids = iter(
            tokenizer.encode_batch(list(itertools.chain.from_iterable(changed)))
        )
        slices, old_ids, token_ids = [], token_ids, []
        for pieces, ids in zip(pieces_of_slices, old_ids, strict=True):
            slices += pieces
            if len(pieces) == 1:
                token_ids.append(ids)
            else:
                token_ids += itertools.islice(new_ids, len(pieces))
    return slices, token_ids


def _pieces(text: str, count: int) -> list[str]:
    """Cuts ``text`` into at most ``count`` pieces of nearly equal length, before spaces.

    A text without tokens (``count`` 0) is not cut.
    """
    bounds = {0, len(text)}
    for i in range(1, count):
        goal = len(text) * i // count
        bounds.add(_space_before(text, goal, reach=len(text) // count))
    return [
        text[start:stop] for start, stop in itertools.pairwise(sorted(bounds))
    ]


def _space_before(text: str, goal: int, reach: int) -> int:
    """Returns the last white space within ``reach`` characters before ``goal``, or ``goal``."""
    for position in range(goal, goal - reach, -1):
        if text[position].isspace():
            return position
    return goal
