"""A loaded model that summarizes, and its engine for the options of one call."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Self, Unpack, cast

import jax
import numpy as np

from longsum_jax.checkpoints import huggingface
from longsum_jax.decoding.decoder import with_room
from longsum_jax.decoding.options import GenerationOptions, of_whole_texts
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference import answers, sentences
from longsum_jax.inference.auxiliary import auxiliary_functions, check_auxiliary
from longsum_jax.inference.convertible import ConvertibleModel
from longsum_jax.inference.devices import on_devices
from longsum_jax.inference.padding import (
    PaddedInputs,
    check_length,
    document_inputs,
    kernel_limit,
)
from longsum_jax.inference.programs import EncodedDocuments
from longsum_jax.models.registry import max_input_length
from longsum_jax.summarization.documents import DocumentSummarizer
from longsum_jax.summarization.segments import SegmentSummarizer
from longsum_jax.summarization.strategies import SEGMENT_LENGTH, Reader
from longsum_jax.summarization.strategy_engine import (
    SegmentDecoding,
    StrategyEngine,
)
from longsum_jax.summarization.stream import Result, summarize_stream
from longsum_jax.summarization.summary import Request, Strategy, Summary
from longsum_jax.summarization.summary_options import (
    OptionChanges,
    SummaryOptions,
    make_options,
    make_requests,
)
from longsum_jax.text.joining import BLANK_LINE, document_token_id
from longsum_jax.text.lengths import Length
from longsum_jax.text.prompts import Prompt, make_prompt
from longsum_jax.text.segment_inputs import segment_options
from longsum_jax.tokenizers.files import DOCUMENT_TOKEN


class Model(ConvertibleModel):
    """A loaded model that summarizes documents of any length.

    Made by ``longsum_jax.load``. Everything that does not concern documents is
    in ``inference.model.LoadedModel`` (``encode``, ``logits``, ``generate``,
    ``save``) and ``inference.convertible.ConvertibleModel`` (``to_lsg`` and
    other conversions).
    """

    def summary_options(self, **options: Any) -> GenerationOptions:
        """Returns the options that ``summarize`` would use.

        Options for summaries in the checkpoint override its general generation
        options.

        Args:
            **options: generation options by name, which override both.

        Raises:
            InputError: as ``generation_options``, or num_return_sequences above
                1.
        """
        settings = huggingface.summary_generation_config(
            self.generation_config, self.summarization
        )
        # Some checkpoints set num_return_sequences; a document has exactly one
        # summary.
        settings["num_return_sequences"] = None
        result = self._options(settings, options)
        if result.num_return_sequences > 1:
            raise InputError(
                f"num_return_sequences={result.num_return_sequences}: a document gets one summary; "
                "use generate for several sequences"
            )
        return result

    def summarize(
        self,
        texts: Sequence[str | list[str]] | str,
        options: SummaryOptions | None = None,
        *,
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        join: bool = False,
        **changes: Unpack[OptionChanges],
    ) -> list[str]:
        """Returns the text of each summary; takes the arguments of ``summaries``.

        Raises:
            InputError: as ``summaries``.
        """
        summaries = self.summaries(
            texts, options, names=names, queries=queries, join=join, **changes
        )
        return [summary.text for summary in summaries]

    def summaries(
        self,
        texts: Sequence[str | list[str]] | str,
        options: SummaryOptions | None = None,
        *,
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        join: bool = False,
        **changes: Unpack[OptionChanges],
    ) -> list[Summary]:
        """Summarizes documents in batches of ``batch_size`` documents of similar length.

        A finished document is replaced in its batch by the next one
        (``inference.continuous``). With strategy "memory", or on several
        devices (``on_all_devices``), the documents of a batch start and end
        together instead.

        The defaults are the checkpoint's settings (attribute
        ``summarization``): their prefix is prepended to every input unless
        ``prompt`` is set, and their generation options apply unless overridden
        here. If they contain "segments", strategy "auto" is "memory", which
        reads documents of any length segment by segment.

        Args:
            texts: one or more documents; an element that is itself a list of
                documents is read as one, as with ``join``.
            options: options for reading documents and generating summaries;
                None for the defaults.
            names: document names for error messages, one per document;
                default: "document 1", "document 2", ...
            queries: question or topic of each summary, one per document, or
                None; a query is prepended to its document or to every segment,
                or replaces "{query}" in the prompt.
            join: True to read all documents as one, with the first name and
                query. If the tokenizer has PRIMERA's document token "<doc-sep>",
                this token follows each document and has global attention;
                otherwise an empty line separates the documents.
            **changes: changes to ``options`` by name: fields of
                ``SummaryOptions`` except ``generation``, such as
                ``length="short"``, and options of ``generate``, such as
                ``num_beams=4``, except ``num_return_sequences`` above 1.

        Returns:
            One ``Summary`` per document, in the order of ``texts``, with its
            text and token counts; with ``join`` a single one.

        Raises:
            InputError: no tokenizer, an empty text, a wrong number of names or
                queries, a document longer than ``max_source_length`` or, with
                strategy "direct", than the model's maximum (only with
                on_overflow="error"), an unknown or unsupported strategy, a
                number or length out of range, or num_return_sequences above 1.
        """
        options = make_options(options, **changes)
        engine = make_engine(self, options)
        requests = make_requests(
            texts, names, queries, self.separator, join=join
        )
        longest_first = options.batch_size != 1
        return summarize_all(engine, requests, longest_first=longest_first)

    def read_lengths(
        self,
        texts: Sequence[str | list[str]] | str,
        options: SummaryOptions | None = None,
        *,
        names: Sequence[str] | None = None,
        queries: Sequence[str | None] | None = None,
        join: bool = False,
        **changes: Unpack[OptionChanges],
    ) -> list[int]:
        """Returns the token count of the longest input that ``summaries`` makes of each document.

        Takes the arguments of ``summaries``.

        Raises:
            InputError: as ``summaries``, or the model reads segment by segment.
        """
        engine = make_engine(self, make_options(options, **changes))
        if engine.reads_segments:
            raise InputError(
                f"this model ({self._runner.name}) reads segment by segment, so its memory does "
                "not depend on a document's length"
            )
        requests = make_requests(
            texts, names, queries, self.separator, join=join
        )
        return [engine.longest_input(request) for request in requests]

    def stream(
        self,
        requests: Iterable[Request],
        options: SummaryOptions | None = None,
        *,
        on_segment: Callable[[str], None] | None = None,
        **changes: Unpack[OptionChanges],
    ) -> Iterator[list[Result]]:
        """Summarizes a stream of documents; a thread reads and tokenizes ahead.

        Documents of similar lengths are batched within a window of consecutive
        documents: 64 with batch_size="auto", else four batches; with
        batch_size=1, documents are summarized in order.

        Args:
            requests: documents with their names and queries
                (``summary.Request``); may be a generator.
            options, **changes: options as for ``summaries``.
            on_segment: callback with the text of each segment's summary as
                soon as it is finished; only for strategies "segments" and
                "memory" with batch_size=1.

        Yields:
            In order of completion, lists of pairs (index in ``requests``,
            summary). For a document that cannot be summarized, the pair
            contains an InputError in place of the summary.

        Raises:
            InputError: as ``summaries``, except for errors that concern a
                single document; or ``on_segment`` with another strategy or
                batch size.
        """
        options = make_options(options, **changes)
        engine = make_engine(self, options, on_segment)
        return summarize_stream(engine.work(), requests, options.batch_size)

    def extract(
        self, documents: Sequence[str | list[str]] | str, **options: Any
    ) -> list[list[int]]:
        """Selects sentences of documents with a model trained by ``configs/extractor.py``.

        Args:
            documents: texts, which are split into sentences
                (``text.sentences``), or lists of sentences.
            **options: ``queries``, a text or None for each document, as in
                training; ``threshold``, the probability above which a sentence
                is selected (0.5); ``top_k``, the number of sentences selected
                if none is above the threshold (3); ``batch_size``, sentences
                encoded together (64).

        Returns:
            For each document the indices of the selected sentences, ascending.

        Raises:
            InputError: a model of another kind, no tokenizer, a document
                without sentences, an option out of range.
        """
        return sentences.extract(self, documents, **options)

    def answer(
        self,
        questions: Sequence[str] | str,
        documents: Sequence[str] | str,
        **options: Any,
    ) -> list[answers.Answer]:
        """Finds the answer to each question in its document with a question answering head.

        Args:
            questions, documents: one question per document, or a single pair of
                texts.
            **options: ``max_answer_length``, maximum answer length in tokens
                (30); ``batch_size``, document windows read together (16).

        Returns:
            An ``Answer`` for each question: a span of its document and the
            score.

        Raises:
            InputError: a model of another kind, no tokenizer, a value that is
                not a text, an empty document, a question that leaves no room
                for the document, an option out of range.
        """
        return answers.answer(self, questions, documents, **options)

    @contextmanager
    def on_all_devices(
        self, devices: Sequence[jax.Device] | None = None
    ) -> Iterator[Self]:
        """Yields a model that splits every batch over devices for the duration of the block.

            with model.on_all_devices() as parallel:
                summaries = parallel.summaries(texts, batch_size="auto")

        The documents of a batch then start and end together. With one device,
        it yields this model.

        Args:
            devices: devices to use, by default all local ones; each stores all
                parameters.
        """
        if devices is None:
            devices = jax.local_devices()
        else:
            devices = list(devices)
        if len(devices) == 1:
            yield self
            return
        with on_devices(self.params, devices) as params:
            yield self.with_params(params)

    @property
    def trained_strategy(self) -> Strategy:
        """The strategy that the model was trained for: "memory" or "direct"."""
        if "segments" in self.summarization:
            return "memory"
        return "direct"

    def prompt(self, template: str | None = None) -> Prompt:
        """Returns the text around every document, see ``summaries``.

        Args:
            template: prompt of the user; None for the model's default.

        Raises:
            InputError: the template has no field for the document, or the
                model's chat template fails.
        """
        return make_prompt(
            self.tokenizer, template, self.summarization.get("prefix")
        )

    @property
    def separator(self) -> str:
        """The separator between documents that are read as one, see ``text.joining``."""
        if self._document_id is None:
            return BLANK_LINE
        return DOCUMENT_TOKEN

    @cached_property
    def _document_id(self) -> int | None:
        if self.has_tokenizer:
            return document_token_id(self.tokenizer)
        return None

    @property
    def segment_summarizer(self) -> SegmentSummarizer:
        """The summarizer for models that were trained to read segment by segment."""
        # it compiles programs of its own, outside of the runner
        self.check_process()
        return self._segment_summarizer

    @cached_property
    def _segment_summarizer(self) -> SegmentSummarizer:
        options = segment_options(self.summarization)
        check_auxiliary(self.auxiliary, options)
        return SegmentSummarizer(
            self.module,
            self.tokenizer.plain,
            options,
            pad=partial(self.padded, inputs={}),
            auxiliary=auxiliary_functions(self.auxiliary),
            storage=self.decoder_storage,
        )

    @property
    def segment_decoder(self) -> DocumentSummarizer:
        """The summarizer for segments that carry no memory."""
        return self._summarizer(lambda ids: {})

    @property
    def document_summarizer(self) -> DocumentSummarizer:
        """The summarizer for documents that fit in one input."""
        return self._summarizer(self._document_inputs)

    def _summarizer(
        self, inputs: Callable[[np.ndarray], Mapping[str, np.ndarray]]
    ) -> DocumentSummarizer:
        """Returns a summarizer; ``inputs`` makes the encoder's other inputs from ids."""

        def generate(
            ids: np.ndarray,
            mask: np.ndarray,
            options: GenerationOptions,
            seed: int,
        ) -> Generated:
            return self._runner.generate(ids, mask, options, seed, inputs(ids))

        def pad(ids: np.ndarray, mask: np.ndarray) -> PaddedInputs:
            return self.padded(ids, mask, inputs(ids))

        return DocumentSummarizer(
            self.config,
            self.tokenizer.plain,
            generate=generate,
            make_slots=partial(self._runner.slots, pad),
        )

    def padded_document(
        self, ids: np.ndarray, mask: np.ndarray
    ) -> PaddedInputs:
        """Returns the padded encoder inputs of documents, with their global attention."""
        return self.padded(ids, mask, self._document_inputs(ids))

    def encoded_documents(
        self, ids: np.ndarray, mask: np.ndarray
    ) -> EncodedDocuments:
        """Returns encoded documents for ``noisy.NoisySearch``.

        Args:
            ids: int32 [batch, length].
            mask: bool [batch, length], True on real tokens.
        """
        return self._runner.encoded(self.padded_document(ids, mask))

    def _longest_input(self) -> str:
        if "segments" not in self.summarization:
            return super()._longest_input()
        try:
            length = segment_options(self.summarization).segment_length
        except InputError:  # invalid options; summarizing reports them
            return "segments"
        return f"segments of {length:,} tokens"

    def _document_inputs(self, ids: np.ndarray) -> Mapping[str, np.ndarray]:
        return document_inputs(ids, self._document_id, self.config)


