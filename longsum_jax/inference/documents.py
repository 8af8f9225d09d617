"""Summaries of documents that are read in one piece."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated
from longsum_jax.errors import InputError
from longsum_jax.inference.padding import check_kernel_length
from longsum_jax.inference.summary import Overflow, Request, Summary
from longsum_jax.tokenizers.base import Tokenizer

# (ids, mask, options, seed) -> sequences
Generate = Callable[[np.ndarray, np.ndarray, GenerationOptions, int], Generated]


class TokenizedDocument(NamedTuple):
    """A document as the model reads it."""

    ids: list[int]  # that the model reads, special tokens included
    total_tokens: int  # of the document, read or not


class DocumentSummarizer:
    """Summarizes with a model that reads documents in one piece.

    Args:
        config: of the model.
        tokenizer: of the model.
        prefix: text before every document.
        generate: decodes a batch.
    """

    def __init__(
        self, config: Any, tokenizer: Tokenizer, *, prefix: str, generate: Generate
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._prefix = prefix
        self._generate = generate

    def summaries(
        self,
        requests: Sequence[Request],
        generation: GenerationOptions,
        *,
        max_tokens: int | None,
        on_overflow: Overflow,
        batch_size: int,
        seed: int,
    ) -> list[Summary]:
        """Summarizes documents as ``Model.summaries`` does; ``max_tokens`` of each are read.

        A thread reads the next documents while a batch is decoded.
        """

        def read(start: int) -> list[TokenizedDocument]:
            batch = requests[start : start + batch_size]
            return [self.read(request, max_tokens, on_overflow) for request in batch]

        results: list[Summary] = []
        with ThreadPoolExecutor(1, "tokenizer") as reader:
            for batch in reader.map(read, range(0, len(requests), batch_size)):
                results += self.summarize(batch, batch_size, generation, seed)
        return results

    def read(self, request: Request, limit: int | None, on_overflow: Overflow) -> TokenizedDocument:
        """Tokenizes a document.

        Args:
            request: the document.
            limit: tokens of it that are read; None for all.
            on_overflow: what happens to those beyond.

        Raises:
            InputError: an empty text, or one that is too long.
        """
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
        return TokenizedDocument(read, total)

    def summarize(
        self,
        documents: Sequence[TokenizedDocument],
        batch_size: int,
        generation: GenerationOptions,
        seed: int,
        length: int = 0,
    ) -> list[Summary]:
        """Summarizes documents as one batch.

        Args:
            documents: at most ``batch_size``.
            batch_size: rows of the batch.
            generation: options of the search.
            seed: of sampling.
            length: to which documents are padded at least, in tokens.
        """
        # The last batch is filled up with copies, so that it runs through the same compiled
        # program.
        filled = [*documents, *[documents[-1]] * (batch_size - len(documents))]
        longest = max(len(document.ids) for document in filled)
        ids = np.full((batch_size, max(length, longest)), self._config.pad_token_id, np.int32)
        mask = np.zeros(ids.shape, bool)
        for row, document in enumerate(filled):
            ids[row, : len(document.ids)] = document.ids
            mask[row, : len(document.ids)] = True
        out = jax.device_get(self._generate(ids, mask, generation, seed))
        return [self._summary(document, out, row) for row, document in enumerate(documents)]

    def _summary(self, document: TokenizedDocument, out: Generated, row: int) -> Summary:
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
