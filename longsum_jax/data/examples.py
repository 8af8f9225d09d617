"""From a document to token ids, and a list of such examples in memory."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NotRequired, Protocol, TypedDict

import numpy as np

from longsum_jax.data.labels import label_numbers
from longsum_jax.data.pieces import begins_document
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import Document
from longsum_jax.text.gap_sentences import gap_sentence_example
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.tokenizers import Tokenizer

IGNORED_LABEL = -100  # what losses leave out


class Example(TypedDict):
    """One source as token ids closed as the tokenizer does, and what is to be learned of it.

    A source may be several closed parts (sentences, segments), one after the other, each with a target (or nothing)
    of its own, or a number.
    """

    id: str
    input_ids: np.ndarray  # int32 [l]
    labels: np.ndarray  # int32 [t]: the closed target, the numbers of the document's labels, of its parts, or nothing
    source_tokens: int  # length of the source before truncation, special tokens included
    target_tokens: int  # the same of the target
    part_lengths: NotRequired[np.ndarray]  # int32 [S], tokens of each part
    label_lengths: NotRequired[np.ndarray]  # int32 [S], tokens of each part's target; absent where labels are numbers
    vectors: NotRequired[tuple[np.ndarray, np.ndarray]]  # see ``text.reading.Reading.vectors``


def example_lengths(example: Example) -> tuple[int, int]:
    """Returns what a batch must have room for: tokens or parts of the source, tokens of the (longest) target."""
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

    Sequences over the task's maximum keep their first tokens and the special ones around them, as
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
        input_ids=closed(tokenizer, source, task.max_source_length),
        labels=closed(tokenizer, target, task.max_target_length),
        source_tokens=len(closed(tokenizer, source)),
        target_tokens=len(closed(tokenizer, target)),
    )


def classification_example(task: Task, tokenizer: Tokenizer, document: Document) -> Example:
    """Returns the document, cut at the task's maximum, with the numbers of its labels among ``task.labels``."""
    source = tokenizer.encode(source_of(task, document))
    input_ids = closed(tokenizer, source, task.max_source_length)
    labels = label_numbers(document, task.labels)
    return Example(
        id=document.id,
        input_ids=input_ids,
        labels=labels,
        source_tokens=len(closed(tokenizer, source)),
        target_tokens=len(labels),
    )


def piece_examples(task: Task, tokenizer: Tokenizer, document: Document) -> list[Example]:
    """Returns all tokens of a document in pieces of the task's maximum, for masked language models.

    Each piece begins with the task's prefix and is closed; none has labels, which come with the masks.

    Raises:
        InputError: prefix and special tokens leave no room for text.
    """
    prefix = tokenizer.encode(task.prefix)
    room = task.max_source_length - len(closed(tokenizer, prefix))
    if room < 1:
        raise InputError(
            f'task "{task.name}": max_source_length={task.max_source_length} leaves no room for text; raise it'
        )
    ids = tokenizer.encode(document.document)
    pieces = [closed(tokenizer, prefix + ids[i : i + room]) for i in range(0, len(ids), room)]
    nothing = np.zeros(0, np.int32)
    return [
        Example(
            id=f"{document.id}#{number}", input_ids=piece, labels=nothing, source_tokens=len(piece), target_tokens=0
        )
        for number, piece in enumerate(pieces)
    ]


