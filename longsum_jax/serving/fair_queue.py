"""The queue between requests and replicas, with a line for each kind of batch.

    line of kind A     book 7   letter 0   book 8   book 9   ...
    line of kind B     letter 0

In a line, requests take turns: the first piece of a letter (a short document)
comes right after the first waiting piece of a book, not after its last one
(start-time fair queueing, Goyal et al. 1996). Each replica opens batches for a
few lines. As soon as work in another line has waited for ``_PATIENCE`` seconds,
no more pieces enter these batches, so that one of them ends and makes room.
"""

import bisect
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from longsum_jax.serving.pieces import BatchKind, JobPiece, Work

_PATIENCE = 2.0  # seconds


class _LineEntry(NamedTuple):
    """Work in its line; entries are sorted by turn, then by arrival.

    Attributes:
        turn: turn of the work, in which every request has at most one piece.
        arrival: number of pieces that arrived before, in all lines.
        work: a piece or a whole job.
    """

    turn: int
    arrival: int
    work: Work


class FairQueue:
    """A thread-safe queue of the work that waits for the replicas."""

    def __init__(self) -> None:
        # Empty lines are deleted.
        self._lines: dict[BatchKind | None, list[_LineEntry]] = {}
        self._num_arrived = 0
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._lines.values()))

    def put(self, works: Iterable[Work]) -> None:
        """Adds the pieces of a round, or whole jobs."""
        with self._changed:
            for work in works:
                line = self._lines.setdefault(work.kind, [])
                # The first piece of a request has the turn of the first entry,
                # its second piece the next turn, and so on.
                turn = (line[0].turn if line else 0) + work.number
                bisect.insort(line, _LineEntry(turn, self._num_arrived, work))
                self._num_arrived += 1
            self._changed.notify_all()

    def take_first(
        self, can_open: Callable[[Work], bool], *, waits: bool
    ) -> Work | None:
        """Removes and returns the first entry of the line that has waited longest.

        Args:
            can_open: function that returns True if the replica can start a
                piece or job.
            waits: True to wait for work; None is then returned only if the
                queue is closed.
        """
        with self._changed:
            while True:
                for line in self._oldest_lines():
                    if can_open(line[0].work):
                        return self._pop(line)
                if not waits or self._is_closed:
                    return None
                self._changed.wait()

    def take(
        self,
        kind: BatchKind,
        can_take: Callable[[JobPiece], bool],
        is_due: Callable[[Work], bool],
    ) -> JobPiece | None:
        """Removes and returns the next piece of a line, for a batch that is open.

        Args:
            kind: kind of the batch.
            can_take: function that returns True if the batch has room.
            is_due: function that returns True for work whose line has no open
                batch. If such work has waited too long, None is returned.
        """
        latest = time.monotonic() - _PATIENCE
        with self._changed:
            for line in self._oldest_lines():
                work = line[0].work
                if work.queued < latest and is_due(work):
                    return None
            line = self._lines.get(kind, [])
            if not line:
                return None
            piece = line[0].work
            assert isinstance(piece, JobPiece)  # whole jobs have no kind
            if not can_take(piece):
                return None
            self._pop(line)
            return piece

    def close(self) -> None:
        """Closes the queue: ``take_first`` returns None once there is no work left."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _oldest_lines(self) -> list[list[_LineEntry]]:
        """Returns the lines by the arrival of their first work, after removing ended requests."""
        for kind, line in tuple(self._lines.items()):
            while line and line[0].work.future.done():
                del line[0]
            if not line:
                del self._lines[kind]
        return sorted(
            self._lines.values(), key=lambda line: line[0].work.queued
        )

    def _pop(self, line: list[_LineEntry]) -> Work:
        work = line.pop(0).work
        if not line:
            del self._lines[work.kind]
        return work
