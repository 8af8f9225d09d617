"""Examples of a source and its summary, which may be gap sentences."""

import hashlib

import numpy as np

from longsum_jax.data.examples.base import Example, closed, source_of
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.text.gap_sentences import gap_sentence_example
from longsum_jax.tokenizers.base import Tokenizer


def make_example(
    task: Task, tokenizer: Tokenizer, document: Document, seed: int = 0
) -> Example | None:
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


def source_and_target(task: Task, document: Document, seed: int = 0) -> tuple[str, str] | None:
    """Returns the two texts of a training example, None if one of them would be empty.

    A document of a gap-sentence task that has a summary comes from a seqio pipeline that has made
    the selection already; an empty one means that it found the document too short.
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
