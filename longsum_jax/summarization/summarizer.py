"""Summarizes documents with any strategy, all at once or as a stream.

``make_engine`` returns the engine for the options of one call: a
``StrategyEngine``, or a ``MemoryEngine`` for models that were trained to read
segment by segment.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from longsum_jax.decoding.options import GenerationOptions, of_whole_texts
from longsum_jax.errors import InputError
from longsum_jax.inference.padding import check_length, kernel_limit
from longsum_jax.models.registry import max_input_length
from longsum_jax.ranking.selection import Length
from longsum_jax.summarization.documents import DocumentSummarizer
from longsum_jax.summarization.memory_engine import MemoryEngine
from longsum_jax.summarization.segments import SegmentSummarizer
from longsum_jax.summarization.strategies import SEGMENT_LENGTH, Reader
from longsum_jax.summarization.strategy_engine import StrategyEngine
from longsum_jax.summarization.summary import Request, Strategy, Summary
from longsum_jax.summarization.summary_options import SummaryOptions
from longsum_jax.text.prompts import Prompt
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Params


class SummarizingModel(Protocol):
    """The attributes of ``summarization.model.Model`` used to summarize."""

    config: Any
    params: Params
    summarization: dict[str, Any]

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def trained_strategy(self) -> Strategy: ...

    def prompt(self, template: str | None = None) -> Prompt:
        """Returns the text around every document."""

    @property
    def separator(self) -> str: ...

    @property
    def document_summarizer(self) -> DocumentSummarizer: ...

    @property
    def segment_summarizer(self) -> SegmentSummarizer: ...

    @property
    def segment_decoder(self) -> DocumentSummarizer: ...

    def summary_options(self, **options: Any) -> GenerationOptions:
        """Returns the generation options."""


def make_engine(
    model: SummarizingModel,
    options: SummaryOptions,
    on_segment: Callable[[str], None] | None = None,
) -> StrategyEngine | MemoryEngine:
    """Returns the engine that summarizes documents with the options of one call.

    Args:
        model: loaded model.
        options: options of the call.
        on_segment: callback with the summary of each segment, in order.

    Raises:
        InputError: the model has no tokenizer or does not support the options.
    """
    tokenizer = model.tokenizer.plain
    generation = model.summary_options(**options.generation)
    if options.strategy == "auto" and model.trained_strategy == "memory":
        options = dataclasses.replace(options, strategy="memory")
    _check(model, options)
    if on_segment is not None:
        _check_segments(options)
    prompt = model.prompt(options.prompt)
    if options.strategy == "memory":
        return MemoryEngine(
            model.segment_summarizer,
            model.segment_decoder,
            model.params,
            prompt,
            tokenizer,
            options,
            generation,
            on_segment,
        )
    generation = of_whole_texts(
        generation, options.generation, f'"{options.strategy}"'
    )
    longest = max_input_length(model.config)
    reader = Reader(
        tokenizer,
        prompt=prompt,
        max_new_tokens=generation.max_new_tokens,
        length=cast(Length | None, options.length),
        separator=model.separator,
        on_segment=on_segment,
        **_lengths(model, options),
    )
    # An explicit limit also bounds token limits derived from a length.
    if options.generation.get("max_new_tokens") is not None:
        reader = dataclasses.replace(
            reader, longest_summary=generation.max_new_tokens
        )
    return StrategyEngine(
        model.document_summarizer, reader, options, generation, longest
    )


def summarize_all(
    engine: StrategyEngine | MemoryEngine,
    requests: Sequence[Request],
    *,
    longest_first: bool,
) -> list[Summary]:
    """Returns a summary of every document, in the order of ``requests``.

    Args:
        engine: engine made by ``make_engine``.
        requests: documents to summarize.
        longest_first: True to read the longest first, so that running out of
            memory happens early.
    """
    order = list(range(len(requests)))
    if longest_first:
        order.sort(key=lambda i: -len(requests[i].text))
    requests = [requests[i] for i in order]
    summaries = map(Summary.of, engine.summaries(requests), requests)
    # Undo the sorting.
    by_index = dict(zip(order, summaries, strict=True))
    return [by_index[i] for i in range(len(order))]


def _lengths(
    model: SummarizingModel, options: SummaryOptions
) -> dict[str, Any]:
    """Returns the fields of a ``Reader`` that depend on the model's positions."""
    model_limits = (max_input_length(model.config), kernel_limit(model.config))
    limits = [limit for limit in model_limits if limit is not None]
    if options.segment_length is None:
        requested = []
    else:
        requested = [options.segment_length]
    longest = min([*limits, *requested], default=None)
    return {
        "longest_whole": longest,
        "longest_input": longest or SEGMENT_LENGTH,
        "is_longest_input": longest in limits,
        "longest_summary": model.config.max_target_length,
    }


def _check(model: SummarizingModel, options: SummaryOptions) -> None:
    """Raises InputError for options that a model does not support."""
    if options.strategy == "memory" and model.trained_strategy != "memory":
        raise InputError(
            'strategy="memory" needs a model with settings of "segments" in its config.json, '
            "which this model lacks; give another strategy"
        )
    if options.segment_length is not None and options.strategy in (
        "direct",
        "memory",
    ):
        raise InputError(
            f"segment_length={options.segment_length} is for strategies that cut documents, "
            f'not for "{options.strategy}"; leave it out'
        )
    longest = model.config.max_source_length
    if options.segment_length is not None:
        check_length(options.segment_length, longest, "segment_length")
    if options.strategy == "direct" and options.max_source_length is not None:
        check_length(options.max_source_length, longest, "max_source_length")


def _check_segments(options: SummaryOptions) -> None:
    """Raises InputError if segments cannot be streamed."""
    if options.strategy not in ("segments", "memory"):
        raise InputError(
            "segments cannot be shown one by one, because this model reads documents in one piece; "
            'give strategy="segments", or leave on_segment (--stream) out'
        )
    if options.batch_size != 1:
        raise InputError(
            f"batch_size={options.batch_size}, but segments are shown for one document at a time; "
            "give 1"
        )
