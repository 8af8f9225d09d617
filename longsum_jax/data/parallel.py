"""Makes examples chunk by chunk, in one process or in several, with the same result."""

import hashlib
import json
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from longsum_jax.atomic import UnfinishedError
from longsum_jax.data.examples.base import Counts, Example
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer

# documents per message: enough to amortize its cost, also suitable for whole
# books
CHUNK = 32

_tokenizer: Tokenizer  # the tokenizer of a worker process


class DocumentChunk(NamedTuple):
    """Up to ``CHUNK`` consecutive documents.

    Attributes:
        documents: documents.
        digest: hash of these and all earlier documents.
    """

    documents: list[DataRow]
    digest: str


class ExampleChunk(NamedTuple):
    """The examples of a chunk of documents.

    Attributes:
        num_documents: number of documents.
        digest: hash of these and all earlier documents.
        examples: examples.
        counts: counts of these documents.
    """

    num_documents: int
    digest: str
    examples: list[Example]
    counts: Counts


def document_chunks(docs: Iterable[DataRow]) -> Iterator[DocumentChunk]:
    """Yields all documents in chunks; only the last may have fewer than ``CHUNK``."""
    docs = iter(docs)
    digest = ""
    while chunk := list(islice(docs, CHUNK)):
        content = digest + json.dumps(chunk)
        digest = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
        yield DocumentChunk(chunk, digest)


def make_chunks(
    task: Task,
    tokenizer: Tokenizer,
    tokenizer_path: Path,
    chunks: Iterable[DocumentChunk],
    *,
    seed: int,
    workers: int,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> Iterator[ExampleChunk]:
    """Yields the examples that ``examples.registry.make_examples`` yields, in chunks.

    Args:
        task, tokenizer, seed: arguments of ``make_examples``.
        tokenizer_path: path of the tokenizer, which each worker loads once.
        chunks: documents.
        workers: number of processes.
        auxiliary: functions as for ``make_examples``. With several workers,
            they must be picklable, and load their models at the first call in
            each worker.

    Raises:
        UnfinishedError: a worker was killed.
    """
    if workers == 1:
        for chunk in chunks:
            yield _make_chunk(task, seed, auxiliary, chunk, tokenizer)
        return
    work = partial(_make_chunk, task, seed, auxiliary)
    chunks = iter(chunks)
    pool = ProcessPoolExecutor(
        workers,
        # forking a process that has run JAX can hang
        multiprocessing.get_context("spawn"),
        initializer=_load_tokenizer,
        initargs=(str(tokenizer_path),),
    )
    running: deque[Future[ExampleChunk]] = deque()
    try:
        with pool:
            while True:
                # Bound the queue, because all documents may not fit into memory.
                for chunk in islice(chunks, 2 * workers - len(running)):
                    running.append(pool.submit(work, chunk))
                if not running:
                    return
                yield running.popleft().result()
    except BrokenProcessPool as error:
        raise UnfinishedError(
            f"one of the {workers} worker processes was killed, probably because memory ran out; "
            "give fewer workers, the same command then continues"
        ) from error


def _load_tokenizer(path: str) -> None:
    global _tokenizer
    _tokenizer = load_tokenizer(path)


def _make_chunk(
    task: Task,
    seed: int,
    auxiliary: Auxiliary,
    chunk: DocumentChunk,
    tokenizer: Tokenizer | None = None,
) -> ExampleChunk:
    """Makes the examples of a chunk, by default with the tokenizer of the worker."""
    counts = Counts()
    examples = make_examples(
        task,
        tokenizer or _tokenizer,
        chunk.documents,
        seed=seed,
        counts=counts,
        auxiliary=auxiliary,
    )
    return ExampleChunk(
        len(chunk.documents), chunk.digest, list(examples), counts
    )
