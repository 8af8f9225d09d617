"""Summaries of documents as they come: the next are read and tokenized while the device works.

requests -> thread: read, tokenize -> window of some documents -> batches of like lengths
"""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from longsum_jax.errors import InputError
from longsum_jax.inference.summary import BatchSize, Request, Summary

T = TypeVar("T")

_WINDOW = 64  # with "auto", documents among which like lengths are found
_BATCHES_IN_WINDOW = 4  # with a given batch size, of which a failure loses what is not yet written


class Work(NamedTuple):
    """What a model does with documents, under the options of one call.

    Attributes:
        read: tokenizes a document; raises InputError for one that does not fit.
        length: tokens of a document that was read, by which like ones are found.
        summarize: (documents, batch size) -> places of some of them with their summaries, until all
            are done.
        reads_on_device: whether reading runs models of its own, which then waits for its turn.
    """

    read: Callable[[Request], Any]
    length: Callable[[Any], int]
    summarize: Callable[[Sequence[Any], BatchSize], Iterator[list[tuple[int, Summary]]]]
    reads_on_device: bool


class _Read(NamedTuple):
    """A document of a window: its place in the stream, and what was read or why it was not."""

    index: int
    request: Request
    document: Any
    length: int
    error: InputError | None


Result = tuple[int, Summary | InputError]


def summarize_stream(
    work: Work, requests: Iterable[Request], batch_size: BatchSize
) -> Iterator[list[Result]]:
    """Yields, batch by batch, places of documents in the stream with their summaries or errors.

    Args:
        work: of the model.
        requests: read in a thread, a window ahead at most.
        batch_size: documents that are decoded together.
    """
    window = _WINDOW if batch_size == "auto" else 1
    if isinstance(batch_size, int) and batch_size > 1:
        window = batch_size * _BATCHES_IN_WINDOW
    numbered: Iterator[Any] = enumerate(requests)
    if not work.reads_on_device:
        numbered = (_read(work, *each) for each in numbered)
    with ahead(numbered, window) as following:
        while found := list(itertools.islice(following, window)):
            if work.reads_on_device:
                found = [_read(work, *each) for each in found]
            yield from _summarize_window(work, found, batch_size)


def coarse_length(length: int) -> int:
    """Returns ``length`` rounded up to 2^k or 3 * 2^k: two shapes an octave are compiled."""
    power = 1 << max(length - 1, 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 else power


@contextlib.contextmanager
def ahead(values: Iterable[T], size: int) -> Iterator[Iterator[T]]:
    """Gives an iterator whose next values, up to ``size``, a thread makes beforehand.

    An exception of the thread is raised in the place of its value. After the block the thread
    ends.
    """
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(max(1, size))
    stop = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((kind, value), timeout=0.1)
                return

    def work() -> None:
        try:
            for value in values:
                put("value", value)
                if stop.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    def taken() -> Iterator[T]:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value

    thread = threading.Thread(target=work, name="read ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()


def _read(work: Work, index: int, request: Request) -> _Read:
    try:
        document = work.read(request)
    except InputError as error:
        return _Read(index, request, None, 0, error)
    return _Read(index, request, document, work.length(document), None)


def _summarize_window(
    work: Work, window: Sequence[_Read], batch_size: BatchSize
) -> Iterator[list[Result]]:
    failed: list[Result] = [(each.index, each.error) for each in window if each.error]
    if failed:
        yield failed
    left = [each for each in window if not each.error]
    if len(left) > 1:  # the longest first: should memory run out, then at once
        left.sort(key=lambda each: -each.length)
    if not left:
        return
    for done in work.summarize([each.document for each in left], batch_size):
        yield [(left[i].index, summary.of(left[i].request)) for i, summary in done]
