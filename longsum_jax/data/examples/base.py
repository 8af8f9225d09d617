"""A training example, and stores of examples."""

import dataclasses
from typing import NotRequired, Protocol, TypedDict

import numpy as np

from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.text.segment_inputs import Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import IGNORED_LABEL


class Example(TypedDict):
    """The token ids of one document, and its labels.

    A document may be several segments (of an extractor: sentences). Their ids stand one after the
    other, special tokens included, and each segment has a target or a number as label.
    """

    id: str
    input_ids: np.ndarray  # int32 [source length], special tokens included
    # int32 [target length]: ids of the target (of the segments' targets, one after the other),
    # numbers of the document's labels, a number a segment, or nothing.
    labels: np.ndarray
    source_tokens: int  # length of the source before truncation, special tokens included
    target_tokens: int  # length of all targets before truncation, special tokens included
    segment_lengths: NotRequired[np.ndarray]  # int32 [segments], tokens of each segment
    # int32 [segments], tokens of each segment's target; absent where labels are numbers.
    label_lengths: NotRequired[np.ndarray]
    token_type_ids: NotRequired[np.ndarray]  # int32 [source length], of pairs of texts
    # See ``text.segment_inputs.SegmentInputs.vectors``.
    vectors: NotRequired[tuple[np.ndarray, np.ndarray]]
    rejected: NotRequired[np.ndarray]  # int32 [rejected length], ids of the rejected target
    # float32 [2], log-probabilities of both targets under the reference model.
    reference: NotRequired[np.ndarray]


def example_lengths(example: Example) -> tuple[int, int]:
    """Returns the room that an example needs in a batch.

    Returns:
        Tokens of the source and of the longer target; with segments, their number and the tokens of
        the longest target.
    """
    if "segment_lengths" in example:
        longest_target = max(example.get("label_lengths", ()), default=0)
        return len(example["segment_lengths"]), longest_target
    source_length = len(example["input_ids"])
    longest_target = max(len(example["labels"]), len(example.get("rejected", ())))
    return source_length, longest_target


class ExampleStore(Protocol):
    """Examples by index, for ``batches.Batches``.

    Stores of known length have ``__len__`` and ``lengths`` (int [n, 2]: source, target); streams
    have ``window`` and ``count_from(start, limit)`` instead.
    """

    def __getitem__(self, index: int, /) -> Example: ...


class Maker(Protocol):
    """A function that makes the examples of one document.

    Args:
        task: lengths and options.
        tokenizer: gives the ids.
        document: as ``sources.documents`` yields it.
        seed: of random choices.
        auxiliary: compares sentences and finds the important ones.

    Returns:
        The examples; none for a document that is too short.
    """

    def __call__(
        self,
        task: Task,
        tokenizer: Tokenizer,
        document: Document,
        *,
        seed: int,
        auxiliary: Auxiliary,
    ) -> list[Example]: ...


@dataclasses.dataclass
class Counts:
    """Numbers of documents and of tokens that were read, used and dropped."""

    read: int = 0  # documents of the source
    pieces: int = 0  # pieces that they were cut into; equal to ``read`` for uncut documents
    too_short: int = 0  # pieces with nothing left to summarize, or without a summary
    truncated_sources: int = 0
    truncated_targets: int = 0
    source_tokens: int = 0  # before truncation
    target_tokens: int = 0
    dropped_source_tokens: int = 0
    dropped_target_tokens: int = 0
    unlabelled: int = 0  # examples whose labels are all ignored: an answer beyond what is read
    identical_pairs: int = 0  # examples whose rejected target has the ids of the other one

    def add(self, example: Example | None, *, new_document: bool = True) -> None:
        """Counts one piece.

        Args:
            example: made of the piece; None if it was too short.
            new_document: whether it is the first piece of its document.
        """
        self.read += new_document
        self.pieces += 1
        if example is None:
            self.too_short += 1
            return
        dropped_source = example["source_tokens"] - len(example["input_ids"])
        rejected = example.get("rejected", ())
        dropped_target = example["target_tokens"] - len(example["labels"]) - len(rejected)
        self.truncated_sources += dropped_source > 0
        self.truncated_targets += dropped_target > 0
        self.source_tokens += example["source_tokens"]
        self.target_tokens += example["target_tokens"]
        self.dropped_source_tokens += dropped_source
        self.dropped_target_tokens += dropped_target
        labels = example["labels"]
        self.unlabelled += bool(labels.size and np.all(labels == IGNORED_LABEL))
        self.identical_pairs += "rejected" in example and np.array_equal(labels, rejected)

    def merge(self, other: "Counts") -> None:
        """Adds the counts of other documents."""
        for field in dataclasses.fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


def source_text(task: Task, document: Document) -> str:
    """Returns prefix, query and document as one text, the source of a model."""
    if document.query:
        return f"{task.prefix}{document.query}\n{document.document}"
    return task.prefix + document.document


def add_special_tokens(
    tokenizer: Tokenizer, ids: list[int], max_length: int | None = None
) -> np.ndarray:
    """Returns int32 ids with the tokenizer's special tokens around them.

    Args:
        tokenizer: whose special tokens.
        ids: of a text.
        max_length: cuts ``ids``, so that no more tokens come out.
    """
    return np.array(tokenizer.add_special_tokens(ids, max_length), np.int32)
