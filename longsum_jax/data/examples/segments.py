"""Documents as segments with targets of their own, read one after the other (AWESOME, appendix
A)."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from longsum_jax.data.examples.base import Example, closed
from longsum_jax.data.examples.summarization import source_and_target
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.segment_inputs import Auxiliary, SegmentInputs, read_segment_inputs
from longsum_jax.text.segment_targets import segment_targets
from longsum_jax.tokenizers.base import Tokenizer


def segment_example(
    task: Task,
    tokenizer: Tokenizer,
    document: Document,
    seed: int = 0,
    auxiliary: Auxiliary = Auxiliary(),
) -> Example | None:
    """Returns the segments of a document, each with its part of the summary; None without a text or
    a summary.

    A segment whose part is empty has no labels, or with ``train_empty`` the end of a sequence
    alone.

    Gap sentences stand for the summary of a source that has none; ``seed`` is that of their choice.
    With ``salient_source`` "oracle" the summary says which sentences are important, else
    ``auxiliary.extract``.

    Raises:
        InputError: a query that leaves no room for a segment.
    """
    texts = source_and_target(
        dataclasses.replace(task, prefix=""), document._replace(query=None), seed
    )
    if texts is None:
        return None
    (text, summary), options = texts, task.segments
    limits = {"max_tokens": options.train_tokens or None, "max_segments": task.max_parts}
    if options.salient_source == "oracle":
        auxiliary = auxiliary._replace(extract=functools.partial(_oracle, summary=summary))
    reading = read_segment_inputs(
        text,
        tokenizer,
        options,
        prefix=task.prefix,
        query=document.query,
        auxiliary=auxiliary,
        **limits,
    )
    targets = _targets(task, tokenizer, reading, summary)
    labels = [target[: task.max_target_length] if target else target for target in targets]
    read = sum(map(len, reading.sources))
    return Example(
        id=document.id,
        input_ids=np.concatenate([np.array(source, np.int32) for source in reading.sources]),
        labels=np.concatenate([np.array(target, np.int32) for target in labels]),
        source_tokens=read + reading.total_tokens - reading.read_tokens,
        target_tokens=sum(map(len, targets)),
        part_lengths=_lengths(reading.sources),
        label_lengths=_lengths(labels),
        **({"vectors": reading.vectors(options)} if options.salient == "vectors" else {}),
    )


def _targets(
    task: Task, tokenizer: Tokenizer, reading: SegmentInputs, summary: str
) -> list[list[int]]:
    """Closed ids of the part of the summary that belongs to each segment."""
    document, options = reading.document, task.segments
    texts = [document.segment_text(i) for i in range(len(document.segments))]
    parts = segment_targets(texts, summary, metric=options.target_metric)
    ids = tokenizer.encode_batch(parts)
    return [
        closed(tokenizer, found).tolist() if part or options.train_empty else []
        for part, found in zip(parts, ids, strict=True)
    ]


def _lengths(parts: Sequence[Sequence[int]]) -> np.ndarray:
    return np.array([len(part) for part in parts], np.int32)


def _oracle(sentences: Sequence[str], query: str | None, *, summary: str) -> list[int]:
    """Returns the indices of the sentences that the summary takes from the document."""
    del query
    return greedy_oracle(sentences, summary=summary)
