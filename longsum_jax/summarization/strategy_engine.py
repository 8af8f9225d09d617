"""Summarizes with the strategies of ``summarization.strategies``."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, cast

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.inference.devices import rows_on_devices
from longsum_jax.summarization.documents import (
    DocumentSummarizer,
    TokenizedDocument,
)
from longsum_jax.summarization.registry import STRATEGIES
from longsum_jax.summarization.rounds import Plan, run_plans
from longsum_jax.summarization.segments import SegmentSummarizer
from longsum_jax.summarization.strategies import (
    Reader,
    StepInput,
    StrategyInput,
)
from longsum_jax.summarization.stream import StreamFunctions, coarse_length
from longsum_jax.summarization.summary import (
    BatchSize,
    Request,
    Strategy,
    Summary,
)
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.text.coverage import summary_coverage
from longsum_jax.text.segment_inputs import SegmentInputs


class SegmentDecoding(NamedTuple):
    """Strategy "memory" in one call.

    Attributes:
        summarizer: summarizer that reads the segments.
        decode: function of (inputs of documents, batch_size=) that yields the
            summaries of their first segments, of their second segments, and so
            on, see ``SegmentSummarizer.decode``.
    """

    summarizer: SegmentSummarizer
    decode: Callable[..., Iterator[list[Summary]]]


class StrategyEngine:
    """Summarizes with the strategies of ``summarization.strategies``.

    The inputs of a round are decoded in any order, together with the inputs of
    other documents. Segments that depend on earlier ones are decoded in order;
    a batch then has one segment from each of as many documents as it has rows.

    Args:
        documents: summarizer that decodes the inputs.
        reader: properties of the model and the call.
        options: options of the call.
        generation: generation options.
        longest_input: number of positions of the model; None for no limit.
        segments: reading and decoding of segments for strategy "memory"; None
            for other strategies.
    """

    def __init__(
        self,
        documents: DocumentSummarizer,
        reader: Reader,
        options: SummaryOptions,
        generation: GenerationOptions,
        longest_input: int | None,
        segments: SegmentDecoding | None = None,
    ) -> None:
        self._documents = documents
        self._reader = reader
        self._options = options
        self._generation = generation
        self._longest_input = longest_input
        self._segments = segments

    @property
    def reads_segments(self) -> bool:
        """True for strategy "memory", for which reading itself may run models on the device."""
        return self._segments is not None

    def summaries(self, requests: Sequence[Request]) -> list[Summary]:
        """Returns a summary of every document.

        A thread reads ahead while earlier documents are decoded, unless reading
        needs the device; it also ends if an error is raised.
        """
        batch_size = self._options.batch_size
        if self.reads_segments:
            summaries = self._summarize_segments(
                map(self.plan, requests), batch_size
            )
            done = dict(itertools.chain.from_iterable(summaries))
            return [done[i] for i in range(len(requests))]
        with (
            ThreadPoolExecutor(1, "tokenizer") as thread,
            contextlib.closing(
                cast(Generator[Plan], thread.map(self.plan, requests))
            ) as read,
        ):
            plans: Iterable[Plan] = read
            # decode inputs with the same limit together
            if self._options.length is not None:
                plans = list(read)
            done = dict(run_plans(plans, self._decode))
        return [done[i] for i in range(len(requests))]

    def work(self) -> StreamFunctions:
        """Returns the functions for ``summarize_stream``."""
        if self.reads_segments:
            return StreamFunctions(
                self.plan,
                _num_segments,
                self._summarize_segments,
                reads_on_device=True,
            )
        return StreamFunctions(
            self.plan, lambda plan: plan.num_tokens, self._summarize, False
        )

    def source(self, request: Request) -> tuple[str, StrategyInput]:
        """Returns the strategy for a document, and the part of the document that is read.

        Raises:
            InputError: the document is empty or too long.
        """
        strategy, limit = (
            self._options.strategy,
            self._options.max_source_length,
        )
        on_overflow = self._options.on_overflow
        if self._segments is not None:
            summarizer = self._segments.summarizer
            segments = summarizer.read(
                request, self._reader.prompt, limit, on_overflow
            )
            document = summarizer.read_ids(segments)
            return strategy, StrategyInput(
                self._reader, request, document, segments=segments
            )
        if strategy == "direct" and limit is None:
            limit = self._longest_input
        is_longest = strategy == "direct" and limit == self._longest_input
        document = self._documents.read(
            request,
            limit,
            on_overflow,
            prompt=self._reader.prompt,
            is_longest=is_longest,
        )
        source = StrategyInput(self._reader, request, document)
        if strategy == "auto":
            strategy = choose_strategy(source)
        if strategy == "direct":
            self._documents.check_whole(document, request.name)
        # Strategies cut the text, so it must be truncated like the tokens.
        elif len(document.ids) < document.total_tokens:
            beginning = self._beginning(request, document)
            source = StrategyInput(self._reader, request, document, beginning)
        return strategy, source

    def longest_input(self, request: Request) -> int:
        """Returns the token count of the longest input made from a document.

        Raises:
            InputError: the document cannot be summarized.
        """
        strategy, source = self.source(request)
        length = len(source.document.ids)
        if strategy == "direct":
            return length
        return min(length, self._reader.longest_input)

    def _beginning(
        self, request: Request, document: TokenizedDocument
    ) -> Request:
        """Returns the beginning of a document, up to the last token that is read."""
        spans = self._reader.tokenizer.spans(request.text)
        # Special tokens have no span, so count back from the end.
        count = len(spans) - document.total_tokens + len(document.ids)
        stop = spans[max(count, 1) - 1][1] if spans else 0
        borders = tuple(border for border in request.borders if border < stop)
        beginning = request._replace(text=request.text[:stop], borders=borders)
        if not beginning.text.strip():
            raise InputError(
                f"{request.name} has no word within max_source_length="
                f"{self._options.max_source_length}; raise it"
            )
        return beginning

    def plan(self, request: Request) -> Plan:
        """Tokenizes a document and starts its strategy.

        Raises:
            InputError: the document cannot be summarized.
        """
        strategy, source = self.source(request)
        return Plan(summarize_steps(source, strategy), source.segments)

    @property
    def documents(self) -> DocumentSummarizer:
        """The summarizer that decodes the inputs."""
        return self._documents

    @property
    def seed(self) -> int:
        """The random seed for sampling."""
        return self._options.seed

    def generation(self, limit: int | None) -> GenerationOptions:
        """Returns the generation options of an input with this token limit; None for no limit."""
        generation = self._generation
        if limit is not None:
            # A small limit must not conflict with the minimum length.
            shortest = min(generation.min_new_tokens, limit // 2)
            generation = dataclasses.replace(
                generation, max_new_tokens=limit, min_new_tokens=shortest
            )
        return generation

    def _decode(
        self,
        documents: Iterable[TokenizedDocument],
        limit: int | None,
        **sizes: Any,
    ) -> Iterator[tuple[int, Summary]]:
        generation = self.generation(limit)
        sizes = {
            "batch_size": self._options.batch_size,
            "seed": self._options.seed,
        } | sizes
        return self._documents.decode(documents, options=generation, **sizes)

    def _summarize(
        self, plans: Sequence[Plan], batch_size: BatchSize
    ) -> Iterator[list[tuple[int, Summary]]]:
        limits = (self._options.max_source_length, self._longest_input)
        limit = min(
            (bound for bound in limits if bound is not None), default=None
        )

        def padded_length(length: int) -> int:
            if self._documents.depends_on_padding:
                return length
            # At most the limit: padding beyond it would exceed the model's
            # positions.
            coarse = coarse_length(length)
            if limit is None:
                return coarse
            return max(length, min(coarse, limit))

        decode = partial(
            self._decode, batch_size=batch_size, padded_length=padded_length
        )
        for done in run_plans(plans, decode):
            yield [done]

    def _summarize_segments(
        self, plans: Iterable[Plan], batch_size: BatchSize
    ) -> Iterator[list[tuple[int, Summary]]]:
        """Yields indices of plans of strategy "memory" with their summaries, as they finish."""
        assert self._segments is not None
        summarizer, decode_segments = self._segments
        if not self._reader.in_order:
            plans = list(plans)
            summarizer.release_auxiliary()
            length = summarizer.length
            decode = partial(
                self._decode,
                batch_size=batch_size,
                padded_length=lambda _: length,
            )
            for done in run_plans(plans, decode):
                yield [done]
            return
        rows = rows_on_devices(1 if batch_size == "auto" else batch_size)
        remaining = iter(plans)
        start = 0
        while batch := list(itertools.islice(remaining, rows)):
            summarizer.release_auxiliary()
            documents = [cast(SegmentInputs, plan.segments) for plan in batch]
            rounds = decode_segments(documents, batch_size=rows)
            summaries = sorted(
                run_plans(batch, partial(_decode_next_segments, rounds))
            )
            yield [(start + index, summary) for index, summary in summaries]
            start += len(batch)


def _num_segments(plan: Plan) -> int:
    return len(cast(SegmentInputs, plan.segments).sources)


def _decode_next_segments(
    rounds: Iterator[list[Summary]],
    inputs: Iterable[TokenizedDocument],
    limit: int | None,
) -> Iterator[tuple[int, Summary]]:
    """Yields the summaries of a round, whose inputs are the next segments of the same documents."""
    del limit  # only used by strategies that divide up a length
    for index, (_, summary) in enumerate(
        zip(inputs, next(rounds), strict=True)
    ):
        yield index, summary


def choose_strategy(source: StrategyInput) -> Strategy:
    """Returns the strategy that "auto" selects.

    A document that fits is read whole. Longer ones are read with
    "hierarchical": of the strategies that read the whole document, it retains
    the most content (docs/results/quality.md), and the summary is as long as
    the model was trained to write. "segments" grows with the document, and
    "refine" needs sequential calls. "extract" retains as much at lower cost,
    but does not read most of the document.
    """
    return "direct" if source.fits else "hierarchical"


def summarize_steps(
    source: StrategyInput, name: str
) -> Generator[list[StepInput], list[Summary], Summary]:
    """Runs a strategy and returns its summary with statistics on what was read.

    Args:
        source: document to summarize.
        name: name in ``STRATEGIES``.
    """
    # Strategies are generators: they yield inputs and receive summaries, so
    # that the inputs of many documents can be decoded in one batch.
    draft = yield from STRATEGIES[name](source)
    if draft.read_tokens is None:
        read = len(source.document.ids)
    else:
        read = draft.read_tokens
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
        prompt=source.reader.prompt,
    )
