"""Examples made on the way, for documents that are read forwards only."""

from collections.abc import Iterator
from itertools import islice

from longsum_jax.data.examples import Counts, Example, make_examples
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.tokenizers import Tokenizer


class ExampleStream:
    """The examples of a split without preparation; one window of them is in memory at a time.

    ``stream[index]`` works for the current and every later window; an earlier index starts reading
    from the first document again, which gives the same examples at the price of the time. The length
    is unknown before the end, where ``stream[index]`` raises IndexError.

    Attributes:
        window: examples held at a time; the block within which ``Batches`` can shuffle.
        counts: what became of the documents read since the start of the source.
    """

    def __init__(self, task: Task, tokenizer: Tokenizer, split: str, window: int, *, seed: int = 0):
        if window < 1:
            raise InputError(f"window={window} must be at least 1 example")
        task.source_split(split)
        self.window = window
        self._task, self._tokenizer, self._split, self._seed = task, tokenizer, split, seed
        self._restart()

    def __getitem__(self, index: int) -> Example:
        if index < 0:
            raise IndexError("a stream has no end to count from")
        self._seek(index)
        return self._examples[index - self._start]

    def count_from(self, start: int, limit: int) -> int:
        """Returns how many examples lie in [start, start + limit), which must be inside one window."""
        self._seek(start)
        return max(0, min(limit, self._start + len(self._examples) - start))

    def _seek(self, index: int) -> None:
        if index < self._start:
            self._restart()
        while index >= self._start + self.window and len(self._examples) == self.window:
            self._start += self.window
            self._examples = list(islice(self._source, self.window))

    def _restart(self) -> None:
        self.counts = Counts()
        self._source: Iterator[Example] = make_examples(
            self._task,
            self._tokenizer,
            documents(self._task, self._split),
            seed=self._seed,
            counts=self.counts,
        )
        self._start = 0
        self._examples = list(islice(self._source, self.window))
