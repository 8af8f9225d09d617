"""Stores of examples: in memory, or streamed."""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from longsum_jax.data.examples.base import Counts, Example, example_lengths
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import check_whole
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


class ExampleStream:
    """The examples of a split, made on the fly; one window of them is in memory at a time.

    ``stream[index]`` works for the current and every later window; an earlier
    index restarts reading from the first document, which takes time but gives
    the same examples. The length is unknown until the end, at which
    ``stream[index]`` raises IndexError.

    Args:
        task, tokenizer, seed, auxiliary: arguments of ``make_examples``.
        split: split of the task.
        window: number of examples in memory; ``Batches`` can shuffle within
            blocks of up to this size.

    Attributes:
        window: the argument of this name.
        counts: counts of the documents read since the start of the source.

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
        self._restart()

    def __getitem__(self, index: int) -> Example:
        if index < 0:
            raise IndexError("a stream has no end to count from")
        self._seek(index)
        return self._examples[index - self._start]

    def count_from(self, start: int, limit: int) -> int:
        """Returns the number of examples in [start, start + limit), a range within one window."""
        self._seek(start)
        return max(0, min(limit, self._start + len(self._examples) - start))

    def _seek(self, index: int) -> None:
        if index < self._start:
            self._restart()
        while (
            index >= self._start + self.window
            and len(self._examples) == self.window
        ):
            self._start += self.window
            self._examples = list(islice(self._source, self.window))

    def _restart(self) -> None:
        self.counts = Counts()
        self._source = make_examples(
            self._task,
            self._tokenizer,
            documents(self._task, self._split),
            seed=self._seed,
            counts=self.counts,
            auxiliary=self._auxiliary,
        )
        self._start = 0
        self._examples = list(islice(self._source, self.window))