def extraction_example(task: Task, tokenizer: Tokenizer, document: Document, seed: int = 0) -> Example | None:
    """Returns the sentences of a document as parts, labelled 1 where the greedy oracle takes them and 0 elsewhere.

    Gap sentences stand for the summary of a source that has none. The first ``max_parts`` sentences count; a query is
    a further one before them, whose label is ignored. None for a document with nothing to take.
    """
    sentences = split_sentences(document.document)
    query = [document.query] if document.query else []
    read = sentences[: task.max_parts - len(query)]
    summary = document.summary
    if summary is None:
        _, summary = select_gap_sentences(task, document.document, seed) or ("", "")
    taken = greedy_oracle(read, summary)
    if not taken:
        return None
    ids = tokenizer.encode_batch([task.prefix + text for text in (*query, *sentences)])
    parts = [closed(tokenizer, part, task.max_source_length) for part in ids[: len(query) + len(read)]]
    labels = np.zeros(len(parts), np.int32)
    labels[: len(query)] = IGNORED_LABEL
    labels[np.array(taken) + len(query)] = 1
    return Example(
        id=document.id,
        input_ids=np.concatenate(parts),
        labels=labels,
        source_tokens=sum(len(closed(tokenizer, part)) for part in ids),
        target_tokens=len(labels),
        part_lengths=np.array([len(part) for part in parts], np.int32),
    )


def source_of(task: Task, document: Document) -> str:
    """Returns the text that an encoder-decoder or a classifier reads: prefix, query, document."""
    source = f"{document.query}\n{document.document}" if document.query else document.document
    return task.prefix + source


def source_and_target(task: Task, document: Document, seed: int = 0) -> tuple[str, str] | None:
    """Returns the two texts of a training example, None if one of them would be empty.

    A document of a gap-sentence task that has a summary comes from a seqio pipeline that has made the
    selection already; an empty one means that it found the document too short.
    """
    source, target = document.document, document.summary
    if target is None and task.objective in ("gap_sentences", "summarize_segments"):
        selected = select_gap_sentences(task, source, seed)
        if selected is None:
            return None
        source, target = selected
    if not source.strip() or not target or not target.strip():
        return None
    return source_of(task, document._replace(document=source)), target


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
    make = _MAKERS[task.objective]
    for document in docs:
        examples = make(task, tokenizer, document, seed)
        begins = task.piece_words is None or begins_document(document.id)
        for number, example in enumerate(examples or [None]):
            if counts is not None:
                counts.add(example, new_document=begins and number == 0)
            if example is not None:
                yield example


def _target_examples(task: Task, tokenizer: Tokenizer, document: Document, seed: int) -> list[Example]:
    example = make_example(task, tokenizer, document, seed)
    return [] if example is None else [example]


def _segment_examples(task: Task, tokenizer: Tokenizer, document: Document, seed: int) -> list[Example]:
    from longsum_jax.data.segments import segment_example

    example = segment_example(task, tokenizer, document, seed)
    return [] if example is None else [example]


_MAKERS: Mapping[str, Callable[[Task, Tokenizer, Document, int], list[Example]]] = {
    "summarize": _target_examples,
    "gap_sentences": _target_examples,
    "summarize_segments": _segment_examples,
    "extract": lambda *args: [example] if (example := extraction_example(*args)) else [],
    "classify": lambda task, tokenizer, document, seed: [classification_example(task, tokenizer, document)],
    "mlm": lambda task, tokenizer, document, seed: piece_examples(task, tokenizer, document),
}


class ExampleList(Sequence[Example]):
    """Examples held in memory.

    Attributes:
        lengths: int32 [n, 2], tokens of source and target after truncation; see ``example_lengths``.
        counts: what became of the documents that were read.
    """

    def __init__(self, examples: Iterable[Example], counts: Counts | None = None):
        self._examples = list(examples)
        self.lengths = np.array([example_lengths(e) for e in self._examples], np.int32).reshape(-1, 2)
        self.counts = counts or Counts()

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        return self._examples[index]


def load_examples(task: Task, tokenizer: Tokenizer, split: str, *, seed: int = 0) -> ExampleList:
    """Reads a whole split into memory."""
    counts = Counts()
    return ExampleList(make_examples(task, tokenizer, documents(task, split), seed=seed, counts=counts), counts)


def closed(tokenizer: Tokenizer, ids: list[int], limit: int | None = None) -> np.ndarray:
    """Returns the ids between the tokenizer's special tokens, int32, cut to ``limit`` tokens in all."""
    return np.array(tokenizer.close(ids, limit), np.int32)
