"""Makes the examples of a task from documents."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

from longsum_jax.data.examples.base import Counts, Example
from longsum_jax.data.examples.classification import classification_example
from longsum_jax.data.examples.extraction import extraction_example
from longsum_jax.data.examples.masked_lm import piece_examples
from longsum_jax.data.examples.segments import segment_example
from longsum_jax.data.examples.summarization import make_example
from longsum_jax.data.pieces import begins_document
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.text.segment_inputs import Auxiliary
from longsum_jax.tokenizers.base import Tokenizer


def make_examples(
    task: Task,
    tokenizer: Tokenizer,
    docs: Iterable[Document],
    *,
    seed: int = 0,
    counts: Counts | None = None,
    auxiliary: Auxiliary = Auxiliary(),
) -> Iterator[Example]:
    """Yields the examples of ``docs`` in their order, leaves out the too short, and counts both.

    Args:
        seed: of random choices in examples, such as gap sentences.
        counts: to add to.
        auxiliary: compares sentences and finds important ones, for ``summarize_segments``.
    """
    make = _MAKERS[task.objective]
    if task.objective == "summarize_segments":
        make = functools.partial(make, auxiliary=auxiliary)
    for document in docs:
        examples = make(task, tokenizer, document, seed)
        begins = task.piece_words is None or begins_document(document.id)
        for number, example in enumerate(examples or [None]):
            if counts is not None:
                counts.add(example, new_document=begins and number == 0)
            if example is not None:
                yield example


def _target_examples(
    task: Task, tokenizer: Tokenizer, document: Document, seed: int
) -> list[Example]:
    example = make_example(task, tokenizer, document, seed)
    return [] if example is None else [example]


def _segment_examples(
    task: Task, tokenizer: Tokenizer, document: Document, seed: int, auxiliary: Auxiliary
) -> list[Example]:
    example = segment_example(task, tokenizer, document, seed, auxiliary)
    return [] if example is None else [example]


_MAKERS: Mapping[str, Callable[..., list[Example]]] = {
    "summarize": _target_examples,
    "gap_sentences": _target_examples,
    "summarize_segments": _segment_examples,
    "extract": lambda *args: [example] if (example := extraction_example(*args)) else [],
    "classify": lambda task, tokenizer, document, seed: [
        classification_example(task, tokenizer, document)
    ],
    "mlm": lambda task, tokenizer, document, seed: piece_examples(task, tokenizer, document),
}
