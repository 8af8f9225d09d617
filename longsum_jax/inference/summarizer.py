"""Summaries of documents by any strategy, all at once or as they come.

``make_engine`` returns what summarizes under the options of one call: a ``StrategyEngine``, or a
``MemoryEngine`` for models that were trained to read segment by segment.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, get_args

from longsum_jax.decoding.options import GenerationOptions, check_option_names
from longsum_jax.errors import InputError, check_whole, did_you_mean
from longsum_jax.inference.devices import rows_on_devices
from longsum_jax.inference.documents import (
    DocumentSummarizer,
    TokenizedDocument,
    check_counts,
)
from longsum_jax.inference.padding import check_length, kernel_limit
from longsum_jax.inference.rounds import Plan, run_plans
from longsum_jax.inference.segments import SegmentSummarizer
from longsum_jax.inference.strategies import (
    SEGMENT_LENGTH,
    SHORTEST_ROOM,
    Reader,
    Source,
    budget_of,
    choose,
    summarize_steps,
)
from longsum_jax.inference.stream import Work, coarse_length
from longsum_jax.inference.summary import (
    BatchSize,
    Overflow,
    Request,
    Strategy,
    Summary,
    check_no_file_name,
    check_text,
    listed,
)
from longsum_jax.models.registry import max_input_length
from longsum_jax.ranking.selection import Length, parse_length
from longsum_jax.text.coverage import summary_coverage
from longsum_jax.text.joining import Joiner, join_documents
from longsum_jax.text.segment_inputs import SegmentInputs
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """Options for reading documents; see ``Model.summaries``.

    Raises:
        InputError: a value out of range, or options that exclude each other.
    """

    strategy: Strategy = "auto"
    length: str | int | Length | None = None
    max_source_length: int | None = None
    segment_length: int | None = None
    on_overflow: Overflow = "truncate"
    batch_size: BatchSize = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            known = did_you_mean(str(self.strategy), get_args(Strategy))
            raise InputError(f'strategy="{self.strategy}" is not known; {known}')
        if self.on_overflow not in get_args(Overflow):
            known = did_you_mean(str(self.on_overflow), get_args(Overflow))
            raise InputError(f'on_overflow="{self.on_overflow}" is not known; {known}')
        check_whole("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise InputError(f"seed={self.seed} must be below 2**63")
        if self.length is not None:
            object.__setattr__(self, "length", parse_length(self.length))
        if isinstance(self.batch_size, str) and self.batch_size != "auto":
            raise InputError(f'batch_size="{self.batch_size}"; give a number, or "auto"')
        if self.batch_size != "auto":
            check_whole("batch_size", self.batch_size, 1)
        if self.max_source_length is not None:
            # A token and the end of the sequence.
            check_whole("max_source_length", self.max_source_length, 2)
        if self.segment_length is not None:
            check_whole("segment_length", self.segment_length, SHORTEST_ROOM)


def make_requests(
    texts: Sequence[str] | str,
    names: Sequence[str] | None,
    queries: Sequence[str | None] | None,
    separator: str | None,
) -> list[Request]:
    """Returns what is to be summarized.

    Args:
        texts: documents, or one.
        names: of the documents in error messages; by default they are counted.
        queries: for each document a query or None.
        separator: between documents that are read as one, with the first one's name and query; None
            reads each by itself.

    Raises:
        InputError: another number of names or queries; a document or query that is no text, an
            empty document, or the name of a file in place of its text.
    """
    texts = listed(texts, "texts")
    names = names or [f"document {i}" for i in range(1, len(texts) + 1)]
    queries = queries or [None] * len(texts)
    check_counts(len(texts), names=names, queries=queries)
    requests = [Request(*row) for row in zip(texts, names, queries, strict=True)]
    for request in requests:
        check_text(request)
        check_no_file_name(request)
    if separator is None or not requests:
        return requests
    text, borders = join_documents(texts, separator)
    return [requests[0]._replace(text=text, borders=borders)]


class StrategyEngine:
    """Summarizes by the strategies of ``inference.strategies``.

    Args:
        documents: decodes inputs.
        reader: of the model.
        options: of the call.
        generation: of the search.
        longest_input: tokens that the model has positions for; None for any.
    """

    def __init__(
        self,
        documents: DocumentSummarizer,
        reader: Reader,
        options: SummaryOptions,
        generation: GenerationOptions,
        longest_input: int | None,
    ) -> None:
        self._documents = documents
        self._reader = reader
        self._options = options
        self._generation = generation
        self._longest_input = longest_input

    def summaries(self, requests: Sequence[Request]) -> list[Summary]:
        """Returns a summary of every document.

        A thread reads the next documents while the first are decoded; it ends with an error.
        """
        with (
            ThreadPoolExecutor(1, "tokenizer") as thread,
            contextlib.closing(cast(Generator[Plan], thread.map(self.plan, requests))) as read,
        ):
            plans: Iterable[Plan] = read
            if self._options.length is not None:  # those of one limit go together
                plans = list(read)
            found = dict(run_plans(plans, self._decode))
        return [found[i] for i in range(len(requests))]

    def work(self) -> Work:
        """Returns what ``summarize_stream`` needs."""
        return Work(self.plan, lambda plan: plan.num_tokens, self._summarize, False)

    def source(self, request: Request) -> tuple[str, Source]:
        """Returns the strategy for a document, and the document as far as it is read.

        Raises:
            InputError: an empty document, or one that is too long.
        """
        strategy, limit = self._options.strategy, self._options.max_source_length
        if strategy == "direct" and limit is None:
            limit = self._longest_input
        document = self._documents.read(request, limit, self._options.on_overflow)
        source = Source(self._reader, request, document)
        if strategy == "auto":
            strategy = choose(source)
        if strategy == "direct":
            self._documents.check_whole(document, request.name)
        elif len(document.ids) < document.total_tokens:
            beginning = self._beginning(request, document)
            source = Source(self._reader, request, document, beginning)
        return strategy, source

    def longest_input(self, request: Request) -> int:
        """Returns the tokens of the longest input that a document makes.

        Raises:
            InputError: a document that cannot be summarized.
        """
        strategy, source = self.source(request)
        length = len(source.document.ids)
        return length if strategy == "direct" else min(length, self._reader.longest_input)

    def _beginning(self, request: Request, document: TokenizedDocument) -> Request:
        """Returns a document up to the last of its tokens that are read."""
        spans = self._reader.tokenizer.spans(request.text)
        count = len(spans) - document.total_tokens + len(document.ids)
        stop = spans[max(count, 1) - 1][1] if spans else 0
        borders = tuple(border for border in request.borders if border < stop)
        beginning = request._replace(text=request.text[:stop], borders=borders)
        if not beginning.text.strip():
            raise InputError(
                f"{request.name}: no word of it is within max_source_length="
                f"{self._options.max_source_length}; raise it"
            )
        return beginning

    def plan(self, request: Request) -> Plan:
        """Tokenizes a document, and begins its strategy.

        Raises:
            InputError: a document that cannot be summarized.
        """
        strategy, source = self.source(request)
        return Plan(summarize_steps(source, strategy))

    def _decode(
        self, documents: Iterable[TokenizedDocument], limit: int | None, **sizes: Any
    ) -> Iterator[tuple[int, Summary]]:
        generation = self._generation
        if limit is not None:
            shortest = min(generation.min_new_tokens, limit // 2)
            generation = dataclasses.replace(
                generation, max_new_tokens=limit, min_new_tokens=shortest
            )
        sizes = {"batch_size": self._options.batch_size, "seed": self._options.seed} | sizes
        return self._documents.decode(documents, options=generation, **sizes)

    def _summarize(
        self, plans: Sequence[Plan], batch_size: BatchSize
    ) -> Iterator[list[tuple[int, Summary]]]:
        limits = (self._options.max_source_length, self._longest_input)
        limit = min((each for each in limits if each is not None), default=None)

        def padded_length(length: int) -> int:
            coarse = coarse_length(length)
            return coarse if limit is None else max(length, min(coarse, limit))

        decode = partial(self._decode, batch_size=batch_size, padded_length=padded_length)
        for done in run_plans(plans, decode):
            yield [done]


class _Segmented(NamedTuple):
    """A document and its segments."""

    request: Request
    inputs: SegmentInputs


class MemoryEngine:
    """Summarizes segment by segment as the model was trained to.

    Segments that carry a memory are read one after the other, those of as many documents as rows
    together. Others are decoded as soon as there is a place, whatever document they are from; the
    sampled ones draw by their index in the document, for which they are read in order, too.

    Args:
        segments: reads and writes them.
        documents: decodes segments that depend on nothing else.
        params: of the model.
        prefix: text before every segment.
        tokenizer: of the model.
        options: of the call.
        generation: of the search.
        on_segment: called with the summary of every segment, one after the other.
    """

    def __init__(
        self,
        segments: SegmentSummarizer,
        documents: DocumentSummarizer,
        params: Params,
        prefix: str,
        tokenizer: Tokenizer,
        options: SummaryOptions,
        generation: GenerationOptions,
        on_segment: Callable[[str], None] | None,
    ) -> None:
        self._segments = segments
        self._documents = documents
        self._params = params
        self._prefix = prefix
        self._tokenizer = tokenizer
        self._options = options
        self._generation = generation
        self._on_segment = on_segment

    def summaries(self, requests: Sequence[Request]) -> list[Summary]:
        """Returns a summary of every document, read as its batch comes."""
        if self._any_order:
            done = dict(self._in_any_order(map(self._read, requests), self._options.batch_size))
            return [done[i] for i in range(len(requests))]
        rows = self._rows(self._options.batch_size)
        found: list[Summary] = []
        for start in range(0, len(requests), rows):
            batch = list(map(self._read, requests[start : start + rows]))
            found += self._summarize_batch(batch, rows)
        return found

    def work(self) -> Work:
        """Returns what ``summarize_stream`` needs.

        Extractors and sentence encoders are moved to the device and off it again.
        """
        return Work(self._read, self._length, self._summarize, reads_on_device=True)

    @property
    def _any_order(self) -> bool:
        in_order = self._on_segment is not None or self._generation.do_sample
        return not (in_order or self._segments.carries_memory)

    def _in_any_order(
        self, documents: Iterable[_Segmented], batch_size: BatchSize
    ) -> Iterator[tuple[int, Summary]]:
        """Yields places of documents with their summaries, as they are done."""
        documents = list(documents)
        self._segments.release_auxiliary()

        def decode(
            inputs: Iterable[TokenizedDocument], limit: int | None
        ) -> Iterator[tuple[int, Summary]]:
            del limit  # of strategies that share out a length
            return self._documents.decode(
                inputs,
                batch_size=batch_size,
                options=self._generation,
                seed=self._options.seed,
                padded_length=lambda _: self._segments.length,
            )

        plans = [
            Plan(self._segments.steps(document.inputs, self._joiner(document)))
            for document in documents
        ]
        for place, summary in run_plans(plans, decode):
            yield place, self._finished(summary, documents[place])

    def _rows(self, batch_size: BatchSize) -> int:
        return rows_on_devices(1 if batch_size == "auto" else batch_size)

    def _length(self, document: _Segmented) -> int:
        return len(document.inputs.sources)

    def _read(self, request: Request) -> _Segmented:
        inputs = self._segments.read(
            request, self._prefix, self._options.max_source_length, self._options.on_overflow
        )
        return _Segmented(request, inputs)

    def _summarize(
        self, documents: Sequence[_Segmented], batch_size: BatchSize
    ) -> Iterator[list[tuple[int, Summary]]]:
        if self._any_order:
            yield from ([done] for done in self._in_any_order(documents, batch_size))
            return
        rows = self._rows(batch_size)
        for start in range(0, len(documents), rows):
            found = self._summarize_batch(documents[start : start + rows], rows)
            yield list(enumerate(found, start))

    def _summarize_batch(self, batch: Sequence[_Segmented], rows: int) -> list[Summary]:
        on_segment = self._on_segment
        show = None if on_segment is None else (lambda _, text: on_segment(text))
        found = self._segments.summarize(
            self._params,
            [document.inputs for document in batch],
            rows,
            self._generation,
            self._options.seed,
            [self._joiner(document) for document in batch],
            show,
        )
        return [
            self._finished(summary, document)
            for summary, document in zip(found, batch, strict=True)
        ]

    def _finished(self, summary: Summary, document: _Segmented) -> Summary:
        """Returns a summary with what it rests on; one that was cut has fewer tokens."""
        coverage = summary_coverage(document.request.text, summary.text)
        summary = dataclasses.replace(summary, strategy="memory", coverage=coverage)
        if self._options.length is None:
            return summary
        ids = self._tokenizer.add_special_tokens(self._tokenizer.encode(summary.text))
        return dataclasses.replace(summary, summary_tokens=len(ids))

    def _joiner(self, document: _Segmented) -> Joiner:
        """Returns what joins the summaries of segments, as they are where no length is asked
        for."""
        if self._options.length is None:
            return Joiner(merges=False)
        inputs = document.inputs
        budget = budget_of(
            cast(Length, self._options.length), inputs.document.text, inputs.read_tokens
        )
        return Joiner(budget.limit, budget.cost)


def summarize_all(
    engine: StrategyEngine | MemoryEngine, requests: Sequence[Request], *, longest_first: bool
) -> list[Summary]:
    """Returns a summary of every document, in their order.

    Args:
        engine: of ``make_engine``.
        requests: the documents.
        longest_first: whether the longest are read first: should memory run out, then at once.
    """
    order = list(range(len(requests)))
    if longest_first:
        order.sort(key=lambda i: -len(requests[i].text))
    requests = [requests[i] for i in order]
    found = map(Summary.of, engine.summaries(requests), requests)
    by_place = dict(zip(order, found, strict=True))
    return [by_place[i] for i in range(len(order))]


class SummarizingModel(Protocol):
    """The part of ``inference.model.Model`` that summaries are made with."""

    config: Any
    params: Params
    summarization: dict[str, Any]

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def trained_strategy(self) -> Strategy: ...

    @property
    def separator(self) -> str: ...

    @property
    def document_summarizer(self) -> DocumentSummarizer: ...

    @property
    def segment_summarizer(self) -> SegmentSummarizer: ...

    @property
    def segment_decoder(self) -> DocumentSummarizer: ...

    def summary_options(self, **options: Any) -> GenerationOptions:
        """Returns options of the search."""


def check_arguments(options: Iterable[str]) -> None:
    """Raises InputError for an option that ``Model.summaries`` does not take."""
    arguments = {field.name for field in dataclasses.fields(SummaryOptions)}
    check_option_names(options, arguments | {"join", "names", "queries"})


def make_engine(
    model: SummarizingModel,
    call: SummaryOptions,
    options: Mapping[str, Any],
    on_segment: Callable[[str], None] | None = None,
) -> StrategyEngine | MemoryEngine:
    """Returns what summarizes documents under the options of one call.

    Args:
        model: loaded.
        call: how documents are read.
        options: of the search.
        on_segment: called with the summary of every segment, one after the other.

    Raises:
        InputError: no tokenizer, or what the model cannot do.
    """
    tokenizer = model.tokenizer
    generation = model.summary_options(**options)
    if call.strategy == "auto" and model.trained_strategy == "memory":
        call = dataclasses.replace(call, strategy="memory")
    _check(model, call)
    if on_segment is not None:
        _check_segments(call)
    prefix = model.summarization.get("prefix", "")
    if call.strategy == "memory":
        return MemoryEngine(
            model.segment_summarizer,
            model.segment_decoder,
            model.params,
            prefix,
            tokenizer,
            call,
            generation,
            on_segment,
        )
    longest = max_input_length(model.config)
    reader = Reader(
        tokenizer,
        prefix=prefix,
        max_new_tokens=generation.max_new_tokens,
        length=cast(Length | None, call.length),
        separator=model.separator,
        on_segment=on_segment,
        **_lengths(model, call),
    )
    if options.get("max_new_tokens") is not None:
        reader = dataclasses.replace(reader, longest_summary=generation.max_new_tokens)
    return StrategyEngine(model.document_summarizer, reader, call, generation, longest)


def _lengths(model: SummarizingModel, call: SummaryOptions) -> dict[str, Any]:
    """Returns the fields of a ``Reader`` that depend on the model's positions."""
    limits = (call.segment_length, max_input_length(model.config), kernel_limit(model.config))
    longest = min((limit for limit in limits if limit is not None), default=None)
    return {
        "longest_whole": longest,
        "longest_input": longest or SEGMENT_LENGTH,
        "longest_summary": model.config.max_target_length,
    }


def _check(model: SummarizingModel, call: SummaryOptions) -> None:
    """Raises InputError for what a model cannot do."""
    if call.strategy == "memory" and model.trained_strategy != "memory":
        raise InputError(
            'strategy="memory" is for models whose config.json has settings of "segments", and '
            "this one's has none; give another strategy"
        )
    if call.segment_length is not None and call.strategy in ("direct", "memory"):
        raise InputError(
            f"segment_length={call.segment_length} is for strategies that cut documents, not for "
            f'"{call.strategy}"; leave it out'
        )
    longest = model.config.max_source_length
    if call.segment_length is not None:
        check_length(call.segment_length, longest, "segment_length")
    if call.strategy == "direct" and call.max_source_length is not None:
        check_length(call.max_source_length, longest, "max_source_length")


def _check_segments(call: SummaryOptions) -> None:
    """Raises InputError where segments cannot be shown as they come."""
    if call.strategy not in ("segments", "memory"):
        raise InputError(
            "segments are to be shown as they come, but this model reads documents in one piece; "
            'give strategy="segments", or leave on_segment (--stream) out'
        )
    if call.batch_size != 1:
        raise InputError(
            f"batch_size={call.batch_size}, but segments of one document are shown as they come; "
            "give 1"
        )
