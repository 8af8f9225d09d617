"""Strategies by which a model summarizes a document that may be longer than its longest input.

A strategy is a generator. It yields rounds: inputs that the model is to summarize, in any order and
together with those of other documents. It gets their summaries back, and returns a draft at last:

    hierarchical    yield [segment 0, segment 1, ...]  ->  yield [their joined summaries]  ->  draft

So strategies know nothing of batches and devices, and all of them share compiled programs
(``inference.rounds``). Models with memories read documents in a way of their own
(``inference.segments``), which is strategy "memory".
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from longsum_jax.decoding.options import MAX_NEW_TOKENS
from longsum_jax.errors import InputError
from longsum_jax.inference.documents import TokenizedDocument, with_lead
from longsum_jax.inference.stream import coarse_length
from longsum_jax.inference.summary import Request, Strategy, Summary
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import builtin_ranker, without_fragments
from longsum_jax.ranking.selection import Length, take_sentences
from longsum_jax.text.coverage import summary_coverage
from longsum_jax.text.joining import BLANK_LINE, Joiner, split_documents
from longsum_jax.text.ngrams import num_words, unicode_words
from longsum_jax.text.segmentation import SegmentOptions, segment_document
from longsum_jax.text.sentences import join_wrapped_lines, sentence_ends, split_sentences
from longsum_jax.tokenizers.base import Tokenizer

SEGMENT_LENGTH = 1024  # tokens of an input of models that have no longest one
SHORTEST_ROOM = 16  # tokens of an input that are left for the document
OVERLAP = 10  # a segment begins with the end of the one before: a tenth of its room
SHORTEST_SUMMARY = 32  # tokens that the summary of a segment may have, however many there are


class Piece(NamedTuple):
    """An input to be summarized.

    Attributes:
        document: as the model reads it.
        max_new_tokens: of its summary; None for what the model was told.
    """

    document: TokenizedDocument
    max_new_tokens: int | None = None


class Draft(NamedTuple):
    """The output of a strategy.

    Attributes:
        text: the summary.
        tokens: of it.
        ended: whether it is complete.
        read_tokens: that were read of the document, prefix and query included; None for all.
    """

    text: str
    tokens: int
    ended: bool
    read_tokens: int | None = None


Steps = Generator[list[Piece], list[Summary], Draft]


class Budget(NamedTuple):
    """The length of a summary.

    Attributes:
        limit: in words or sentences.
        cost: length of a sentence.
        tokens: that the limit comes to, by the tokens of the document.
    """

    limit: float
    cost: Callable[[str], float]
    tokens: int

    def holds(self, text: str) -> bool:
        """Returns whether a text is short enough."""
        return sum(map(self.cost, split_sentences(text))) <= self.limit


def budget_of(length: Length, text: str, num_tokens: int) -> Budget:
    """Returns the length of a document's summary.

    Args:
        length: that is asked for.
        text: of the document.
        num_tokens: of the text, which say how many tokens a word or a sentence has.
    """
    if length.unit == "sentences":
        per_sentence = num_tokens / len(split_sentences(text))
        return Budget(length.value, lambda sentence: 1, math.ceil(length.value * per_sentence))
    words = num_words(text)
    limit = length.value
    if length.unit == "percent":
        limit = max(1, length.value / 100 * words)
    return Budget(limit, num_words, math.ceil(limit * num_tokens / words))


@dataclasses.dataclass(frozen=True)
class Reader:
    """The properties of a model and of a call that strategies use.

    Attributes:
        tokenizer: of the model.
        prefix: text before every input.
        longest_whole: tokens of a document up to which "auto" reads it whole; None for any.
        longest_input: tokens of an input where documents are cut, special ones included.
        is_longest_input: True if the model reads no longer inputs, whatever is asked for.
        max_new_tokens: of a summary where no length is asked for.
        longest_summary: tokens that the model can write; None for any number.
        length: of the whole summary; None for what the model makes of it.
        separator: between documents that are read as one.
        on_segment: called with the summary of every segment, one after the other.
    """

    tokenizer: Tokenizer
    longest_input: int
    max_new_tokens: int
    prefix: str = ""
    longest_whole: int | None = None
    longest_summary: int | None = None
    length: Length | None = None
    is_longest_input: bool = False
    separator: str = BLANK_LINE
    on_segment: Callable[[str], None] | None = None


class Source:
    """A document as strategies see it.

    Args:
        reader: of the model.
        whole: the document.
        document: as far as it is read, tokenized.
        request: the same as a text; by default the whole document.
    """

    def __init__(
        self,
        reader: Reader,
        whole: Request,
        document: TokenizedDocument,
        request: Request | None = None,
    ) -> None:
        self.reader = reader
        self.whole = whole
        self.document = document
        self.request = whole if request is None else request

    @property
    def fits(self) -> bool:
        """Tells whether "auto" reads the document whole."""
        longest = self.reader.longest_whole
        return longest is None or len(self.document.ids) <= longest

    @cached_property
    def parts(self) -> list[str]:
        """The documents that are read as one; most often there is one."""
        parts = split_documents(self.request.text, self.request.borders, self.reader.separator)
        return [part for part in parts if part.strip()]

    @cached_property
    def headings(self) -> frozenset[str]:
        """The headings of the document."""
        text = self.whole.text
        places = self.whole.outline.headings
        return frozenset(text[start:end].strip() for start, end in places)

    @cached_property
    def budget(self) -> Budget | None:
        """The length of the summary; None for what the model makes of it."""
        if self.reader.length is None:
            return None
        return budget_of(self.reader.length, self.whole.text, self.document.total_tokens)

    @cached_property
    def room(self) -> int:
        """Tokens of an input that are left for the document.

        Raises:
            InputError: too few, because of a long query.
        """
        limit = self.reader.longest_input
        room = limit - self._lead
        if room < SHORTEST_ROOM:
            query = self.request.query
            what = "special ones leave"
            if query or self.reader.prefix:
                what = f'the query "{query[:60]}" leaves' if query else "the model's prefix leaves"
            remedies = ["shorten it"] if query else []
            if not self.reader.is_longest_input:
                remedies.append("raise segment_length")
            remedy = " or ".join(remedies) or "give another model"
            raise InputError(
                f"{self.request.name}: {what} {max(room, 0)} of the {limit} tokens of an input, "
                f"fewer than {SHORTEST_ROOM}; {remedy}"
            )
        return room

    @property
    def final_tokens(self) -> int | None:
        """Tokens of the whole summary, where it is written in one piece."""
        return None if self.budget is None else self._allowed(self.budget.tokens)

    def part_tokens(self, num_parts: int) -> int | None:
        """Tokens of the summary of one of some segments, all of which are in the summary."""
        if self.budget is None:
            return None
        return self._allowed(max(SHORTEST_SUMMARY, self.budget.tokens // num_parts))

    @property
    def notes_tokens(self) -> int | None:
        """Tokens of a summary that is read again: half an input at most."""
        half = self.room // 2
        return half if half < self.reader.max_new_tokens else None

    def _allowed(self, tokens: int) -> int:
        longest = min(self.reader.longest_summary or MAX_NEW_TOKENS, MAX_NEW_TOKENS)
        return min(coarse_length(tokens), longest)  # coarse, so that few programs are compiled

    def is_input(self, text: str) -> bool:
        """Returns whether a text, with prefix and query, fits into one input."""
        return len(self._ids(text)) <= self.reader.longest_input

    def piece(self, text: str, max_new_tokens: int | None = None) -> Piece:
        """Returns a text as an input, after prefix and query."""
        ids = self._ids(text)
        return Piece(TokenizedDocument(ids, len(ids)), max_new_tokens)

    def cut(
        self, texts: Sequence[str] | None = None, *, reserve: int = 0, overlaps: bool = False
    ) -> list[str]:
        """Returns segments that fit into an input each; those without a word are left out.

        Args:
            texts: the document's parts by default. No segment goes from one to the next.
            reserve: tokens of an input that something else needs.
            overlaps: whether a segment begins with the last sentences of the one before it.
        """
        texts = self.parts if texts is None else texts
        if len(texts) == 1 and self.is_input(texts[0]):
            return [texts[0].strip()]
        found = [piece for text in texts for piece in self._cut(text, reserve, overlaps)]
        return [piece for piece in found if unicode_words(piece)] or found[:1]

    def _cut(self, text: str, reserve: int, overlaps: bool) -> list[str]:
        room = self.room - reserve
        if self._length(text) <= room:
            return [text.strip()]
        overlap = self.room // OVERLAP if overlaps else 0
        segments = self._segments(text, room - overlap)
        if not overlap:
            return [segment.strip() for segment in segments]
        found = segments[:1]
        for before, segment in itertools.pairwise(segments):
            longer = _tail(before, self.reader.tokenizer, overlap) + segment
            # Together they may have more tokens than one by one.
            found.append(longer if self._length(longer) <= room else segment)
        return [segment.strip() for segment in found]

    def _segments(self, text: str, room: int) -> list[str]:
        """Returns the text cut into segments of at most ``room`` tokens, at headings if possible.

        The lengths are in the proportions of SegmentOptions' own. A segment may have more tokens in
        an input than its sentences have one by one; it is cut again then.
        """
        options = SegmentOptions(room // 2, room * 3 // 4, room)
        headings = self.headings
        document = segment_document(text, self.reader.tokenizer, options, headings=headings)
        found = []
        for index in range(len(document.segments)):
            segment = document.segment_text(index)
            fits = self._length(segment) <= room
            found += [segment] if fits else self._segments(segment, room * 3 // 4)
        return found

    def _length(self, text: str) -> int:
        """Returns the tokens that a text takes of an input's room.

        White space around it goes: a word may have more tokens without the space before it.
        """
        return len(self._ids(text.strip())) - self._lead

    @cached_property
    def _lead(self) -> int:
        """Tokens of an input without a text."""
        return len(self._ids(""))

    def _ids(self, text: str) -> list[int]:
        reader = self.reader
        text = with_lead(text, reader.prefix, self.request.query)
        return reader.tokenizer.add_special_tokens(reader.tokenizer.encode(text))

    def joiner(self) -> Joiner:
        """Returns what puts summaries together up to the length that is asked for."""
        return Joiner(self.budget.limit, self.budget.cost) if self.budget else Joiner()

    def joined_draft(self, found: Sequence[Summary], shares: Iterable[float]) -> Draft:
        """Returns the summaries of segments together, up to the length that is asked for."""
        joiner = self.joiner()
        for summary, share in zip(found, shares, strict=False):
            joiner.add(summary.text, share, ended=summary.ended == "eos")
        return self.draft(joiner, found)

    def draft(self, joiner: Joiner, found: Sequence[Summary]) -> Draft:
        """Returns joined summaries as a draft."""
        tokenizer = self.reader.tokenizer
        tokens = len(tokenizer.add_special_tokens(tokenizer.encode(joiner.text)))
        return Draft(joiner.text, tokens, _have_ended(found) and not joiner.is_cut)

    def last_draft(self, summary: Summary) -> Draft:
        """Returns the summary of the last round, up to the length that is asked for."""
        if self.budget is None:
            return Draft(summary.text, summary.summary_tokens, summary.ended == "eos")
        return self.joined_draft([summary], [1.0])


def _have_ended(found: Sequence[Summary]) -> bool:
    return all(summary.ended == "eos" for summary in found)


def _tail(text: str, tokenizer: Tokenizer, limit: int) -> str:
    """Returns the last sentences of a text, but not all, of at most ``limit`` tokens together."""
    ends = sentence_ends(text, split_sentences(text)).tolist()
    start = len(text)
    room = limit
    for begin, end in reversed(list(itertools.pairwise(ends))):
        room -= len(tokenizer.encode(text[begin:end]))
        if room < 0:
            break
        start = begin
    return text[start:]


def direct(source: Source) -> Steps:
    """Reads the document whole."""
    [summary] = yield [Piece(source.document, source.final_tokens)]
    return source.last_draft(summary)


def extract(source: Source) -> Steps:
    """Chooses as many sentences as fit into one input, by the built-in ranker, and reads them."""
    if len(source.document.ids) <= source.reader.longest_input:
        return (yield from direct(source))
    chosen = source.piece(_best_sentences(source), source.final_tokens)
    [summary] = yield [chosen]
    return source.last_draft(summary)._replace(read_tokens=len(chosen.document.ids))


def segments(source: Source) -> Steps:
    """Reads the document segment by segment; their summaries together are the summary."""
    texts = source.cut()
    limit = source.part_tokens(len(texts))
    pieces = [source.piece(text, limit) for text in texts]
    # Segments that are shown as they come are asked for one by one.
    rounds = [pieces] if source.reader.on_segment is None else [[piece] for piece in pieces]
    joiner = source.joiner()
    found: list[Summary] = []
    shares = _shares(pieces)
    for each in rounds:
        summaries = yield each
        found += summaries
        for summary in summaries:
            said = joiner.add(summary.text, next(shares), ended=summary.ended == "eos")
            if source.reader.on_segment is not None:
                source.reader.on_segment(said)
    return source.draft(joiner, found)


def _shares(pieces: Sequence[Piece]) -> Iterator[float]:
    """Yields for every piece the share of all tokens that it and those before it have."""
    lengths = [len(piece.document.ids) for piece in pieces]
    return (sum_ / sum(lengths) for sum_ in itertools.accumulate(lengths))


def hierarchical(source: Source) -> Steps:
    """Reads segments that overlap, then their summaries, until these fit into one input.

    With a length, summaries are final as soon as together they are that short.
    """
    texts = source.cut(overlaps=True)
    while len(texts) > 1:
        pieces = [source.piece(text, source.notes_tokens) for text in texts]
        found = yield pieces
        joined = Joiner()
        for summary in found:
            joined.add(summary.text)
        is_short = source.budget is not None and source.budget.holds(joined.text)
        following = source.cut([joined.text]) if joined.text else []
        if is_short or not following or len(following) >= len(texts):  # these grow no shorter
            shares = itertools.repeat(1.0) if is_short else _shares(pieces)
            return source.joined_draft(found, shares)
        texts = following
    [summary] = yield [source.piece(texts[0], source.final_tokens)]
    return source.last_draft(summary)


def refine(source: Source) -> Steps:
    """Reads segment after segment, each with the summary of all before it."""
    half = source.room // 2
    limit = min(half, source.final_tokens or source.reader.max_new_tokens)
    texts = source.cut(reserve=limit)
    running = ""
    for text in texts:
        together = f"{running}{BLANK_LINE}{text}" if running else text
        while running and not source.is_input(together):  # its text has more tokens than it had
            running = " ".join(split_sentences(running)[:-1])
            together = f"{running}{BLANK_LINE}{text}" if running else text
        [summary] = yield [source.piece(together, limit)]
        running = summary.text.strip()
    return source.last_draft(summary)


def _best_sentences(source: Source) -> str:
    """Returns the best sentences of a document that fit into one input, in its order."""
    text = BLANK_LINE.join(source.parts)
    query = source.request.query
    parsed = parse_document(join_wrapped_lines(text))
    scores = without_fragments(parsed, builtin_ranker().scores(parsed, query))
    lengths = map(len, source.reader.tokenizer.encode_batch(parsed.sentences))
    costs = np.array([length + 1 for length in lengths])  # and a space
    chosen = take_sentences(parsed, scores, costs, source.room)
    ends = np.cumsum([len(part) + len(BLANK_LINE) for part in source.parts])
    part_of = np.searchsorted(ends, parsed.starts, side="right")
    groups = itertools.groupby(chosen, lambda sentence: part_of[sentence])
    parts = [" ".join(parsed.sentences[sentence] for sentence in group) for _, group in groups]
    best = source.reader.separator.join(parts)
    return best if source.is_input(best) else source.cut([best])[0]


# A document -> rounds of inputs, and a draft at last.
STRATEGIES: dict[str, Callable[[Source], Steps]] = {
    "direct": direct,
    "extract": extract,
    "segments": segments,
    "hierarchical": hierarchical,
    "refine": refine,
}


def choose(source: Source) -> Strategy:
    """Returns the strategy of "auto".

    A document that fits is read whole. For others there is "hierarchical", which of the strategies
    that read everything keeps most of a document (docs/results/strategies.md), and writes as much
    as the model was trained to: "segments" grows with the document, and "refine" needs one call
    after the other. "extract" keeps as much at less cost, but leaves most of the document unread.
    """
    return "direct" if source.fits else "hierarchical"


def summarize_steps(source: Source, name: str) -> Generator[list[Piece], list[Summary], Summary]:
    """Runs a strategy, and says what it has read.

    Args:
        source: the document.
        name: of ``STRATEGIES``.
    """
    draft = yield from STRATEGIES[name](source)
    read = len(source.document.ids) if draft.read_tokens is None else draft.read_tokens
    total = source.document.total_tokens
    return Summary(
        text=draft.text,
        document_tokens=total,
        read_tokens=read,
        dropped_tokens=total - read,
        summary_tokens=draft.tokens,
        ended="eos" if draft.ended else "limit",
        strategy=name,
        coverage=summary_coverage(source.whole.text, draft.text),
    )
