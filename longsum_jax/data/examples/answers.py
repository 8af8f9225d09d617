"""Examples of a question and a document that answers it, for extractive question answering."""

import re
from collections.abc import Sequence
from typing import cast

import numpy as np

from longsum_jax.data.examples.base import Example, pair_example
from longsum_jax.data.examples.classification import label_tuple
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import IGNORED_LABEL


def answer_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a question, its document, and the position of the answer; see
    ``base.Maker``.

    The question precedes the document, which is cut at the task's maximum.
    Labels are the first and last token of the first verbatim occurrence of an
    answer; they are ignored if there is none in the text that is read. A
    document without tokens has no example.

    Raises:
        InputError: a document without an answer, or a question that leaves no
            room.
    """
    del seed, auxiliary
    text = document.document
    question = tokenizer.encode(task.prefix + (document.query or ""))
    ids = tokenizer.encode(text)
    if not ids:
        return []
    pair = tokenizer.join_pair(
        question, ids, task.max_source_length, truncation="second"
    )
    spans = tokenizer.spans(text)[: pair.second.stop - pair.second.start]
    answer_spans = (
        _answer_span(text, answer, spans) for answer in answers_of(document)
    )
    answer_span = next(filter(None, answer_spans), None)
    labels = np.full(2, IGNORED_LABEL, np.int32)
    if answer_span is not None:
        labels = np.array(answer_span, np.int32) + pair.second.start
    source_tokens = len(tokenizer.join_pair(question, ids).ids)
    return [pair_example(document.id, pair, labels, source_tokens)]


def cloze_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a cloze question, as ``answer_examples`` does; see ``base.Maker``.

    A question longer than half of the task's maximum has no example.
    """
    question = tokenizer.encode(task.prefix + (document.query or ""))
    if len(question) > task.max_source_length // 2:
        return []
    return answer_examples(
        task, tokenizer, document, seed=seed, auxiliary=auxiliary
    )


def answers_of(document: DataRow) -> tuple[str, ...]:
    """Returns the answers of a document, any of which is correct.

    Raises:
        InputError: there is no answer, or it is a number.
    """
    answers = label_tuple(document.label)
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise InputError(
            f'document "{document.id}": its answer is {document.label!r}; give a text, or a list '
            "of texts any of which is right"
        )
    return cast(tuple[str, ...], answers)


def find_answer(text: str, answer: str) -> int:
    """Returns the offset of an answer: its first occurrence as whole words, else the first one
    anywhere ("5" in 5,000), else -1.
    """
    words = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text)
    return words.start() if words else text.find(answer)


def _answer_span(
    text: str, answer: str, spans: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Returns the first and last token of an answer's first occurrence; None if there is none.

    Args:
        text: text of the document.
        answer: answer to find.
        spans: character spans of the tokens that are read, see
            ``Tokenizer.spans``.
    """
    start = find_answer(text, answer)
    end = start + len(answer)
    if start < 0 or not spans or end > spans[-1][1]:
        return None
    touched = [
        i
        for i, (first, last) in enumerate(spans)
        if first < end and last > start
    ]
    return (touched[0], touched[-1]) if touched else None
