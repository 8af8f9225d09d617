"""Makes examples in several processes, with the same result and order as in one process."""

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

from longsum_jax.data.examples.base import Counts, Example
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer

CHUNK = 32  # documents per message: enough to amortize its cost, also suitable for whole books

_tokenizer: Tokenizer  # the tokenizer of a worker process


def make_examples_in_parallel(
    task: Task,
    tokenizer_path: Path,
    docs: Iterable[DataRow],
    *,
    seed: int,
    counts: Counts,
    workers: int,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> Iterator[Example]:
    """Yields the examples that ``examples.registry.make_examples`` yields.

    Args:
        task, docs, seed, counts: arguments of ``make_examples``.
        tokenizer_path: path of the tokenizer, which each worker loads once.
        workers: number of processes.
        auxiliary: picklable functions, which load their models at the first call in each worker.
    """
    work = partial(_make_chunk, task, seed, auxiliary)
    docs = iter(docs)
    pool = ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),  # forking a process that has run JAX can hang
        initializer=_load_tokenizer,
        initargs=(str(tokenizer_path),),
    )
    running: deque[Future[tuple[list[Example], Counts]]] = deque()
    with pool:
        while True:
            # Bound the queue, because all documents may not fit into memory.
            while len(running) < 2 * workers and (chunk := list(islice(docs, CHUNK))):
                running.append(pool.submit(work, chunk))
            if not running:
                return
            examples, chunk_counts = running.popleft().result()
            counts.merge(chunk_counts)
            yield from examples


def _load_tokenizer(path: str) -> None:
    global _tokenizer
    _tokenizer = load_tokenizer(path)


def _make_chunk(
    task: Task, seed: int, auxiliary: Auxiliary, docs: list[DataRow]
) -> tuple[list[Example], Counts]:
    counts = Counts()
    examples = make_examples(task, _tokenizer, docs, seed=seed, counts=counts, auxiliary=auxiliary)
    return list(examples), counts
