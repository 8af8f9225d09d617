"""Examples of documents as segments, each with its own target (AWESOME, appendix A)."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.examples.summarization import source_and_target
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.prompts import prefix_prompt
from longsum_jax.text.segment_inputs import (
    DEFAULT_AUXILIARY,
    Auxiliary,
    SegmentInputOptions,
    SegmentInputs,
    read_segment_inputs,
)
from longsum_jax.text.segment_targets import segment_targets
from longsum_jax.tokenizers.base import Tokenizer


def segment_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document's segments and their shares of the summary; see
    ``base.Maker``.

    A segment to which no summary sentence is assigned has no labels, or with
    ``train_empty`` only the end of the sequence. Gap sentences replace the
    summary of a document without one. With ``salient_source`` "oracle", the
    summary determines which sentences are important, otherwise
    ``auxiliary.extract`` does.

    Raises:
        InputError: a query that leaves no room for a segment, or options with a
            model that is missing in ``auxiliary``.
    """
    options = task.segments
    _check_auxiliary(task, auxiliary)
    # Prefix and query precede every segment, not only the document.
    texts = source_and_target(
        dataclasses.replace(task, prefix=""),
        document._replace(query=None),
        seed,
    )
    if texts is None:
        return []
    text, summary = texts
    if options.salient_source == "oracle":
        auxiliary = auxiliary._replace(
            extract=functools.partial(_oracle, summary=summary)
        )
    inputs = read_segment_inputs(
        text,
        tokenizer,
        options,
        prompt=prefix_prompt(task.prefix),
        query=document.query,
        max_tokens=options.train_tokens or None,
        max_segments=task.max_parts,
        auxiliary=auxiliary,
    )
    targets = _target_ids(inputs, summary, tokenizer, options)
    labels = [
        _closed(tokenizer, target, task.max_target_length) for target in targets
    ]
    unread_tokens = inputs.total_tokens - inputs.read_tokens
    example = Example(
        id=document.id,
        input_ids=_concatenate(inputs.sources),
        labels=_concatenate(labels),
        source_tokens=sum(map(len, inputs.sources)) + unread_tokens,
        target_tokens=sum(
            len(_closed(tokenizer, target)) for target in targets
        ),
        segment_lengths=_lengths(inputs.sources),
        label_lengths=_lengths(labels),
    )
    if options.salient == "vectors":
        example["vectors"] = inputs.vectors(options)
    return [example]


def _target_ids(
    inputs: SegmentInputs,
    summary: str,
    tokenizer: Tokenizer,
    options: SegmentInputOptions,
) -> list[list[int] | None]:
    """Returns the ids of each segment's share of the summary; None if it has no loss."""
    document = inputs.document
    texts = [
        document.segment_text(index) for index in range(len(document.segments))
    ]
    targets = segment_targets(
        texts,
        summary,
        metric=options.target_metric,
        stemmer=options.target_stemmer,
    )
    ids = tokenizer.encode_batch(targets)
    results: list[list[int] | None] = []
    for text, target_ids in zip(targets, ids, strict=True):
        has_loss = bool(text) or options.train_empty
        results.append(target_ids if has_loss else None)
    return results


def _closed(
    tokenizer: Tokenizer,
    target: list[int] | None,
    max_length: int | None = None,
) -> np.ndarray:
    """Returns a target with its special tokens, truncated to the maximum length before the last."""
    if target is None:
        return np.zeros(0, np.int32)
    return add_special_tokens(tokenizer, target, max_length)


def _oracle(
    sentences: Sequence[str], query: str | None, *, summary: str
) -> list[int]:
    """Returns the indices of the sentences that the greedy oracle selects for the summary."""
    del query
    return greedy_oracle(sentences, summary=summary)


def _check_auxiliary(task: Task, auxiliary: Auxiliary) -> None:
    """Raises InputError if defaults would be used instead of the models in the options."""
    options, defaults = task.segments, DEFAULT_AUXILIARY
    missing = ""
    if (
        options.sentence_encoder
        and auxiliary.encode_sentences is defaults.encode_sentences
    ):
        missing = f"sentence_encoder is {options.sentence_encoder}"
    predicts = (
        options.salient != "none" and options.salient_source == "predicted"
    )
    if options.extractor and predicts and auxiliary.extract is defaults.extract:
        missing = f"extractor is {options.extractor}"
    if missing:
        raise InputError(
            f'task "{task.name}": segments.{missing}, but no such model was passed; give '
            "auxiliary=auxiliary_functions(load_auxiliary(task.segments))"
        )


def _concatenate(ids: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    return np.concatenate([np.array(segment, np.int32) for segment in ids])


def _lengths(ids: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    return np.array([len(segment) for segment in ids], np.int32)