def make_engine(
    model: Model,
    options: SummaryOptions,
    on_segment: Callable[[str], None] | None = None,
    room: int | None = None,
) -> StrategyEngine:
    """Returns the engine that summarizes documents with the options of one call.

    Args:
        model: loaded model.
        options: options of the call.
        on_segment: callback with the summary of each segment, in order.
        room: number of tokens, at least ``max_new_tokens``, for which the
            programs of strategy "memory" are compiled; the limits are then
            values. None to compile programs for the limits.

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
    if options.strategy != "memory":
        generation = of_whole_texts(
            generation, options.generation, f'"{options.strategy}"'
        )
    longest = max_input_length(model.config)
    reader = Reader(
        tokenizer,
        prompt=model.prompt(options.prompt),
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
    engine = partial(StrategyEngine, options=options, longest_input=longest)
    if options.strategy != "memory":
        return engine(model.document_summarizer, reader, generation=generation)
    summarizer = model.segment_summarizer
    carries_state = (
        room is not None
        or summarizer.carries_memory
        or generation.segments_no_repeat_ngram_size > 0
        # Random keys depend on the index of a segment in its document.
        or generation.do_sample
    )
    limits = None
    if room is not None:
        generation, limits = with_room(generation, room)
    decode = partial(
        summarizer.decode,
        model.params,
        options=generation,
        seed=options.seed,
        limits=limits,
    )
    return engine(
        model.segment_decoder,
        dataclasses.replace(reader, carries_state=carries_state),
        generation=generation,
        segments=SegmentDecoding(summarizer, decode),
    )


def summarize_all(
    engine: StrategyEngine,
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


def _lengths(model: Model, options: SummaryOptions) -> dict[str, Any]:
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


def _check(model: Model, options: SummaryOptions) -> None:
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
            'on_segment (--stream) is for strategy="segments" or "memory", not for '
            f'"{options.strategy}"; give one of them, or leave it out'
        )
    if options.batch_size != 1:
        raise InputError(
            f"batch_size={options.batch_size}, but segments are shown for one document at a time; "
            "give 1"
        )
