"""Examples of a source with its summary, which may be gap sentences."""

import dataclasses

from longsum_jax.data.examples.base import (
    Example,
    add_special_tokens,
    source_text,
)
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.gap_sentences import gap_sentence_texts
from longsum_jax.text.joining import (
    cut_documents,
    document_token_id,
    join_documents,
    split_documents,
)
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.files import DOCUMENT_TOKEN


def summarization_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document with its summary; see ``base.Maker``."""
    del auxiliary
    example = make_example(task, tokenizer, document, seed)
    return [] if example is None else [example]


def make_example(
    task: Task, tokenizer: Tokenizer, document: DataRow, seed: int = 0
) -> Example | None:
    """Returns the example of one document; None if the document is too short.

    Sequences longer than the task's maximum keep their first tokens and the
    special tokens, as in the collator of the published LOCOST code; of several
    documents each is truncated, see ``joining.cut_documents``.

    Args:
        task: lengths and options.
        tokenizer: tokenizer that produces the ids.
        document: document as yielded by ``sources.documents``.
        seed: random seed of gap-sentence strategy "random"; see
            ``text.gap_sentences.gap_sentence_texts``.
    """
    separator_id = document_token_id(tokenizer) if document.borders else None
    if document.borders and separator_id is not None:
        parts = split_documents(document.document, document.borders)
        text, _ = join_documents(parts, DOCUMENT_TOKEN)
        document = document._replace(document=text, borders=None)
    texts = source_and_target(task, document, seed)
    if texts is None:
        return None
    source, target = (tokenizer.encode(text) for text in texts)
    read = source
    if separator_id is not None:
        room = task.max_source_length - len(tokenizer.add_special_tokens([]))
        read = cut_documents(source, separator_id, room)
    return Example(
        id=document.id,
        input_ids=add_special_tokens(tokenizer, read, task.max_source_length),
        labels=add_special_tokens(tokenizer, target, task.max_target_length),
        source_tokens=len(add_special_tokens(tokenizer, source)),
        target_tokens=len(add_special_tokens(tokenizer, target)),
    )


def with_target(task: Task, document: DataRow, seed: int = 0) -> DataRow | None:
    """Returns a document whose summary is the model's target, for an evaluation.

    Prefix and query are not included, because the model adds them. None if a
    text would be empty; see ``source_and_target``.
    """
    plain = dataclasses.replace(task, prefix="")
    texts = source_and_target(plain, document._replace(query=None), seed)
    return (
        None
        if texts is None
        else document._replace(document=texts[0], summary=texts[1])
    )


def source_and_target(
    task: Task, document: DataRow, seed: int = 0
) -> tuple[str, str] | None:
    """Returns the source and target of a training example; None if one of them would be empty.

    A document of a gap-sentence task that has a summary comes from a seqio
    pipeline, which has already selected the sentences; an empty summary then
    marks a document as too short.
    """
    source, target = document.document, document.only_summary
    if target is None and task.base_objective in (
        "gap_sentences",
        "summarize_segments",
        "prefer",
    ):
        texts = gap_sentence_texts(source, task.gap_sentences, seed)
        if texts is None:
            return None
        source, target = texts
    if not source.strip() or not target or not target.strip():
        return None
    return source_text(task, document._replace(document=source)), target


def preference_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document, its summary and a rejected summary; see ``base.Maker``.

    Both summaries are cut at the task's maximum. A pair of summaries with
    identical ids is kept and counted; its weight in the loss is 0.

    Raises:
        InputError: a document without a rejected summary.
    """
    del auxiliary
    example = make_example(task, tokenizer, document, seed)
    if example is None:
        return []
    if not document.rejected:
        raise InputError(
            f'document "{document.id}" has no "{task.rejected_key}"; give each document a rejected '
            "summary (longsum corpus pairs writes them), or name its field with task.rejected_key"
        )
    ids = tokenizer.encode(document.rejected)
    example["rejected"] = add_special_tokens(
        tokenizer, ids, task.max_target_length
    )
    example["target_tokens"] += len(add_special_tokens(tokenizer, ids))
    return [example]
