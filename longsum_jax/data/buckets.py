"""Buckets of examples that wait for a batch, one bucket for every padded length."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int


class Group(NamedTuple):
    """The examples of a batch.

    Attributes:
        rows: indices of the examples of every row that has any.
        num_rows: number of rows of the batch.
        source_length: tokens (or segments) of a row.
    """

    rows: list[list[int]]
    num_rows: int
    source_length: int


class Waiting(Protocol):
    """Examples that wait for a batch."""

    @property
    def indices(self) -> list[int]:
        """The waiting examples; adding them in this order restores the state."""

    def add(self, index: int, source: int, target: int) -> None:
        """Adds an example of ``source`` and ``target`` tokens, which fit a row."""

    def pop(self, *, incomplete: bool = False) -> Group | None:
        """Removes and returns a full batch; None without one.

        Args:
            incomplete: True to return any batch, for the end of an epoch.
        """

    def count_batches(self, lengths: Int[np.ndarray, "n 2"]) -> int | None:
        """Returns the number of batches of all examples; None if it depends on their order.

        Args:
            lengths: tokens of their sources and targets.
        """


class Buckets:
    """Waiting examples, each in the bucket of the smallest length that fits it.

    Args:
        batch_size: rows of a batch of the longest bucket.
        by_tokens: whether shorter buckets have more rows, see
            ``batches.Batches``.
        source_lengths: lengths of the buckets, ascending.
    """

    def __init__(
        self, batch_size: int, by_tokens: bool, source_lengths: Sequence[int]
    ) -> None:
        self._source_lengths = source_lengths
        # rows of the batches of each bucket; all are multiples of batch_size,
        # so that hosts, devices and micro-batches divide them
        self._num_rows = [
            batch_size * (source_lengths[-1] // length)
            if by_tokens
            else batch_size
            for length in source_lengths
        ]
        self._buckets: list[list[int]] = [[] for _ in source_lengths]

    @property
    def indices(self) -> list[int]:
        return [index for bucket in self._buckets for index in bucket]

    def add(self, index: int, source: int, target: int) -> None:
        del target
        number = bisect.bisect_left(self._source_lengths, source)
        self._buckets[number].append(index)

    def pop(self, *, incomplete: bool = False) -> Group | None:
        for number, num_rows in enumerate(self._num_rows):
            bucket = self._buckets[number]
            if len(bucket) >= num_rows or (incomplete and bucket):
                self._buckets[number] = bucket[num_rows:]
                rows = [[index] for index in bucket[:num_rows]]
                return Group(rows, num_rows, self._source_lengths[number])
        return None

    def count_batches(self, lengths: Int[np.ndarray, "n 2"]) -> int | None:
        numbers = np.searchsorted(self._source_lengths, lengths[:, 0])
        counts = np.bincount(numbers, minlength=len(self._num_rows))
        return int(np.sum(-(-counts // self._num_rows)))
