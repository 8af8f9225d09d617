"""Summarizes a stream of documents: a thread tokenizes the next ones while the device decodes.

requests -> thread: read, tokenize -> window of some documents -> batches of
similar length
"""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from longsum_jax.errors import InputError
from longsum_jax.summarization.summary import (
    BatchSize,
    Request,
    Summary,
    check_request,
)

T = TypeVar("T")

# documents that are sorted by length together if batch_size="auto"
_WINDOW = 64
# Batches in a window if batch_size is a number; a crash loses the window's
# unwritten summaries.
_BATCHES_IN_WINDOW = 4


class StreamFunctions(NamedTuple):
    """The functions with which a model summarizes, with the options of one call.

    Attributes:
        read: function that tokenizes a document; raises InputError for one that
            does not fit.
        length: function that returns the token count of a document, by which
            documents are batched.
        summarize: function from documents and a batch size to the indices of
            finished documents with their summaries, until all are done.
        reads_on_device: True if ``read`` itself runs models; it is then not run
            in the thread, in which it would compete for the device.
    """

    read: Callable[[Request], Any]
    length: Callable[[Any], int]
    summarize: Callable[
        [Sequence[Any], BatchSize], Iterator[list[tuple[int, Summary]]]
    ]
    reads_on_device: bool


class _StreamItem(NamedTuple):
    """A document of a window: its index in the stream, and its tokens or the error."""

    index: int  # type: ignore[assignment] # a method of tuples
    request: Request
    document: Any
    length: int
    error: InputError | None


Result = tuple[int, Summary | InputError]


def summarize_stream(
    work: StreamFunctions, requests: Iterable[Request], batch_size: BatchSize
) -> Iterator[list[Result]]:
    """Yields, batch by batch, indices of documents in the stream with their summaries or errors.

    Args:
        work: functions of the model.
        requests: documents to summarize; a thread prefetches at most one window
            of them.
        batch_size: documents that are decoded together.

    Raises:
        InputError: a text instead of a request.
    """
    window = window_size(batch_size)
    numbered: Iterator[Any] = enumerate(map(check_request, requests))
    # Tokenize in the prefetching thread, unless this needs the device.
    if not work.reads_on_device:
        numbered = (_read(work, *request) for request in numbered)
    with ahead(numbered, window) as following:
        while items := list(itertools.islice(following, window)):
            if work.reads_on_device:
                items = [_read(work, *request) for request in items]
            yield from _summarize_window(work, items, batch_size)


def window_size(batch_size: BatchSize) -> int:
    """Returns the number of documents that are sorted by length together."""
    if batch_size == "auto":
        return _WINDOW
    if batch_size > 1:
        return batch_size * _BATCHES_IN_WINDOW
    return 1


def coarse_length(length: int) -> int:
    """Rounds ``length`` up to 2^k or 3 * 2^k, so that few shapes are compiled."""
    power = 1 << max(length - 1, 1).bit_length()
    if length <= power * 3 // 4:
        return power * 3 // 4
    return power


@contextlib.contextmanager
def ahead(values: Iterable[T], size: int) -> Iterator[Iterator[T]]:
    """Prefetches up to ``size`` values of an iterable in a thread.

    An exception in the thread is raised by the iterator in place of the value.
    The thread ends when the ``with`` block ends.
    """
    # A bounded queue limits the values in memory.
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(max(1, size))
    stop = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stop.is_set():
            # Time out to notice that the consumer has stopped.
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
        # Any exception: the consumer's thread raises it again.
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

    # A daemon, so that a blocked read does not keep the process alive.
    thread = threading.Thread(target=work, name="read ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        # A blocked put() then returns after its timeout.
        stop.set()


def _read(work: StreamFunctions, index: int, request: Request) -> _StreamItem:
    try:
        document = work.read(request)
    except InputError as error:
        return _StreamItem(index, request, None, 0, error)
    return _StreamItem(index, request, document, work.length(document), None)


def _summarize_window(
    work: StreamFunctions, window: Sequence[_StreamItem], batch_size: BatchSize
) -> Iterator[list[Result]]:
    failed: list[Result] = [
        (item.index, item.error) for item in window if item.error
    ]
    if failed:
        yield failed
    left = [item for item in window if not item.error]
    # longest first: out-of-memory errors then occur at the start
    if len(left) > 1:
        left.sort(key=lambda item: -item.length)
    if not left:
        return
    for done in work.summarize([item.document for item in left], batch_size):
        yield [
            (left[i].index, summary.of(left[i].request)) for i, summary in done
        ]
