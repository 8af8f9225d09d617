"""The options of a summarization call, and its documents."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

from longsum_jax.decoding.options import check_option_names, with_options
from longsum_jax.errors import InputError, check_whole, did_you_mean
from longsum_jax.inference.arguments import listed, one_for_each
from longsum_jax.summarization.registry import STRATEGIES
from longsum_jax.summarization.summary import (
    SHORTEST_ROOM,
    BatchSize,
    Overflow,
    Request,
    Strategy,
    check_no_file_name,
    check_text,
)
from longsum_jax.text.joining import join_documents
from longsum_jax.text.lengths import Length, parse_length


def strategy_names() -> list[str]:
    """Returns the names of all strategies; names from other packages come last."""
    return list(dict.fromkeys([*get_args(Strategy), *STRATEGIES]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """All options of a summary: for reading the document, and for generating text.

    ``Model.summaries``, ``Model.stream``, the flags of commands, the server and
    evaluations during training have these options. The descriptions below are
    also the help texts of the flags, in which the words after "None for" are
    the default.

    Attributes:
        strategy: strategy for reading a document: direct (in one piece,
            truncated if it is too long), extract (only the most important
            sentences, selected by the built-in ranker so that they fit),
            segments (a summary of each segment, concatenated), hierarchical
            (segments, then a summary of their summaries), refine (each segment
            together with the summary so far), memory (segments with the memory
            that the model was trained with), or auto (memory if the model has
            one, otherwise direct for documents that fit and hierarchical for
            longer ones).
        length: length of each whole summary: short (75 words), medium (150),
            long (400), "250 words" or 250, "7 sentences", or "5%" of the
            document's words; the summary ends with a whole sentence and has at
            least one. None for the model's own length.
        max_source_length: maximum tokens to read of a document, including
            special tokens; strategy memory stops after a complete segment. None
            for no limit, or with strategy direct for the model's limit.
        segment_length: maximum tokens of a segment, and with strategy auto of a
            document that is read in one piece. None for the model's maximum
            input length, or 1024 if it has none.
        on_overflow: behavior for documents above a maximum: read their
            beginning and report it (truncate), or stop (error).
        batch_size: number of documents or segments decoded together, or auto
            for the fastest number that fits (at most 16 on CPUs, 1 with
            strategy memory); affects speed and memory, not results.
        seed: random seed for sampling.
        prompt: text around every document or segment, with {document} and
            possibly {query}; the user's message for models with a chat
            template, in which special tokens of a document are plain text. None
            for the model's prefix, or with a chat template an instruction to
            summarize.
        generation: options of ``Model.generate`` by name, which override the
            checkpoint's options.

    Raises:
        InputError: an unknown name, or a value of the wrong type or out of
            range.
    """

    strategy: Strategy | str = "auto"
    length: str | int | Length | None = None
    max_source_length: int | None = None
    segment_length: int | None = None
    on_overflow: Overflow = "truncate"
    batch_size: BatchSize = 1
    seed: int = 0
    prompt: str | None = None
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_option_names(
            self.generation, {*READING_OPTIONS, "join", "names", "queries"}
        )
        strategies = strategy_names()
        if self.strategy not in strategies:
            hint = did_you_mean(str(self.strategy), strategies)
            raise InputError(f'strategy="{self.strategy}" is not known; {hint}')
        if self.on_overflow not in get_args(Overflow):
            hint = did_you_mean(str(self.on_overflow), get_args(Overflow))
            raise InputError(
                f'on_overflow="{self.on_overflow}" is not known; {hint}'
            )
        if not isinstance(self.prompt, str | None):
            raise InputError(
                f"prompt={self.prompt!r} must be a text with {{document}}"
            )
        check_whole("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise InputError(f"seed={self.seed} must be below 2**63")
        if self.length is not None:
            object.__setattr__(self, "length", parse_length(self.length))
        if not isinstance(self.batch_size, str):
            check_whole("batch_size", self.batch_size, 1)
        elif self.batch_size != "auto":
            raise InputError(
                f'batch_size="{self.batch_size}"; give a number, or "auto"'
            )
        if self.max_source_length is not None:
            # At least one token and the end of the sequence.
            check_whole("max_source_length", self.max_source_length, 2)
        if self.segment_length is not None:
            check_whole("segment_length", self.segment_length, SHORTEST_ROOM)


# The names of all fields except ``generation``.
READING_OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(SummaryOptions)
    if field.name != "generation"
)


class OptionChanges(TypedDict, total=False):
    """The types of the keywords of ``Model.summaries``, for type checkers and editors.

    They are the fields of ``SummaryOptions`` and ``GenerationOptions``, which
    document them, and ``max_length`` and ``min_length``, which include the
    start token. ``make_options`` also takes the options of transformers that
    are not implemented here; the call then raises InputError unless their
    values have no effect.
    """

    strategy: Strategy | str
    length: str | int | Length | None
    max_source_length: int | None
    segment_length: int | None
    on_overflow: Overflow
    batch_size: BatchSize
    seed: int
    prompt: str | None
    max_length: int | None
    min_length: int | None
    max_new_tokens: int | None
    decoder_start_token_id: int | None
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    min_new_tokens: int | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    no_repeat_ngram_size: int | None
    encoder_no_repeat_ngram_size: int | None
    segments_no_repeat_ngram_size: int | None
    repetition_penalty: float | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int] | None
    bad_words_ids: Sequence[Sequence[int]] | None
    suppress_tokens: Sequence[int] | None
    num_return_sequences: int | None
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None


def make_options(
    options: SummaryOptions | None = None, /, **changes: Any
) -> SummaryOptions:
    """Returns options with some changes.

    Args:
        options: options to change; None for the defaults.
        **changes: ``READING_OPTIONS``, and options of ``Model.generate``, which
            are put into ``generation``.

    Raises:
        InputError: as ``SummaryOptions``.
    """
    options = options or SummaryOptions()
    reading = {
        name: changes.pop(name) for name in READING_OPTIONS if name in changes
    }
    generation = with_options(options.generation, changes)
    return dataclasses.replace(options, **reading, generation=generation)


def make_requests(
    texts: Sequence[str | list[str]] | str,
    names: Sequence[str] | None,
    queries: Sequence[str | None] | None,
    separator: str,
    *,
    join: bool = False,
) -> list[Request]:
    """Returns the documents to summarize.

    Args:
        texts: one or more documents, or lists of several that are read as one.
        names: document names for error messages; default: "document 1", "document 2",
            ...
        queries: query or None for each document.
        separator: separator of documents that are read as one.
        join: True to read all documents as one, with the first name and query.

    Raises:
        InputError: a wrong number of names or queries; a document or query that
            is not a text, an empty document, or a file name instead of a text.
    """
    texts = listed(texts, "texts")
    numbered = [f"document {i}" for i in range(1, len(texts) + 1)]
    names = one_for_each(texts, names, "names", numbered)
    queries = one_for_each(texts, queries, "queries", [None] * len(texts))
    requests = []
    all_parts: list[str] = []
    for text, name, query in zip(texts, names, queries, strict=True):
        parts = text if isinstance(text, list) and text else [text]
        for part in parts:
            request = Request(part, name, query)
            check_text(request)
            check_no_file_name(request)
        if len(parts) > 1:
            joined, borders = join_documents(parts, separator)
            request = Request(joined, name, query, borders=borders)
        requests.append(request)
        all_parts += parts
    if not join or not requests:
        return requests
    text, borders = join_documents(all_parts, separator)
    return [requests[0]._replace(text=text, borders=borders)]
