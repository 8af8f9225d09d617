"""Examples that wait for a batch: in buckets by length, or packed into rows.

Packing puts several short pairs of source and target into one row. Rows are
filled by first fit over a bounded window: a pair is added to the first open row
with space for its source and its target; if there is none, it opens a new row.
When more than ``WINDOW`` batches of rows are open, the oldest rows become a
batch. Pairs of 3, 2, 1 and 2 tokens in rows of 4:

    row 0   3 1
    row 1   2 2

The rows depend only on the order of the pairs. The pairs of the open rows are
the whole state: if they are added again, row by row, each gets into the same
row.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from longsum_jax.data.examples.base import Example


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


WINDOW = 2  # open rows, in batches


class _OpenRow(NamedTuple):
    """The pairs of a row, and its free tokens."""

    indices: list[int]
    free_source: int
    free_target: int


class PackedRows:
    """Open rows of pairs, a ``buckets.Waiting``.

    Args:
        batch_size: rows of a batch.
        source_length, target_length: tokens of a row.
    """

    def __init__(
        self, batch_size: int, source_length: int, target_length: int
    ) -> None:
        self._batch_size = batch_size
        self._source_length = source_length
        self._target_length = target_length
        self._rows: list[_OpenRow] = []

    @property
    def indices(self) -> list[int]:
        return [index for row in self._rows for index in row.indices]

    def add(self, index: int, source: int, target: int) -> None:
        for number, row in enumerate(self._rows):
            if source <= row.free_source and target <= row.free_target:
                self._rows[number] = _with_pair(row, index, source, target)
                return
        row = _OpenRow([], self._source_length, self._target_length)
        self._rows.append(_with_pair(row, index, source, target))

    def pop(self, *, incomplete: bool = False) -> Group | None:
        is_full = len(self._rows) > WINDOW * self._batch_size
        if not (is_full or (incomplete and self._rows)):
            return None
        rows = [row.indices for row in self._rows[: self._batch_size]]
        self._rows = self._rows[self._batch_size :]
        return Group(rows, self._batch_size, self._source_length)

    def count_batches(self, lengths: Int[np.ndarray, "n 2"]) -> int | None:
        del lengths
        return None


def _with_pair(row: _OpenRow, index: int, source: int, target: int) -> _OpenRow:
    return _OpenRow(
        [*row.indices, index],
        row.free_source - source,
        row.free_target - target,
    )


def pack_examples(examples: Sequence[Example]) -> Example:
    """Returns a packed row as one example, with the segment ids of its tokens, 1, 2, ..."""
    sources = [example["input_ids"] for example in examples]
    targets = [example["labels"] for example in examples]
    numbers = np.arange(1, len(examples) + 1, dtype=np.int32)
    return Example(
        id="+".join(example["id"] for example in examples),
        input_ids=np.concatenate(sources),
        labels=np.concatenate(targets),
        source_tokens=sum(example["source_tokens"] for example in examples),
        target_tokens=sum(example["target_tokens"] for example in examples),
        source_segment_ids=np.repeat(numbers, [len(ids) for ids in sources]),
        target_segment_ids=np.repeat(numbers, [len(ids) for ids in targets]),
    )
