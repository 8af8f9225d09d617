"""Strategies for summarizing a document that may exceed the model's maximum input length.

A strategy is a generator. It yields rounds of inputs to be summarized, in any
order and together with the inputs of other documents. It receives their
summaries, and finally returns a draft:

    hierarchical    yield [segment 0, segment 1, ...]  ->  yield [their joined summaries]  ->  draft

So strategies do not depend on batches and devices, and all of them share
compiled programs (``summarization.rounds``). With strategy "memory"
(``summarization.segments``), a round may be decoded with a state that earlier
rounds of its document left.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from longsum_jax.decoding.options import MAX_NEW_TOKENS
from longsum_jax.errors import InputError
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.stream import coarse_length
from longsum_jax.summarization.summary import (
    SHORTEST_ROOM,
    Request,
    Summary,
)
from longsum_jax.text.joining import BLANK_LINE, Joiner, split_documents
from longsum_jax.text.lengths import Length
from longsum_jax.text.ngrams import num_words, unicode_words
from longsum_jax.text.prompts import NO_PROMPT, Prompt
from longsum_jax.text.segment_inputs import SegmentInputs
from longsum_jax.text.segmentation import SegmentOptions, segment_document
from longsum_jax.text.sentences import (
    sentence_ends,
    split_sentences,
)
from longsum_jax.tokenizers.base import Tokenizer

SEGMENT_LENGTH = 1024  # tokens of an input, for models without a maximum length
# a segment repeats the end of the previous one: one tenth of its room
OVERLAP = 10
SHORTEST_SUMMARY = 32  # minimum token limit for the summary of a segment


class StepInput(NamedTuple):
    """An input to be summarized.

    Attributes:
        document: tokenized input.
        max_new_tokens: maximum tokens of its summary; None for the model's
            setting.
        is_final: True if its summary, unchanged, is the document's summary.
    """

    document: TokenizedDocument
    max_new_tokens: int | None = None
    is_final: bool = False


class Draft(NamedTuple):
    """The output of a strategy.

    Attributes:
        text: text of the summary.
        tokens: token count of the summary.
        ended: True if the summary is complete.
        read_tokens: tokens read of the document, including prompt and query;
            None for all.
    """

    text: str
    tokens: int
    ended: bool
    read_tokens: int | None = None


Steps = Generator[list[StepInput], list[Summary], Draft]


class Budget(NamedTuple):
    """The length limit of a summary.

    Attributes:
        limit: maximum length in words or sentences.
        cost: function that returns the length of a sentence in the same unit.
        tokens: token count that corresponds to the limit, by the document's
            tokens per word.
    """

    limit: float
    cost: Callable[[str], float]
    tokens: int

    def holds(self, text: str) -> bool:
        """Returns True if a text is within the limit."""
        return sum(map(self.cost, split_sentences(text))) <= self.limit


def budget_of(length: Length, text: str, num_tokens: int) -> Budget:
    """Returns the length limit of a document's summary.

    Args:
        length: requested length.
        text: text of the document.
        num_tokens: token count of the text, which gives the tokens per word or
            sentence.
    """
    if length.unit == "sentences":
        # Assume that summary sentences are as long as the document's.
        per_sentence = num_tokens / len(split_sentences(text))
        return Budget(
            length.value,
            lambda sentence: 1,
            math.ceil(length.value * per_sentence),
        )
    words = num_words(text)
    limit = max(1, length.limit(words))
    # Convert words to tokens with the document's ratio.
    return Budget(limit, num_words, math.ceil(limit * num_tokens / words))


@dataclasses.dataclass(frozen=True)
class Reader:
    """The properties of a model and a call that strategies use.

    Attributes:
        tokenizer: tokenizer of the model.
        prompt: text around the document in every input.
        longest_whole: maximum tokens of a document that "auto" reads whole;
            None for no limit.
        longest_input: tokens of an input when documents are cut, including
            special tokens.
        is_longest_input: True if the model cannot read longer inputs.
        max_new_tokens: maximum tokens of a summary if no length is requested.
        longest_summary: maximum tokens that the model can write; None for no
            limit.
        length: requested length of the whole summary; None leaves it to the
            model.
        separator: separator of documents that are read as one.
        on_segment: callback with the summary of each segment, in order.
        carries_state: True if a segment of strategy "memory" depends on earlier
            ones.
    """

    tokenizer: Tokenizer
    longest_input: int
    max_new_tokens: int
    prompt: Prompt = NO_PROMPT
    longest_whole: int | None = None
    longest_summary: int | None = None
    length: Length | None = None
    is_longest_input: bool = False
    separator: str = BLANK_LINE
    on_segment: Callable[[str], None] | None = None
    carries_state: bool = False

    @property
    def in_order(self) -> bool:
        """True if each segment is a round, after the earlier ones."""
        return self.carries_state or self.on_segment is not None


class StrategyInput:
    """The document that a strategy reads, with the helpers that strategies share.

    Args:
        reader: properties of the model and the call.
        whole: the whole document.
        document: tokens of the part that is read.
        request: text of the part that is read; default: the whole document.
        segments: inputs for strategy "memory".
    """

    def __init__(
        self,
        reader: Reader,
        whole: Request,
        document: TokenizedDocument,
        request: Request | None = None,
        segments: SegmentInputs | None = None,
    ) -> None:
        self.reader = reader
        self.segments = segments
        self.whole = whole
        self.document = document
        if request is None:
            self.request = whole
        else:
            self.request = request

    @property
    def fits(self) -> bool:
        """True if "auto" reads the document whole."""
        longest = self.reader.longest_whole
        return longest is None or len(self.document.ids) <= longest

    @cached_property
    def parts(self) -> list[str]:
        """The documents that are read as one; usually a single one."""
        parts = split_documents(
            self.request.text, self.request.borders, self.reader.separator
        )
        return [part for part in parts if part.strip()]

    @cached_property
    def headings(self) -> frozenset[str]:
        """The headings of the document."""
        text = self.whole.text
        spans = self.whole.outline.headings
        return frozenset(text[start:end].strip() for start, end in spans)

    @cached_property
    def budget(self) -> Budget | None:
        """The length limit of the summary; None leaves the length to the model."""
        if self.reader.length is None:
            return None
        return budget_of(
            self.reader.length, self.whole.text, self.document.total_tokens
        )

    @cached_property
    def room(self) -> int:
        """Tokens of an input that are left for the document.

        Raises:
            InputError: there are too few, because of a long query.
        """
        limit = self.reader.longest_input
        room = limit - self._lead
        if room < SHORTEST_ROOM:
            query = self.request.query
            what = "special ones leave"
            if query:
                what = f'the query "{query[:60]}" leaves'
            elif self.reader.prompt != NO_PROMPT:
                what = "the prompt leaves"
            remedies = ["shorten it"] if query else []
            if not self.reader.is_longest_input:
                remedies.append("raise segment_length")
            remedy = " or ".join(remedies) or "give another model"
            raise InputError(
                f"{self.request.name}: {what} {max(room, 0)} of the {limit} tokens of an input, "
                f"fewer than {SHORTEST_ROOM}; {remedy}"
            )
        return room

    def final(self, piece: StepInput) -> StepInput:
        """Returns the input of the last round, final unless a length is requested."""
        return piece._replace(is_final=self.budget is None)

    @property
    def final_tokens(self) -> int | None:
        """Maximum tokens of the whole summary if it is written in one piece."""
        if self.budget is None:
            return None
        return self._allowed(self.budget.tokens)

    def part_tokens(self, num_parts: int) -> int | None:
        """Returns the maximum tokens of each segment's summary if all are in the final summary."""
        if self.budget is None:
            return None
        return self._allowed(
            max(SHORTEST_SUMMARY, self.budget.tokens // num_parts)
        )

    @property
    def notes_tokens(self) -> int | None:
        """Maximum tokens of a summary that is read again: at most half an input."""
        half = self.room // 2
        if half < self.reader.max_new_tokens:
            return half
        return None

    def _allowed(self, tokens: int) -> int:
        longest = min(
            self.reader.longest_summary or MAX_NEW_TOKENS, MAX_NEW_TOKENS
        )
        # coarse, so that few programs are compiled
        return min(coarse_length(tokens), longest)

    def is_input(self, text: str) -> bool:
        """Returns True if a text with prompt and query fits into one input."""
        return len(self._ids(text)) <= self.reader.longest_input

    def piece(self, text: str, max_new_tokens: int | None = None) -> StepInput:
        """Returns a text with prompt and query as an input."""
        ids = self._ids(text)
        return StepInput(TokenizedDocument(ids, len(ids)), max_new_tokens)

    def cut(
        self,
        texts: Sequence[str] | None = None,
        *,
        reserve: int = 0,
        overlaps: bool = False,
    ) -> list[str]:
        """Returns segments that each fit into an input, without segments that have no words.

        Args:
            texts: texts to cut, by default the document's parts. No segment
                spans two texts.
            reserve: tokens of an input that are reserved for other text.
            overlaps: True if a segment begins with the last sentences of the
                previous one.
        """
        texts = self.parts if texts is None else texts
        if len(texts) == 1 and self.is_input(texts[0]):
            return [texts[0].strip()]
        pieces = [
            piece
            for text in texts
            for piece in self._cut(text, reserve, overlaps)
        ]
        # Drop segments without words, but return at least one.
        return [piece for piece in pieces if unicode_words(piece)] or pieces[:1]

    def _cut(self, text: str, reserve: int, overlaps: bool) -> list[str]:
        room = self.room - reserve
        if self._length(text) <= room:
            return [text.strip()]
        # Leave room for the sentences repeated from the previous segment.
        overlap = self.room // OVERLAP if overlaps else 0
        #   segment 1 | segment 2 | segment 3    at most room - overlap tokens
        #   segment 1 | end of 1, segment 2 | end of 2, segment 3    room tokens
        segments = self._segments(text, room - overlap)
        if not overlap:
            return [segment.strip() for segment in segments]
        overlapping = segments[:1]
        for before, segment in itertools.pairwise(segments):
            longer = _tail(before, self.reader.tokenizer, overlap) + segment
            # Concatenated texts may have more tokens than the sum of both.
            overlapping.append(
                longer if self._length(longer) <= room else segment
            )
        return [segment.strip() for segment in overlapping]

    def _segments(self, text: str, room: int) -> list[str]:
        """Returns the text cut into segments of at most ``room`` tokens, at headings if possible.

        The lengths have the proportions of the defaults of SegmentOptions. A
        segment may have more tokens than the sum over its sentences; it is then
        cut again.
        """
        options = SegmentOptions(room // 2, room * 3 // 4, room)
        headings = self.headings
        document = segment_document(
            text, self.reader.tokenizer, options, headings=headings
        )
        pieces = []
        for index in range(len(document.segments)):
            segment = document.segment_text(index)
            fits = self._length(segment) <= room
            if fits:
                pieces += [segment]
            else:
                pieces += self._segments(segment, room * 3 // 4)
        return pieces

    def _length(self, text: str) -> int:
        """Returns the number of tokens that a text takes up in an input.

        Surrounding white space is stripped first: a word without the space
        before it may have more tokens.
        """
        return len(self._ids(text.strip())) - self._lead

    @cached_property
    def _lead(self) -> int:
        """Tokens of an input without a text."""
        return len(self._ids(""))

    def _ids(self, text: str) -> list[int]:
        reader = self.reader
        prompted = reader.prompt.encode(
            reader.tokenizer, text, self.request.query
        )
        return reader.prompt.source(reader.tokenizer, prompted)

    def joiner(self) -> Joiner:
        """Returns a joiner that concatenates summaries up to the requested length."""
        if self.budget:
            return Joiner(self.budget.limit, self.budget.cost)
        return Joiner()

    def joined_draft(
        self, summaries: Sequence[Summary], shares: Iterable[float]
    ) -> Draft:
        """Returns the joined summaries of segments, up to the requested length."""
        joiner = self.joiner()
        for summary, share in zip(summaries, shares, strict=False):
            joiner.add(summary.text, share, ended=summary.ended == "eos")
        return self.draft(joiner, summaries)

    def draft(self, joiner: Joiner, summaries: Sequence[Summary]) -> Draft:
        """Returns joined summaries as a draft."""
        tokenizer = self.reader.tokenizer
        if joiner.text:
            tokens = len(
                tokenizer.add_special_tokens(tokenizer.encode(joiner.text))
            )
        else:  # the model wrote only special tokens
            tokens = sum(summary.summary_tokens for summary in summaries)
        return Draft(
            joiner.text, tokens, _have_ended(summaries) and not joiner.is_cut
        )

    def last_draft(self, summary: Summary) -> Draft:
        """Returns the draft of the last round's summary, truncated to the requested length."""
        if self.budget is None:
            return Draft(
                summary.text, summary.summary_tokens, summary.ended == "eos"
            )
        return self.joined_draft([summary], [1.0])


def _have_ended(summaries: Sequence[Summary]) -> bool:
    return all(summary.ended == "eos" for summary in summaries)


def _tail(text: str, tokenizer: Tokenizer, limit: int) -> str:
    """Returns the last sentences of a text, at most ``limit`` tokens, but never all of it."""
    ends = sentence_ends(text, split_sentences(text)).tolist()
    start = len(text)
    room = limit
    # Add whole sentences from the end as long as they fit.
    for begin, end in reversed(list(itertools.pairwise(ends))):
        room -= len(tokenizer.encode(text[begin:end]))
        if room < 0:
            break
        start = begin
    return text[start:]


def direct(source: StrategyInput) -> Steps:
    """Reads the whole document in one input."""
    piece = StepInput(source.document, source.final_tokens)
    [summary] = yield [source.final(piece)]
    return source.last_draft(summary)


def segments(source: StrategyInput) -> Steps:
    """Summarizes each segment and concatenates the summaries."""
    texts = source.cut()
    limit = source.part_tokens(len(texts))
    pieces = [source.piece(text, limit) for text in texts]
    joiner = source.joiner()
    summaries = yield from summaries_of_segments(
        source, pieces, _lengths(pieces), joiner
    )
    return source.draft(joiner, summaries)


def summaries_of_segments(
    source: StrategyInput,
    pieces: Sequence[StepInput],
    lengths: Sequence[int],
    joiner: Joiner,
) -> Generator[list[StepInput], list[Summary], list[Summary]]:
    """Yields the inputs of segments, joins their summaries, and returns them.

    Args:
        source: document to summarize.
        pieces: inputs of the segments.
        lengths: token counts of the segments.
        joiner: joiner of the summaries.
    """
    rounds = [[*pieces]]
    if source.reader.in_order:
        rounds = [[piece] for piece in pieces]
    all_summaries: list[Summary] = []
    shares = _shares(lengths)
    for inputs in rounds:
        summaries = yield inputs
        all_summaries += summaries
        for summary in summaries:
            # The share of the document read so far limits the summary so far,
            # so that late segments are not cut off by early ones.
            part = joiner.add(
                summary.text, next(shares), ended=summary.ended == "eos"
            )
            if source.reader.on_segment is not None:
                source.reader.on_segment(part)
    return all_summaries


def _lengths(pieces: Sequence[StepInput]) -> list[int]:
    return [len(piece.document.ids) for piece in pieces]


def _shares(lengths: Sequence[int]) -> Iterator[float]:
    """Yields for each segment the cumulative share of all tokens up to and including it."""
    total = max(sum(lengths), 1)
    return (sum_ / total for sum_ in itertools.accumulate(lengths))


def hierarchical(source: StrategyInput) -> Steps:
    """Summarizes overlapping segments, then their summaries, until these fit into one input.

    If a length is requested, stops as soon as the joined summaries are within
    it.
    """
    texts = source.cut(overlaps=True)
    while len(texts) > 1:
        # Notes have at most half a room, so that two or more fit into an input:
        #
        #   segments  1   2   3   4   5   6   7   8
        #   notes    (1   2) (3   4) (5   6) (7   8)    joined and cut again
        #   notes    (1 - 2   3 - 4) (5 - 6   7 - 8)    the same
        #   final    (1 - 4           5 - 8)            a single input
        pieces = [source.piece(text, source.notes_tokens) for text in texts]
        summaries = yield pieces
        joined = Joiner()
        for summary in summaries:
            joined.add(summary.text)
        is_short = source.budget is not None and source.budget.holds(
            joined.text
        )
        # The joined summaries are the text of the next round.
        if joined.text:
            following = source.cut([joined.text])
        else:
            following = []
        # no further progress
        if is_short or not following or len(following) >= len(texts):
            shares = (
                itertools.repeat(1.0) if is_short else _shares(_lengths(pieces))
            )
            return source.joined_draft(summaries, shares)
        texts = following
    piece = source.piece(texts[0], source.final_tokens)
    [summary] = yield [source.final(piece)]
    return source.last_draft(summary)


def refine(source: StrategyInput) -> Steps:
    """Reads one segment after another, each together with the summary of all earlier ones."""
    half = source.room // 2
    # The running summary takes up at most half of each input.
    limit = min(half, source.final_tokens or source.reader.max_new_tokens)
    texts = source.cut(reserve=limit)
    running = ""
    for number, text in enumerate(texts, 1):
        if running:
            # The model reads the running summary like the first paragraph of a
            # document.
            together = f"{running}{BLANK_LINE}{text}"
        else:
            together = text
        # decoded text may retokenize longer
        while running and not source.is_input(together):
            # The summary gives way, sentence by sentence from its end: no text
            # of the document is skipped.
            running = " ".join(split_sentences(running)[:-1])
            if running:
                together = f"{running}{BLANK_LINE}{text}"
            else:
                together = text
        piece = source.piece(together, limit)
        is_last = number == len(texts)
        [summary] = yield [source.final(piece) if is_last else piece]
        running = summary.text.strip()
    return source.last_draft(summary)
