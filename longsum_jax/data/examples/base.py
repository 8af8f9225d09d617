"""Training examples, their records in shards, and the interface of example stores."""

import dataclasses
from typing import NotRequired, Protocol, TypedDict, cast

import numpy as np

from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.special_tokens import TokenPair
from longsum_jax.typing import IGNORED_LABEL


class Example(TypedDict):
    """The token ids of one document, with its labels.

    A document may have several segments (for an extractor: sentences). Their
    ids are concatenated, including special tokens, and each segment has a
    target or a numeric label.
    """

    id: str
    input_ids: np.ndarray  # int32 [source length], including special tokens
    # int32 [target length]: ids of the target (or the segments' concatenated
    # targets), indices of the document's labels, one number per segment, or
    # nothing.
    labels: np.ndarray
    # length of the source before truncation, including special tokens
    source_tokens: int
    # length of all targets before truncation, including special tokens
    target_tokens: int
    # int32 [segments], tokens of each segment
    segment_lengths: NotRequired[np.ndarray]
    # int32 [segments], tokens of each segment's target; absent if labels are
    # numbers.
    label_lengths: NotRequired[np.ndarray]
    # int32 [source length], for pairs of texts
    token_type_ids: NotRequired[np.ndarray]
    # int32 [source length] and [target length], for packed rows
    source_segment_ids: NotRequired[np.ndarray]
    target_segment_ids: NotRequired[np.ndarray]
    # See ``text.segment_inputs.SegmentInputs.vectors``.
    vectors: NotRequired[tuple[np.ndarray, np.ndarray]]
    # int32 [rejected length], ids of the rejected target
    rejected: NotRequired[np.ndarray]
    # float32 [2], log-probabilities of both targets under the reference model.
    reference: NotRequired[np.ndarray]


def example_lengths(example: Example) -> tuple[int, int]:
    """Returns the size of an example in a batch.

    Returns:
        Tokens of the source and of the longer target; with segments, their
        number and the tokens of the longest target.
    """
    if "segment_lengths" in example:
        longest_target = max(example.get("label_lengths", ()), default=0)
        return len(example["segment_lengths"]), longest_target
    source_length = len(example["input_ids"])
    longest_target = max(
        len(example["labels"]), len(example.get("rejected", ()))
    )
    return source_length, longest_target


class ExampleStore(Protocol):
    """Examples by index, for ``batches.Batches``.

    Stores of known length have ``__len__`` and ``lengths`` (int [n, 2]: source,
    target); streams have ``window`` and ``count_from(start, limit)`` instead.
    """

    def __getitem__(self, index: int, /) -> Example: ...


class Maker(Protocol):
    """A function that makes the examples of one document.

    Args:
        task: lengths and options.
        tokenizer: tokenizer that produces the ids.
        document: document as yielded by ``sources.documents``.
        seed: random seed of random choices.
        auxiliary: functions that compare sentences and find important ones.

    Returns:
        The examples; none if a document is too short.
    """

    def __call__(
        self,
        task: Task,
        tokenizer: Tokenizer,
        document: DataRow,
        *,
        seed: int,
        auxiliary: Auxiliary,
    ) -> list[Example]: ...


@dataclasses.dataclass
class Counts:
    """Numbers of documents and of tokens that were read, used and dropped."""

    read: int = 0  # documents read from the source
    # pieces of these documents; equal to ``read`` for uncut documents
    pieces: int = 0
    # pieces with nothing left to summarize, or without a summary
    too_short: int = 0
    truncated_sources: int = 0
    truncated_targets: int = 0
    source_tokens: int = 0  # before truncation
    target_tokens: int = 0
    dropped_source_tokens: int = 0
    dropped_target_tokens: int = 0
    # examples whose labels are all ignored: the answer is in the cut part
    unlabelled: int = 0
    # examples whose rejected target has the same ids as the reference
    identical_pairs: int = 0

    def add(
        self, example: Example | None, *, new_document: bool = True
    ) -> None:
        """Counts one piece.

        Args:
            example: example of the piece; None if it was too short.
            new_document: whether it is the first piece of its document.
        """
        self.read += new_document
        self.pieces += 1
        if example is None:
            self.too_short += 1
            return
        dropped_source = example["source_tokens"] - len(example["input_ids"])
        rejected = example.get("rejected", ())
        dropped_target = (
            example["target_tokens"] - len(example["labels"]) - len(rejected)
        )
        self.truncated_sources += dropped_source > 0
        self.truncated_targets += dropped_target > 0
        self.source_tokens += example["source_tokens"]
        self.target_tokens += example["target_tokens"]
        self.dropped_source_tokens += dropped_source
        self.dropped_target_tokens += dropped_target
        labels = example["labels"]
        self.unlabelled += bool(labels.size and np.all(labels == IGNORED_LABEL))
        self.identical_pairs += "rejected" in example and np.array_equal(
            labels, rejected
        )

    def merge(self, other: "Counts") -> None:
        """Adds the counts of other documents."""
        for field in dataclasses.fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


def source_text(task: Task, document: DataRow) -> str:
    """Returns prefix, query and document as one text, the model's source."""
    if document.query:
        return f"{task.prefix}{document.query}\n{document.document}"
    return task.prefix + document.document


def add_special_tokens(
    tokenizer: Tokenizer, ids: list[int], max_length: int | None = None
) -> np.ndarray:
    """Returns int32 ids with the tokenizer's special tokens around them.

    Args:
        tokenizer: tokenizer with the special tokens.
        ids: ids of a text.
        max_length: maximum length of the result, to which ``ids`` are cut.
    """
    return np.array(tokenizer.add_special_tokens(ids, max_length), np.int32)


def pair_example(
    document_id: str, pair: TokenPair, labels: np.ndarray, source_tokens: int
) -> Example:
    """Returns the example of two joined texts.

    Args:
        document_id: id of the document.
        pair: result of ``Tokenizer.join_pair``, cut to the maximum length.
        labels: int32 [labels], labels of the pair.
        source_tokens: length of the pair before truncation.
    """
    return Example(
        id=document_id,
        input_ids=np.array(pair.ids, np.int32),
        token_type_ids=np.array(pair.token_type_ids, np.int32),
        labels=labels,
        source_tokens=source_tokens,
        target_tokens=len(labels),
    )


# Keys of examples that have a different name in records.
_RECORD_NAMES = {"segment_lengths": "part_lengths"}
_EXAMPLE_NAMES = {record: example for example, record in _RECORD_NAMES.items()}


def pack(example: Example) -> bytes:
    """Returns the serialized record of an example."""
    from flax import serialization

    record = {
        _RECORD_NAMES.get(key, key): value for key, value in example.items()
    }
    if "vectors" in record:
        # msgpack does not support tuples
        record["vectors"] = list(example["vectors"])
    return serialization.msgpack_serialize(record)


def unpack(record: bytes) -> Example:
    """Returns the example in a serialized record."""
    from flax import serialization

    values = serialization.msgpack_restore(record)
    example = {
        _EXAMPLE_NAMES.get(key, key): value for key, value in values.items()
    }
    if "vectors" in example:
        example["vectors"] = tuple(example["vectors"])
    return cast(Example, example)
