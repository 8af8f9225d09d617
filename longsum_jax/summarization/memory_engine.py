"""Summarizes segment by segment with models that were trained to."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.inference.devices import rows_on_devices
from longsum_jax.summarization.documents import (
    DocumentSummarizer,
    TokenizedDocument,
)
from longsum_jax.summarization.rounds import Plan, run_plans
from longsum_jax.summarization.segments import SegmentSummarizer
from longsum_jax.summarization.strategies import budget_of
from longsum_jax.summarization.stream import StreamFunctions
from longsum_jax.summarization.summary import BatchSize, Request, Summary
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.text.coverage import summary_coverage
from longsum_jax.text.joining import Joiner
from longsum_jax.text.lengths import Length
from longsum_jax.text.prompts import Prompt
from longsum_jax.text.segment_inputs import SegmentInputs
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Params


class _Segmented(NamedTuple):
    """A document and its segments."""

    request: Request
    inputs: SegmentInputs


class MemoryEngine:
    """Summarizes segment by segment, as the model was trained to.

    Segments are read in order if they carry a memory or may not repeat the
    summaries of earlier ones; a batch then has one segment from each of as many
    documents as it has rows. Otherwise segments of any document are decoded as
    soon as a slot is free. Sampled segments are also read in order, because
    their random keys depend on their index in the document.

    Args:
        segments: summarizer that reads segments in order.
        documents: summarizer for independent segments.
        params: parameters of the model.
        prompt: text around every segment.
        tokenizer: tokenizer of the model.
        options: options of the call.
        generation: generation options.
        on_segment: callback with the summary of each segment, in order.
    """

    def __init__(
        self,
        segments: SegmentSummarizer,
        documents: DocumentSummarizer,
        params: Params,
        prompt: Prompt,
        tokenizer: Tokenizer,
        options: SummaryOptions,
        generation: GenerationOptions,
        on_segment: Callable[[str], None] | None,
    ) -> None:
        self._segments = segments
        self._documents = documents
        self._params = params
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._options = options
        self._generation = generation
        self._on_segment = on_segment

    def summaries(self, requests: Sequence[Request]) -> list[Summary]:
        """Returns a summary of every document, read batch by batch."""
        if self._any_order:
            done = dict(
                self._in_any_order(
                    map(self._read, requests), self._options.batch_size
                )
            )
            return [done[i] for i in range(len(requests))]
        rows = self._rows(self._options.batch_size)
        results: list[Summary] = []
        for start in range(0, len(requests), rows):
            batch = list(map(self._read, requests[start : start + rows]))
            results += self._summarize_batch(batch, rows)
        return results

    def work(self) -> StreamFunctions:
        """Returns the functions for ``summarize_stream``.

        Reading moves extractors and sentence encoders to the device and off it
        again.
        """
        return StreamFunctions(
            self._read, self._length, self._summarize, reads_on_device=True
        )

    @property
    def _any_order(self) -> bool:
        generation = self._generation
        in_order = self._on_segment is not None or generation.do_sample
        # These segments need the memory or summaries of earlier ones.
        depends = (
            self._segments.carries_memory
            or generation.segments_no_repeat_ngram_size > 0
        )
        return not (in_order or depends)

    def _in_any_order(
        self, documents: Iterable[_Segmented], batch_size: BatchSize
    ) -> Iterator[tuple[int, Summary]]:
        """Yields document indices with their summaries, in order of completion."""
        documents = list(documents)
        self._segments.release_auxiliary()

        def decode(
            inputs: Iterable[TokenizedDocument], limit: int | None
        ) -> Iterator[tuple[int, Summary]]:
            del limit  # only used by strategies that divide up a length
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
        for index, summary in run_plans(plans, decode):
            yield index, self._finished(summary, documents[index])

    def _rows(self, batch_size: BatchSize) -> int:
        return rows_on_devices(1 if batch_size == "auto" else batch_size)

    def _length(self, document: _Segmented) -> int:
        return len(document.inputs.sources)

    def _read(self, request: Request) -> _Segmented:
        inputs = self._segments.read(
            request,
            self._prompt,
            self._options.max_source_length,
            self._options.on_overflow,
        )
        return _Segmented(request, inputs)

    def _summarize(
        self, documents: Sequence[_Segmented], batch_size: BatchSize
    ) -> Iterator[list[tuple[int, Summary]]]:
        if self._any_order:
            yield from (
                [done] for done in self._in_any_order(documents, batch_size)
            )
            return
        rows = self._rows(batch_size)
        for start in range(0, len(documents), rows):
            summaries = self._summarize_batch(
                documents[start : start + rows], rows
            )
            yield list(enumerate(summaries, start))

    def _summarize_batch(
        self, batch: Sequence[_Segmented], rows: int
    ) -> list[Summary]:
        on_segment = self._on_segment
        show = (
            None if on_segment is None else (lambda _, text: on_segment(text))
        )
        inputs = [document.inputs for document in batch]
        joiners = [self._joiner(document) for document in batch]
        summaries = self._segments.summarize(
            self._params,
            inputs,
            rows,
            self._generation,
            self._options.seed,
            joiners,
            show,
        )
        return [
            self._finished(summary, document)
            for summary, document in zip(summaries, batch, strict=True)
        ]

    def _finished(self, summary: Summary, document: _Segmented) -> Summary:
        """Returns a summary with its coverage, and its token count if it may have been cut."""
        coverage = summary_coverage(document.request.text, summary.text)
        summary = dataclasses.replace(
            summary, strategy="memory", coverage=coverage
        )
        if self._options.length is None:
            return summary
        ids = self._tokenizer.add_special_tokens(
            self._tokenizer.encode(summary.text)
        )
        return dataclasses.replace(summary, summary_tokens=len(ids))

    def _joiner(self, document: _Segmented) -> Joiner:
        """Returns the joiner of segment summaries, which only concatenates if no length
        is requested.
        """
        if self._options.length is None:
            return Joiner(merges=False)
        inputs = document.inputs
        budget = budget_of(
            cast(Length, self._options.length),
            inputs.document.text,
            inputs.read_tokens,
        )
        return Joiner(budget.limit, budget.cost)
