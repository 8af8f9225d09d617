"""The queue between requests and replicas, with a line for each kind of batch.

    line of kind A     book 7   letter 0   book 8   book 9   ...
    line of kind B     letter 0

In a line, requests take turns, measured in tokens (self-clocked fair queueing,
Golestani 1994): the clock of a line is the time of the work taken last, and a
piece has the time of its arrival plus the tokens of its request up to its end.

    clock of the line    0
    book 7               its pieces of 900 tokens: 900, 1,800, 2,700 ...
    letter 0             300 tokens: 300

So a letter (a short document) comes before a long one that arrived a little
earlier, but not before one that came when the clock was behind by its length.
Each replica opens batches for a few lines. As soon as work in another line has
waited for ``_PATIENCE`` seconds, no more pieces enter these batches, so that
one of them ends and makes room.
"""

import bisect
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from longsum_jax.serving.pieces import BatchKind, JobPiece, Work

_PATIENCE = 2.0  # seconds


class _LineEntry(NamedTuple):
    """Work in its line; entries are sorted by time, then by arrival.

    Attributes:
        time: time of the work on the clock of the line.
        arrival: number of pieces that arrived before, in all lines.
        work: a piece or a whole job.
    """

    time: int
    arrival: int
    work: Work


@dataclasses.dataclass
class _Line:
    """Waiting work of one kind.

    Attributes:
        entries: work in the order in which it is taken.
        clock: time of the work taken last.
    """

    entries: list[_LineEntry] = dataclasses.field(default_factory=list)
    clock: int = 0

    @property
    def first(self) -> Work:
        """The work that is taken next."""
        return self.entries[0].work


class FairQueue:
    """A thread-safe queue of the work that waits for the replicas."""

    def __init__(self) -> None:
        # Empty lines are deleted.
        self._lines: dict[BatchKind | None, _Line] = {}
        self._num_arrived = 0
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        with self._changed:
            return sum(len(line.entries) for line in self._lines.values())

    def put(self, works: Iterable[Work]) -> None:
        """Adds the pieces of a round, or whole jobs."""
        with self._changed:
            num_tokens = 0
            for work in works:
                line = self._lines.setdefault(work.kind, _Line())
                # The pieces of a request follow one another.
                if work.number == 0:
                    num_tokens = 0
                num_tokens += work.num_tokens
                end = line.clock + num_tokens
                entry = _LineEntry(end, self._num_arrived, work)
                bisect.insort(line.entries, entry)
                self._num_arrived += 1
            self._changed.notify_all()

    def take_first(
        self,
        can_open: Callable[[Work], bool],
        is_due: Callable[[Work], bool],
        *,
        waits: bool,
    ) -> Work | None:
        """Removes and returns the first entry of the line that has waited longest.

        Args:
            can_open: function that returns True if the replica can start a
                piece or job.
            is_due: see ``take``. If such work has waited too long, no line that
                arrived later is opened.
            waits: True to wait for work; None is then returned only if the
                queue is closed.
        """
        with self._changed:
            while True:
                latest = time.monotonic() - _PATIENCE
                for line in self._oldest_lines():
                    if can_open(line.first):
                        return self._pop(line)
                    if line.first.queued < latest and is_due(line.first):
                        break
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
                if line.first.queued < latest and is_due(line.first):
                    return None
            if kind not in self._lines:
                return None
            line = self._lines[kind]
            piece = line.first
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

    def _oldest_lines(self) -> list[_Line]:
        """Returns the lines by the arrival of their first work, after removing ended requests."""
        for kind, line in tuple(self._lines.items()):
            while line.entries and line.first.future.done():
                del line.entries[0]
            if not line.entries:
                del self._lines[kind]
        return sorted(self._lines.values(), key=lambda line: line.first.queued)

    def _pop(self, line: _Line) -> Work:
        line.clock, _, work = line.entries.pop(0)
        if not line.entries:
            del self._lines[work.kind]
        return work
