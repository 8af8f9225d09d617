"""Stores of examples: in memory, or streamed."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from longsum_jax.data.examples.base import Counts, Example, example_lengths
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import check_whole
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer


class ExampleList(Sequence[Example]):
    """Examples held in memory.

    Attributes:
        lengths: int32 [n, 2], tokens of source and target after truncation; see
            ``example_lengths``.
        counts: counts of the documents that were read.
    """

    def __init__(
        self, examples: Iterable[Example], counts: Counts | None = None
    ):
        self._examples = list(examples)
        lengths = [example_lengths(example) for example in self._examples]
        self.lengths = np.array(lengths, np.int32).reshape(-1, 2)
        self.counts = counts or Counts()

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override] # no slices
        return self._examples[index]


def load_examples(
    task: Task,
    tokenizer: Tokenizer,
    split: str,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> ExampleList:
    """Reads a split into memory; takes the arguments of ``make_examples``."""
    counts = Counts()
    docs = documents(task, split)
    examples = make_examples(
        task, tokenizer, docs, seed=seed, counts=counts, auxiliary=auxiliary
    )
    return ExampleList(examples, counts)


class StreamMark(NamedTuple):
    """A position from which a stream can be read.

    Attributes:
        example: index of the example, a multiple of the window.
        document: number of documents before the example's document.
        part: number of earlier examples of the same document.
    """

    example: int
    document: int
    part: int


class ExampleStream:
    """The examples of a split, made on the fly; one window of them is in memory at a time.

    ``stream[index]`` works for the current and every later window. An earlier
    index, or a later one in a new process, restarts reading at the last mark
    before it: a mark is the number of documents before a window, which are left
    out without making their examples. The length is unknown until the end, at
    which ``stream[index]`` raises IndexError.

    Args:
        task, tokenizer, seed, auxiliary: arguments of ``make_examples``.
        split: split of the task.
        window: number of examples in memory; ``Batches`` can shuffle within
            blocks of up to this size.

    Attributes:
        window: the argument of this name.
        counts: counts of the documents read since the last restart.

    Raises:
        InputError: a window below 1, or an unknown split.
    """

    _examples: list[Example]

    def __init__(
        self,
        task: Task,
        tokenizer: Tokenizer,
        split: str,
        window: int,
        *,
        seed: int = 0,
        auxiliary: Auxiliary = DEFAULT_AUXILIARY,
    ):
        check_whole("window", window, 1)
        task.source_split(split)  # raises for an unknown split
        self.window = window
        self._task = task
        self._tokenizer = tokenizer
        self._split = split
        self._seed = seed
        self._auxiliary = auxiliary
        self._marks = [StreamMark(0, 0, 0)]
        self._restart(self._marks[0])

    def __getitem__(self, index: int) -> Example:
        if index < 0:
            raise IndexError("a stream has no end to count from")
        self._seek(index)
        return self._examples[index - self._start]

    def count_from(self, start: int, limit: int) -> int:
        """Returns the number of examples in [start, start + limit), a range within one window."""
        self._seek(start)
        return max(0, min(limit, self._start + len(self._examples) - start))

    def marks(self, indices: Iterable[int]) -> list[StreamMark]:
        """Returns the marks from which the examples ``indices`` can be read at once."""
        return sorted({self._mark_before(index) for index in indices})

    def add_marks(self, marks: Iterable[StreamMark]) -> None:
        """Adds the marks of an earlier process, without the marks of another window."""
        usable = {mark for mark in marks if mark.example % self.window == 0}
        self._marks = sorted(usable.union(self._marks))

    def _mark_before(self, index: int) -> StreamMark:
        """Returns the last mark at or before the window of an example."""
        end = bisect_right(self._marks, index, key=lambda mark: mark.example)
        return self._marks[end - 1]

    def _seek(self, index: int) -> None:
        mark = self._mark_before(index)
        if index < self._start or mark.example > self._start + self.window:
            self._restart(mark)
        while (
            index >= self._start + self.window
            and len(self._examples) == self.window
        ):
            self._start += self.window
            self._fill()

    def _restart(self, mark: StreamMark) -> None:
        """Reads the window of a mark."""
        self.counts = Counts()
        self._document = mark.document  # number of documents read before
        self._part = 0  # number of examples of the current document so far
        self._source = self._made_examples(mark.document)
        for _ in islice(self._source, mark.part):
            pass
        self._start = mark.example
        self._fill()

    def _made_examples(self, first_document: int) -> Iterator[Example]:
        """Yields the examples of all documents from one on, counting them."""
        docs = documents(self._task, self._split, first_document)
        examples = make_examples(
            self._task,
            self._tokenizer,
            self._counted(docs),
            seed=self._seed,
            counts=self.counts,
            auxiliary=self._auxiliary,
        )
        for example in examples:
            self._part += 1
            yield example

    def _counted(self, docs: Iterable[DataRow]) -> Iterator[DataRow]:
        for document in docs:
            self._document += 1
            self._part = 0
            yield document

    def _fill(self) -> None:
        """Reads a window of examples, and marks the next one."""
        self._examples = list(islice(self._source, self.window))
        end = self._start + self.window
        is_full = len(self._examples) == self.window
        if is_full and self._mark_before(end).example < end:
            # The last example is of the document read last.
            insort(self._marks, StreamMark(end, self._document - 1, self._part))
