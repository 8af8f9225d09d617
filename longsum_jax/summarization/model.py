"""A loaded model that summarizes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np

from longsum_jax.checkpoints import huggingface
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference.model import LoadedModel
from longsum_jax.inference.padding import PaddedInputs, document_inputs
from longsum_jax.inference.programs import EncodedDocuments
from longsum_jax.summarization.documents import DocumentSummarizer
from longsum_jax.summarization.memory_engine import MemoryEngine
from longsum_jax.summarization.segments import SegmentSummarizer
from longsum_jax.summarization.stream import Result, summarize_stream
from longsum_jax.summarization.summarizer import make_engine, summarize_all
from longsum_jax.summarization.summary import Request, Strategy, Summary
from longsum_jax.summarization.summary_options import (
    OptionChanges,
    SummaryOptions,
    make_options,
    make_requests,
)
from longsum_jax.text.joining import BLANK_LINE, document_token_id
from longsum_jax.text.prompts import Prompt, make_prompt
from longsum_jax.text.segment_inputs import segment_options
from longsum_jax.tokenizers.files import DOCUMENT_TOKEN


class Model(LoadedModel):
    """A loaded model that summarizes documents of any length.

    Made by ``longsum_jax.load``. Everything that does not concern summaries
    (``encode``, ``logits``, ``generate``, ``save`` and so on) is in
    ``inference.model.LoadedModel``.
    """

    def summary_options(self, **options: Any) -> GenerationOptions:
        """Returns the options that ``summarize`` would use.

        Options for summaries in the checkpoint override its general generation
        options.

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
        texts: Sequence[str] | str,
        options: SummaryOptions | None = None,
        **changes: Unpack[OptionChanges],
    ) -> list[str]:
        """Returns a summary of every document; takes the arguments of ``summaries``."""
        summaries = self.summaries(texts, options, **changes)
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
        (``inference.continuous``). With segment memories, or on a mesh, the
        documents of a batch start and end together instead.

        The checkpoint's settings (attribute ``summarization``) are the
        defaults: its prefix is prepended to every input, and its options apply
        unless overridden here. If they contain "segments", documents of any
        length are read segment by segment, with strategy "memory".

        Args:
            texts: one or more documents; an element that is itself a list of
                documents is read as one, as with ``join``.
            options: options for reading documents and generating summaries;
                None for the defaults.
            names: document names for error messages; default: "document 1",
                "document 2", ...
            queries: question or topic of each summary, or None; a query is
                prepended to its document or to every segment, or replaces
                "{query}" in the prompt.
            join: True to read all documents as one, with the first name and
                query. If the tokenizer has PRIMERA's document token "<doc-sep>",
                this token follows each document and has global attention;
                otherwise an empty line separates the documents.
            **changes: changes to ``options`` by name: any field of
                ``SummaryOptions``, such as ``length="short"``, and any option
                of ``generate``, such as ``num_beams=4``, except
                ``num_return_sequences`` above 1.

        Returns:
            A summary of every document, or one of all documents with ``join``,
            and statistics on the tokens read.

        Raises:
            InputError: no tokenizer, an empty text, a document that exceeds the
                limit (with on_overflow="error") or the model's maximum, an unknown or
                unsupported strategy, a number or length out of range, or
                num_return_sequences above 1.
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
        if isinstance(engine, MemoryEngine):
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

        With batch_size="auto", documents of similar lengths are grouped within
        a window of 64.

        Args:
            requests: documents with their names and queries
                (``summary.Request``); may be a generator.
            options, **changes: options as for ``summaries``.
            on_segment: callback with the summary of each segment as soon as it
                is finished; for strategies "segments" and "memory" with
                batch_size=1.

        Yields:
            In order of completion, lists of pairs (index in ``requests``,
            summary). For a document that cannot be summarized, the pair
            contains an InputError in place of the summary.

        Raises:
            InputError: as ``summaries``, except for errors that concern a
                single document.
        """
        options = make_options(options, **changes)
        engine = make_engine(self, options, on_segment)
        return summarize_stream(engine.work(), requests, options.batch_size)

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
        self.auxiliary.check(options)
        return SegmentSummarizer(
            self.module,
            self.tokenizer.plain,
            options,
            pad=partial(self.padded, inputs={}),
            auxiliary=self.auxiliary.functions(),
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
        """Returns encoded documents for ``programs.NoisySearch``.

        Args:
            ids: int32 [batch, length].
            mask: bool [batch, length], True on real tokens.
        """
        return self._runner.encoded(self.padded_document(ids, mask))

    def _document_inputs(self, ids: np.ndarray) -> Mapping[str, np.ndarray]:
        return document_inputs(ids, self._document_id, self.config)
