"""The options of a summarization call, and its documents."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import get_args

from longsum_jax.decoding.options import check_option_names
from longsum_jax.errors import InputError, check_whole, did_you_mean
from longsum_jax.inference.arguments import check_counts, listed
from longsum_jax.ranking.selection import Length, parse_length
from longsum_jax.summarization.strategies import SHORTEST_ROOM, STRATEGIES
from longsum_jax.summarization.summary import (
    BatchSize,
    Overflow,
    Request,
    Strategy,
    check_no_file_name,
    check_text,
)
from longsum_jax.text.joining import join_documents


def strategy_names() -> list[str]:
    """Returns the names of all strategies; names from other packages come last."""
    return list(dict.fromkeys([*get_args(Strategy), *STRATEGIES]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """Options for reading documents, with the meanings of ``Model.summaries``.

    Attributes:
        strategy: "auto", "memory" or a name in ``strategies.STRATEGIES``.
        length: length of each whole summary; None leaves it to the model.
        max_source_length: maximum tokens to read of a document; None for all
            that the strategy and the model can read.
        segment_length: tokens of an input when documents are cut; None for the
            model's number of positions, or 1,024.
        on_overflow: "truncate" or "error", for documents that are too long.
        batch_size: documents or segments decoded together, or "auto".
        seed: random seed of the sampling, from 0 to 2^63 - 1.
        prompt: text around each input, with "{document}" and possibly
            "{query}"; None for the checkpoint's prefix or chat template.

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

    def __post_init__(self) -> None:
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


def check_arguments(options: Iterable[str]) -> None:
    """Raises InputError for an option that ``Model.summaries`` does not accept."""
    arguments = {field.name for field in dataclasses.fields(SummaryOptions)}
    check_option_names(options, arguments | {"join", "names", "queries"})


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
    names = names or [f"document {i}" for i in range(1, len(texts) + 1)]
    queries = queries or [None] * len(texts)
    check_counts(len(texts), names=names, queries=queries)
    requests = []
    all_parts: list[str] = []
    for text, name, query in zip(texts, names, queries, strict=True):
        is_several = isinstance(text, list) and len(text) > 1
        parts = text if is_several else [text]
        for part in parts:
            request = Request(part, name, query)
            check_text(request)
            check_no_file_name(request)
        if is_several:
            joined, borders = join_documents(parts, separator)
            request = Request(joined, name, query, borders=borders)
        requests.append(request)
        all_parts += parts
    if not join or not requests:
        return requests
    text, borders = join_documents(all_parts, separator)
    return [requests[0]._replace(text=text, borders=borders)]
