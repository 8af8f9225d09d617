"""A training example, and stores of examples."""

import dataclasses
from typing import NotRequired, Protocol, TypedDict

import numpy as np

from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.tokenizers.base import Tokenizer


class Example(TypedDict):
    """One source as token ids closed as the tokenizer does, and what is to be learned of it.

    A source may be several closed parts (sentences, segments), one after the other, each with a
    target (or nothing) of its own, or a number.
    """

    id: str
    input_ids: np.ndarray  # int32 [l]
    labels: np.ndarray  # int32 [t]: the closed target, the numbers of the document's labels, of its parts, or nothing
    source_tokens: int  # length of the source before truncation, special tokens included
    target_tokens: int  # the same of the target
    part_lengths: NotRequired[np.ndarray]  # int32 [S], tokens of each part
    label_lengths: NotRequired[
        np.ndarray
    ]  # int32 [S], tokens of each part's target; absent where labels are numbers
    vectors: NotRequired[
        tuple[np.ndarray, np.ndarray]
    ]  # see ``text.segment_inputs.SegmentInputs.vectors``


def example_lengths(example: Example) -> tuple[int, int]:
    """Returns what a batch must have room for: tokens or parts of the source, tokens of the
    (longest) target."""
    if "part_lengths" in example:
        return len(example["part_lengths"]), max(example.get("label_lengths", ()), default=0)
    return len(example["input_ids"]), len(example["labels"])


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
    pieces: int = 0  # what they were cut into; equal to ``read`` where documents stay whole
    too_short: int = 0  # pieces with nothing left to summarise, or without a summary
    truncated_sources: int = 0
    truncated_targets: int = 0
    source_tokens: int = 0  # before truncation
    target_tokens: int = 0
    dropped_source_tokens: int = 0
    dropped_target_tokens: int = 0

    def add(self, example: Example | None, *, new_document: bool = True) -> None:
        """Counts one piece, None for one that was too short; ``new_document`` for the first of its
        document."""
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


def source_of(task: Task, document: Document) -> str:
    """Returns the text that an encoder-decoder or a classifier reads: prefix, query, document."""
    source = f"{document.query}\n{document.document}" if document.query else document.document
    return task.prefix + source


def closed(tokenizer: Tokenizer, ids: list[int], limit: int | None = None) -> np.ndarray:
    """Returns the ids between the tokenizer's special tokens, int32, cut to ``limit`` tokens in
    all."""
    return np.array(tokenizer.add_special_tokens(ids, limit), np.int32)
