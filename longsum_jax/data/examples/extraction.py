"""Examples of labeled sentences, for extractors."""

import numpy as np

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.gap_sentences import gap_sentence_texts
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import IGNORED_LABEL


def extraction_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document's sentences, labeled 1 if the greedy oracle selects them,
    else 0; see ``base.Maker``.

    Each sentence is a segment. Only the first ``max_parts`` sentences are used;
    a query precedes them as a segment whose label is ignored. Gap sentences
    replace the summary of a document without one. A document from which the
    oracle selects nothing has no example.
    """
    del auxiliary
    query = [document.query] if document.query else []
    sentences = split_sentences(document.document)
    candidates = sentences[: task.max_parts - len(query)]
    selected = greedy_oracle(candidates, _summary(task, document, seed))
    if not selected:
        return []

    texts = [task.prefix + text for text in (*query, *sentences)]
    ids = tokenizer.encode_batch(texts)
    num_segments = len(query) + len(candidates)
    segments = [
        add_special_tokens(tokenizer, segment, task.max_source_length)
        for segment in ids[:num_segments]
    ]
    labels = np.zeros(num_segments, np.int32)
    labels[: len(query)] = IGNORED_LABEL
    labels[np.array(selected) + len(query)] = 1
    example = Example(
        id=document.id,
        input_ids=np.concatenate(segments),
        labels=labels,
        source_tokens=sum(
            len(add_special_tokens(tokenizer, segment)) for segment in ids
        ),
        target_tokens=len(labels),
        segment_lengths=np.array(
            [len(segment) for segment in segments], np.int32
        ),
    )
    return [example]


def _summary(task: Task, document: DataRow, seed: int) -> str:
    if document.summary is not None:
        return document.only_summary
    texts = gap_sentence_texts(document.document, task.gap_sentences, seed)
    return "" if texts is None else texts[1]
