"""From a document to token ids, and a list of such examples in memory."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypedDict

import numpy as np

from longsum_jax.data.pieces import begins_document
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.text.gap_sentences import gap_sentence_example
from longsum_jax.text.tokenizers import Tokenizer


class Example(TypedDict):
    """One source and its target as token ids, both ending in the end-of-sequence id."""

    id: str
    input_ids: np.ndarray  # int32 [l]
    labels: np.ndarray  # int32 [t]
    source_tokens: int  # length of the source before truncation, end of sequence included
    target_tokens: int  # the same of the target


class ExampleStore(Protocol):
    """What ``Batches`` reads from.

    Stores of known length have ``__len__`` and ``lengths`` (int [n, 2]: source, target); streams
    have ``window`` and ``count_from(start, limit)`` instead.
    """

    def __getitem__(self, index: int) -> Example: ...


@dataclasses.dataclass
class Counts:
    """What became of the documents and their tokens."""

    read: int = 0  # documents of the source
    pieces: int = 0  # what they were cut into; equal to ``read`` without ``piece_words``
    too_short: int = 0  # pieces with nothing left to summarise, or without a summary
    truncated_sources: int = 0
    truncated_targets: int = 0
    source_tokens: int = 0  # before truncation
    target_tokens: int = 0
    dropped_source_tokens: int = 0
    dropped_target_tokens: int = 0

    def add(self, example: Example | None, *, new_document: bool = True) -> None:
        """Counts one piece, None for one that was too short; ``new_document`` for the first of its document."""
        self.read += new_document
        self.pieces += 1
        if example is None:
            self.too_short += 1
            return
        dropped_source = example["source_tokens"] - len(example["input_ids"])
        dropped_target = example["target_tokens"] - len(example["labels"])
        self.truncated_sources += dropped_source > 0
        self.truncated_targets += dropped_target > 0
        self.source_tokens += example["source_tokens"]
        self.target_tokens += example["target_tokens"]
        self.dropped_source_tokens += dropped_source
        self.dropped_target_tokens += dropped_target

    def merge(self, other: "Counts") -> None:
        """Adds the counts of other documents."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def make_example(task: Task, tokenizer: Tokenizer, document: Document, seed: int = 0) -> Example | None:
    """Returns the example of one document; None if it is too short to make one.

    Sequences over the task's maximum keep their first max - 1 tokens and the end-of-sequence id, as
    the collator of the published LOCOST code does (LOCOST specification, section 5).

    Args:
        task: what to make of the document.
        tokenizer: gives the ids.
        document: as ``sources.documents`` yields it.
        seed: of strategy "random"; that choice depends on the seed and the document's text alone,
            so it is the same in whatever file, order or shard the document comes.
    """
    texts = source_and_target(task, document, seed)
    if texts is None:
        return None
    source, target = (tokenizer.encode(text) for text in texts)
    return Example(
        id=document.id,
        input_ids=_close(source, task.max_source_length, tokenizer.eos_id),
        labels=_close(target, task.max_target_length, tokenizer.eos_id),
        source_tokens=len(source) + 1,
        target_tokens=len(target) + 1,
    )


def source_and_target(task: Task, document: Document, seed: int = 0) -> tuple[str, str] | None:
    """Returns the two texts of a training example, None if one of them would be empty.

    A document of a gap-sentence task that has a summary comes from a seqio pipeline that has made the
    selection already; an empty one means that it found the document too short.
    """
    source, target = document.document, document.summary
    if task.objective == "gap_sentences" and target is None:
        selected = select_gap_sentences(task, source, seed)
        if selected is None:
            return None
        source, target = selected
    if not source.strip() or not target or not target.strip():
        return None
    if document.query:
        source = f"{document.query}\n{source}"
    return task.prefix + source, target


def select_gap_sentences(task: Task, text: str, seed: int = 0) -> tuple[str, str] | None:
    """Returns the text without its most telling sentences, and those; None if it is too short."""
    digest = hashlib.sha256(text.encode()).digest()
    rng = np.random.Generator(np.random.PCG64([seed, int.from_bytes(digest[:8], "little")]))
    example = gap_sentence_example(text, task.gap_sentences, rng)
    return None if example is None else (example.source, example.target)


def make_examples(
    task: Task, tokenizer: Tokenizer, docs: Iterable[Document], *, seed: int = 0, counts: Counts | None = None
) -> Iterator[Example]:
    """Yields the examples of ``docs`` in their order, leaves out the too short, and counts both."""
    for document in docs:
        example = make_example(task, tokenizer, document, seed)
        if counts is not None:
            counts.add(example, new_document=task.piece_words is None or begins_document(document.id))
        if example is not None:
            yield example


class ExampleList(Sequence[Example]):
    """Examples held in memory.

    Attributes:
        lengths: int32 [n, 2], tokens of source and target after truncation.
        counts: what became of the documents that were read.
    """

    def __init__(self, examples: Iterable[Example], counts: Counts | None = None):
        self._examples = list(examples)
        self.lengths = np.array([(len(e["input_ids"]), len(e["labels"])) for e in self._examples], np.int32).reshape(
            -1, 2
        )
        self.counts = counts or Counts()

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        return self._examples[index]


def load_examples(task: Task, tokenizer: Tokenizer, split: str, *, seed: int = 0) -> ExampleList:
    """Reads a whole split into memory."""
    counts = Counts()
    return ExampleList(make_examples(task, tokenizer, documents(task, split), seed=seed, counts=counts), counts)


def _close(ids: list[int], limit: int, eos_id: int) -> np.ndarray:
    return np.array([*ids[: limit - 1], eos_id], np.int32)
