"""The counts of a replica, which ``/metrics`` reports."""

import dataclasses

BOUNDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # seconds


class SecondsHistogram:
    """Numbers of durations up to each of ``BOUNDS``.

    Attributes:
        counts: number of durations up to each bound.
        total: number of all durations.
        seconds: sum of all durations.
    """

    def __init__(self) -> None:
        self.counts = [0] * len(BOUNDS)
        self.total = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Counts a duration."""
        self.total += 1
        self.seconds += seconds
        for index, bound in enumerate(BOUNDS):
            self.counts[index] += seconds <= bound


@dataclasses.dataclass
class ReplicaStatistics:
    """Counts since the start of a replica.

    Attributes:
        read_tokens: tokens of finished documents that were read.
        written_tokens: tokens of finished summaries.
        num_batches: open batches.
        num_rows: rows of the open batches.
        running_rows: rows that decode an input.
        row_turns: rows of all turns so far that decoded tokens.
        running_row_turns: rows of these turns that decoded an input; divided
            by ``row_turns``, the average fill of batches.
        waits: seconds from the queue to a row.
    """

    read_tokens: int = 0
    written_tokens: int = 0
    num_batches: int = 0
    num_rows: int = 0
    running_rows: int = 0
    row_turns: int = 0
    running_row_turns: int = 0
    waits: SecondsHistogram = dataclasses.field(
        default_factory=SecondsHistogram
    )
