"""Examples of sentences with labels, for extractors."""

import numpy as np

from longsum_jax.data.examples.base import Example, closed
from longsum_jax.data.examples.summarization import select_gap_sentences
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import IGNORED_LABEL


def extraction_example(
    task: Task, tokenizer: Tokenizer, document: Document, seed: int = 0
) -> Example | None:
    """Returns the sentences of a document as parts, labelled 1 where the greedy oracle takes them
    and 0 elsewhere.

    Gap sentences stand for the summary of a source that has none. The first ``max_parts`` sentences
    count; a query is a further one before them, whose label is ignored. None for a document with
    nothing to take.
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
    parts = [
        closed(tokenizer, part, task.max_source_length) for part in ids[: len(query) + len(read)]
    ]
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
