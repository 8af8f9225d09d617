"""The thread of a replica, which opens batches and runs them in turn.

    queue  ->  batch of short rows   turn 1    turn 3    turn 5   ...
           ->  batch of long rows         turn 2    turn 4        ...

A short document thus waits for a turn of a book, not for the end of the book. A
summary does not depend on the turns: all batches of a kind run the same
compiled programs, row by row.
"""

import logging
import threading
import time
from collections.abc import Callable

from longsum_jax.inference.continuous import MAX_SLOTS
from longsum_jax.serving.batch import OpenBatch
from longsum_jax.serving.fair_queue import FairQueue
from longsum_jax.serving.pieces import (
    Job,
    JobPiece,
    WholeJob,
    Work,
    fail,
    finish,
)
from longsum_jax.serving.replicas import Replica
from longsum_jax.serving.statistics import ReplicaStatistics
from longsum_jax.summarization.summary import Summary

# Each batch stores keys and values of up to ``max_cross_cache_bytes``.
_MAX_BATCHES = 3
_LOG = logging.getLogger(__name__)


class Worker:
    """Decodes pieces from a queue with one replica, in a separate thread.

    Args:
        replica: model on its devices.
        queue: queue that the replicas share.
        next_round: function that makes the pieces of a job's next round.
        max_rows: maximum number of rows of a batch.
        thread_name: name of the thread.

    Attributes:
        replica: model on its devices.
        thread_name: name of the thread.
        statistics: counts for monitoring.
    """

    def __init__(
        self,
        replica: Replica,
        queue: FairQueue,
        next_round: Callable[[Job], list[JobPiece]],
        max_rows: int = MAX_SLOTS,
        *,
        thread_name: str,
    ) -> None:
        self.replica = replica
        self.thread_name = thread_name
        self.statistics = ReplicaStatistics()
        self._queue = queue
        self._next_round = next_round
        self._max_rows = max_rows
        self._batches: list[OpenBatch] = []
        self._thread = threading.Thread(
            target=self._run, name=thread_name, daemon=True
        )

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits until the queue is closed and all its work is done."""
        self._thread.join()

    def _run(self) -> None:
        with self.replica.activate():
            while True:
                work = self._queue.take_first(
                    self._can_open, self._is_due, waits=not self._batches
                )
                if work is None and not self._batches:  # the queue is closed
                    return
                if isinstance(work, WholeJob):
                    self._summarize(work)
                elif work is not None:
                    self._open(work)
                for batch in tuple(self._batches):
                    self._take_turn(batch)
                self._count_rows()

    def _can_open(self, work: Work) -> bool:
        """Returns True if a new batch for the work, or the whole job, can start now."""
        if not self._is_due(work):
            return False
        if isinstance(work, WholeJob) or not self._batches:
            return True
        # A piece that shares no batch may need the memory of the whole device.
        kinds = (work.kind, self._batches[0].kind)
        is_single = any(kind.single is not None for kind in kinds)
        return not is_single and len(self._batches) < _MAX_BATCHES

    def _is_due(self, work: Work) -> bool:
        """Returns True if work is for this replica, but not for an open batch."""
        is_other = work.replica not in (None, self.replica.number)
        is_open = any(work.kind == batch.kind for batch in self._batches)
        return not is_other and not is_open

    def _open(self, first: JobPiece) -> None:
        def take(has_room: Callable[[JobPiece], bool]) -> JobPiece | None:
            return self._queue.take(first.kind, has_room, self._is_due)

        try:
            batch = OpenBatch(
                self.replica.model,
                first,
                take,
                max_rows=self._max_rows,
                waits=self.statistics.waits,
            )
        except Exception as error:
            fail(first.future, error)
        else:
            self._batches.append(batch)

    def _take_turn(self, batch: OpenBatch) -> None:
        """Runs a turn of a batch; closes the batch if it is empty or fails.

        A single piece may have caused the error, for example by its memory.
        Therefore the pieces of a failed batch are decoded again, one by one.
        """
        try:
            finished = batch.turn()
        except Exception as error:
            # The message may quote a document.
            _LOG.error("a batch failed: %s", type(error).__name__)
            self._batches.remove(batch)
            if len(batch.pieces) == 1:
                fail(batch.pieces[0].future, error)
            else:
                self._queue.put(piece.single() for piece in batch.pieces)
            return
        if finished is None:
            self._batches.remove(batch)
            return
        if batch.has_decoded:
            self.statistics.row_turns += batch.num_rows
            self.statistics.running_row_turns += batch.num_running
        for piece, summary in finished:
            self._take_summary(piece, summary)

    def _take_summary(self, piece: JobPiece, summary: Summary) -> None:
        """Stores the summary of a piece, and starts the next round of its job if complete."""
        job = piece.job
        try:
            if not job.plan.take(piece.number, summary):
                return
            result = job.plan.advance()
            if result is None:
                self._queue.put(self._next_round(job))
            else:
                self._finish(job, result.of(job.request))
        except Exception as error:
            fail(job.future, error)

    def _summarize(self, job: WholeJob) -> None:
        self.statistics.waits.add(time.monotonic() - job.queued)
        try:
            self._finish(job, job.summarize(self.replica.model))
        except Exception as error:
            fail(job.future, error)

    def _finish(self, job: Job | WholeJob, summary: Summary) -> None:
        if finish(job, summary):
            self.statistics.read_tokens += summary.read_tokens
            self.statistics.written_tokens += summary.summary_tokens

    def _count_rows(self) -> None:
        counts = self.statistics
        counts.num_batches = len(self._batches)
        counts.num_rows = sum(batch.num_rows for batch in self._batches)
        counts.running_rows = sum(batch.num_running for batch in self._batches)
