"""Prepares the next batches in a background thread while the device computes."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

from longsum_jax.errors import check_whole
from longsum_jax.typing import BatchIterator, NumpyBatch


class Prefetcher(Iterator[NumpyBatch]):
    """An iterator that prepares up to ``size`` batches ahead, in order.

    ``state()`` refers to the batch last returned to the consumer, not to
    batches prepared ahead, so a checkpoint never skips one. An exception in the
    worker is raised instead of its batch. Use it as a context manager, or call
    ``close()``.

    Args:
        batches: iterator that from here on must only be used by the worker
            thread.
        size: maximum number of batches prepared ahead.

    Raises:
        InputError: a size below 1.
    """

    _failure: BaseException | None
    _stop: threading.Event

    def __init__(self, batches: BatchIterator, size: int = 2):
        check_whole("prefetch size", size, 1)
        self._batches = batches
        self._size = size
        self._start()

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> NumpyBatch:
        if self._failure is not None:
            raise self._failure
        if self._stop.is_set():
            raise StopIteration
        batch, self._state, self._failure = self._ready.get()
        if self._failure is not None:
            self.close()
            raise self._failure
        return batch

    def state(self) -> dict[str, Any]:
        """Returns the state after the last returned batch."""
        return self._state

    def restore(self, state: dict[str, Any]) -> None:
        """Drops the batches prepared ahead and continues from ``state``."""
        self.close()
        self._batches.restore(state)
        self._start()

    def close(self) -> None:
        """Stops the worker and waits for it; batches prepared ahead are dropped."""
        self._stop.set()
        while self._worker.is_alive():
            try:  # make room in the queue, for which the worker may be waiting
                self._ready.get(timeout=0.01)
            except queue.Empty:
                self._worker.join(timeout=0.01)

    def _start(self) -> None:
        self._state = self._batches.state()
        self._failure = None
        self._ready: queue.Queue[Any] = queue.Queue(self._size)
        self._stop = threading.Event()
        self._worker = threading.Thread(
            target=self._work, name="prefetch", daemon=True
        )
        self._worker.start()

    def _work(self) -> None:
        state = self._state
        while not self._stop.is_set():
            try:
                batch = next(self._batches)
                state = self._batches.state()
                self._ready.put((batch, state, None))
            except (
                BaseException
            ) as failure:  # including StopIteration: the consumer raises it
                self._ready.put((None, state, failure))
                return
