"""Summarizes documents that fit in one input, in batches or in slots."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference.continuous import (
    Arrivals,
    Arrived,
    ContinuousBatch,
    num_slots,
)
from longsum_jax.inference.devices import rows_on_devices
from longsum_jax.inference.padding import (
    check_kernel_length,
    depends_on_padding,
    padded_rows,
)
from longsum_jax.ops.ssm.kernel import MAX_LENGTH
from longsum_jax.summarization.summary import (
    BatchSize,
    Overflow,
    Request,
    Summary,
    check_text,
)
from longsum_jax.text.prompts import NO_PROMPT, Prompt
from longsum_jax.tokenizers.base import Tokenizer

# (ids, mask, options, seed) -> sequences
Generate = Callable[[np.ndarray, np.ndarray, GenerationOptions, int], Generated]
# (batch_size=, options=, seed=) -> slots
MakeSlots = Callable[..., ContinuousBatch]


def check_overflow(
    name: str,
    total: int,
    limit: int,
    on_overflow: Overflow,
    *,
    is_longest: bool = False,
) -> None:
    """Raises InputError if a document exceeds the limit and must not be truncated.

    Args:
        name: name of the document.
        total: number of tokens of the document.
        limit: maximum number of tokens.
        on_overflow: "error" to raise.
        is_longest: True if the model reads no longer input, so that the limit
            cannot be raised.
    """
    if total <= limit or on_overflow != "error":
        return
    if is_longest:
        problem = (
            f"this model reads at most {limit} at once; choose strategy=auto"
        )
    else:
        problem = f"more than max_source_length={limit}; raise it"
    raise InputError(
        f"{name} has {total} tokens, {problem}, or allow on_overflow=truncate"
    )


class TokenizedDocument(NamedTuple):
    """A tokenized document.

    Attributes:
        ids: tokens that the model reads, including special tokens.
        total_tokens: tokens of the whole document, including tokens beyond the
            limit.
    """

    ids: list[int]
    total_tokens: int


def summary_of_row(
    tokenizer: Tokenizer, document: TokenizedDocument, out: Generated, row: int
) -> Summary:
    """Returns the summary in a row of decoded sequences.

    Args:
        tokenizer: tokenizer of the model.
        document: tokens of the row's input.
        out: decoded sequences, on the host.
        row: index of the sequence.
    """
    read = len(document.ids)
    return Summary(
        text=_decoded(tokenizer, out, row),
        document_tokens=document.total_tokens,
        read_tokens=read,
        dropped_tokens=document.total_tokens - read,
        summary_tokens=int(out.lengths[row]),
        ended="eos" if out.ended[row] else "limit",
    )


def _decoded(tokenizer: Tokenizer, out: Generated, row: int) -> str:
    # Without the start token.
    ids = out.sequences[row, 1 : 1 + int(out.lengths[row])]
    return tokenizer.decode(ids.tolist())


class DocumentSummarizer:
    """Summarizes with a model that reads each document in one input.

    Args:
        config: config of the model.
        tokenizer: tokenizer of the model.
        generate: function that decodes a batch.
        make_slots: factory of decoding slots; None to decode batches that start
            and end together.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Tokenizer,
        *,
        generate: Generate,
        make_slots: MakeSlots | None,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._generate = generate
        self._make_slots = make_slots

    @property
    def depends_on_padding(self) -> bool:
        """True if more padding changes a summary."""
        return depends_on_padding(self._config)

    def read(
        self,
        request: Request,
        limit: int | None,
        on_overflow: Overflow,
        *,
        prompt: Prompt = NO_PROMPT,
        is_longest: bool = False,
    ) -> TokenizedDocument:
        """Tokenizes a document with its prompt and query.

        Args:
            request: document to read.
            limit: maximum number of tokens to read; None for all.
            on_overflow: behavior for longer documents.
            prompt: text around every document.
            is_longest: True if the model reads no longer input than the limit.

        Raises:
            InputError: the text is empty or too long.
        """
        check_text(request)
        prompted = prompt.encode(self._tokenizer, request.text, request.query)
        # Truncation below cuts the text, but not the special tokens.
        read = prompt.source(self._tokenizer, prompted)
        total = len(read)
        if limit is not None and total > limit:
            check_overflow(
                request.name, total, limit, on_overflow, is_longest=is_longest
            )
            read = prompt.source(self._tokenizer, prompted, limit)
        return TokenizedDocument(read, total)

    def check_whole(self, document: TokenizedDocument, name: str) -> None:
        """Raises InputError if the model cannot read the document in one input."""
        check_kernel_length(
            len(document.ids),
            self._config,
            name,
            f"read its beginning with max_source_length={MAX_LENGTH} "
            f"(--max_source_length={MAX_LENGTH}), or choose another strategy",
        )

    def decode(
        self,
        documents: Iterable[TokenizedDocument],
        *,
        batch_size: BatchSize,
        options: GenerationOptions,
        seed: int,
        padded_length: Callable[[int], int] = int,
    ) -> Iterator[tuple[int, Summary]]:
        """Yields the index of each document with its summary, in order of completion.

        Args:
            documents: documents to summarize.
            batch_size: documents decoded together.
            options: generation options.
            seed: random seed for sampling.
            padded_length: function from the longest length of a batch to its
                padded length.
        """
        if batch_size == "auto":
            documents = list(documents)
            batch_size = num_slots(
                self._config, [len(document.ids) for document in documents]
            )
        batch_size = rows_on_devices(batch_size)
        # On a mesh, each device decodes its share of the rows, and all rows
        # start and end together.
        is_on_mesh = jax.sharding.get_abstract_mesh().size > 1
        together = batch_size == 1 or is_on_mesh or self._make_slots is None
        if not together:
            documents = list(documents)
            # Slots without a document would still be decoded, so use no more
            # than needed.
            batch_size = padded_rows(len(documents), batch_size)
            together = batch_size == 1
        # In slots, a finished document makes room for the next one; in a batch,
        # all wait for the longest summary.
        decode: Callable[..., Any] = (
            self._in_batches if together else self._in_slots
        )
        sizes = {"batch_size": batch_size, "options": options, "seed": seed}
        return decode(documents, padded_length, **sizes)

    def decode_arriving(
        self,
        arrivals: Arrivals,
        *,
        slot_length: int,
        padded_length: Callable[[int], int],
        batch_size: int,
        options: GenerationOptions,
        seed: int,
        on_text: Callable[[int, Callable[[], str]], None] | None = None,
    ) -> Iterator[list[tuple[int, Summary]]]:
        """Yields finished documents, by index, with their summaries; others may arrive later.

        An item of the iterator follows after some steps, see
        ``ContinuousBatch.decode_arriving``. The length to which a document is
        padded depends on its own length only, so that its ids do not depend on
        others.

        Args:
            arrivals: function from the indices of the documents in slots and
                the number of slots to cancelled and new documents. New ones are
                ``TokenizedDocument``, numbered in order of arrival, with the
                limits of their summaries, see ``ContinuousBatch``.
            slot_length: length of the slots, at least the padded length of
                every document; the model may pad it further.
            padded_length: function from the length of a document to its padded
                length; the model may pad it further.
            batch_size: number of slots.
            options: generation options.
            seed: random seed for sampling.
            on_text: callback with the index of an unfinished document and a
                function that decodes its text so far; unused in beam search.
        """
        num_arrived = 0
        documents: dict[int, TokenizedDocument] = {}

        def new_rows(inside: Sequence[int], size: int) -> Arrived:
            nonlocal num_arrived
            arrived = arrivals(inside, size)
            for index in arrived.cancelled:
                documents.pop(index, None)
            rows = []
            for document in arrived.inputs:
                documents[num_arrived] = document
                num_arrived += 1
                rows.append(self._rows([document], padded_length))
            return arrived._replace(inputs=rows)

        def on_progress(index: int, out: Generated) -> None:
            if on_text is not None and options.num_beams == 1:
                on_text(index, partial(_decoded, self._tokenizer, out, 0))

        assert self._make_slots is not None
        slots = self._make_slots(
            batch_size=batch_size, options=options, seed=seed
        )
        for finished in slots.decode_arriving(
            slot_length, new_rows, on_progress
        ):
            yield [
                (index, self._summary(documents.pop(index), out))
                for index, out in finished
            ]

    def _in_slots(
        self,
        documents: Sequence[TokenizedDocument],
        padded_length: Callable[[int], int],
        **sizes: Any,
    ) -> Iterator[tuple[int, Summary]]:
        # Longest first: slots then only ever shrink.
        order = sorted(
            range(len(documents)), key=lambda i: -len(documents[i].ids)
        )
        assert self._make_slots is not None
        slots = self._make_slots(**sizes)
        rows = (self._rows([documents[i]], padded_length) for i in order)
        # Map positions in the sorted order back to the documents.
        for index, out in slots.decode(list(rows)):
            yield order[index], self._summary(documents[order[index]], out)

    def _in_batches(
        self,
        documents: Iterable[TokenizedDocument],
        padded_length: Callable[[int], int],
        *,
        batch_size: int,
        options: GenerationOptions,
        seed: int,
    ) -> Iterator[tuple[int, Summary]]:
        remaining = iter(documents)
        start = 0
        while batch := list(itertools.islice(remaining, batch_size)):
            # Pad the last batch with copies, so that it has the shape that is
            # already compiled.
            filled = batch + batch[-1:] * (batch_size - len(batch))
            ids, mask = self._rows(filled, padded_length)
            out = jax.device_get(self._generate(ids, mask, options, seed))
            for row, document in enumerate(batch):
                yield start + row, self._summary(document, out, row)
            start += len(batch)

    def _rows(
        self,
        documents: Sequence[TokenizedDocument],
        padded_length: Callable[[int], int],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and mask of a batch, [batch, padded length]."""
        longest = max(len(document.ids) for document in documents)
        shape = len(documents), padded_length(longest)
        # Pad at the end of the rows.
        ids = np.full(shape, self._config.pad_token_id, np.int32)
        mask = np.zeros(shape, bool)
        for row, document in enumerate(documents):
            ids[row, : len(document.ids)] = document.ids
            mask[row, : len(document.ids)] = True
        return ids, mask

    def _summary(
        self, document: TokenizedDocument, out: Generated, row: int = 0
    ) -> Summary:
        return summary_of_row(self._tokenizer, document, out, row)
