"""Packing: several short pairs of source and target in one row of a batch.

Rows are filled by first fit over a bounded window: a pair is added to the first
open row with space for its source and its target; if there is none, it opens a
new row. When more than ``WINDOW`` batches of rows are open, the oldest rows
become a batch. Pairs of 3, 2, 1 and 2 tokens in rows of 4:

    row 0   3 1
    row 1   2 2

The rows depend only on the order of the pairs. The pairs of the open rows are
the whole state: if they are added again, row by row, each gets into the same
row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from longsum_jax.data.buckets import Group
from longsum_jax.data.examples.base import Example

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


def joined(examples: Sequence[Example]) -> Example:
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
