"""Summaries of documents that are read in one piece."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference.continuous import ContinuousBatch, num_slots
from longsum_jax.inference.padding import check_kernel_length
from longsum_jax.inference.summary import BatchSize, Overflow, Request, Summary
from longsum_jax.tokenizers.base import Tokenizer

# (ids, mask, options, seed) -> sequences
Generate = Callable[[np.ndarray, np.ndarray, GenerationOptions, int], Generated]
# (batch_size=, options=, seed=) -> slots
MakeSlots = Callable[..., ContinuousBatch]


class ReadDocument(NamedTuple):
    """A document as a model reads it.

    Attributes:
        ids: that the model reads, special tokens included.
        total_tokens: of the document, read or not.
    """

    ids: list[int]
    total_tokens: int


class DocumentSummarizer:
    """Summarizes with a model that reads documents in one piece.

    Args:
        config: of the model.
        tokenizer: of the model.
        prefix: text before every document.
        generate: decodes a batch.
        make_slots: makes slots to decode in.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Tokenizer,
        *,
        prefix: str,
        generate: Generate,
        make_slots: MakeSlots,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._prefix = prefix
        self._generate = generate
        self._make_slots = make_slots

    def summaries(
        self,
        requests: Sequence[Request],
        generation: GenerationOptions,
        *,
        max_tokens: int | None,
        on_overflow: Overflow,
        batch_size: BatchSize,
        seed: int,
    ) -> list[Summary]:
        """Summarizes documents as ``Model.summaries`` does; ``max_tokens`` of each are read.

        A thread reads the next documents while a batch is decoded; slots begin with the longest, so
        all are read before.
        """

        def read(request: Request) -> ReadDocument:
            return self.read(request, max_tokens, on_overflow)

        with ThreadPoolExecutor(1, "tokenizer") as reader:
            documents = reader.map(read, requests)
            if batch_size == "auto":
                documents = list(documents)
                batch_size = num_slots(self._config, [len(document.ids) for document in documents])
            # The rows of a mesh begin and end together: each device has its own.
            together = batch_size == 1 or jax.sharding.get_abstract_mesh().size > 1
            decode = self._in_batches if together else self._in_slots
            found = dict(decode(documents, batch_size=batch_size, options=generation, seed=seed))
        return [found[i] for i in range(len(requests))]

    def read(self, request: Request, limit: int | None, on_overflow: Overflow) -> ReadDocument:
        """Returns the ids that the model reads of a document, at most ``limit``."""
        if not request.text.strip():
            raise InputError(f"{request.name} is empty; give it some text or leave it out")
        text = f"{request.query}\n{request.text}" if request.query else request.text
        ids = self._tokenizer.encode(self._prefix + text)
        read = self._tokenizer.add_special_tokens(ids)
        total = len(read)
        if limit is not None and total > limit:
            if on_overflow == "error":
                raise InputError(
                    f"{request.name} has {total} tokens, more than max_source_length={limit}; "
                    "raise it, or allow on_overflow=truncate"
                )
            read = self._tokenizer.add_special_tokens(ids, limit)
        check_kernel_length(
            len(read),
            self._config,
            request.name,
            "read its beginning with max_source_length=1048576 (--max_source_length=1048576)",
        )
        return ReadDocument(read, total)

    def _in_slots(
        self, documents: Iterable[ReadDocument], **sizes: Any
    ) -> Iterator[tuple[int, Summary]]:
        documents = list(documents)
        order = sorted(range(len(documents)), key=lambda i: -len(documents[i].ids))
        slots = self._make_slots(**sizes)
        for place, out in slots.decode([documents[i].ids for i in order]):
            yield order[place], self._summary(documents[order[place]], out, 0)

    def _in_batches(
        self,
        documents: Iterable[ReadDocument],
        *,
        batch_size: int,
        options: GenerationOptions,
        seed: int,
    ) -> Iterator[tuple[int, Summary]]:
        remaining = iter(documents)
        start = 0
        while batch := list(itertools.islice(remaining, batch_size)):
            # The last batch is filled up with copies, so that it runs through the same compiled
            # program.
            filled = batch + batch[-1:] * (batch_size - len(batch))
            longest = max(len(document.ids) for document in filled)
            ids = np.full((batch_size, longest), self._config.pad_token_id, np.int32)
            mask = np.zeros(ids.shape, bool)
            for row, document in enumerate(filled):
                ids[row, : len(document.ids)] = document.ids
                mask[row, : len(document.ids)] = True
            out = jax.device_get(self._generate(ids, mask, options, seed))
            for row, document in enumerate(batch):
                yield start + row, self._summary(document, out, row)
            start += len(batch)

    def _summary(self, document: ReadDocument, out: Generated, row: int) -> Summary:
        length = int(out.lengths[row])
        read = len(document.ids)
        return Summary(
            text=self._tokenizer.decode(out.sequences[row, 1 : 1 + length].tolist()),
            document_tokens=document.total_tokens,
            read_tokens=read,
            dropped_tokens=document.total_tokens - read,
            summary_tokens=length,
            ended="eos" if out.ended[row] else "limit",
        )
