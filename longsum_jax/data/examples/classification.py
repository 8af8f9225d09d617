"""Examples of a document, or of a document and a claim about it, with labels."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.data.examples.base import (
    Example,
    add_special_tokens,
    pair_example,
    source_text,
)
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.documents import DataRow, Label
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer

_MAX_NAMES_LISTED = 20


def classification_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document with its labels; see ``base.Maker``.

    The document is cut at the task's maximum; labels are indices of names in
    ``task.labels``.
    """
    del seed, auxiliary
    source = tokenizer.encode(source_text(task, document))
    labels = class_numbers(task, document)
    example = Example(
        id=document.id,
        input_ids=add_special_tokens(tokenizer, source, task.max_source_length),
        labels=labels,
        source_tokens=len(add_special_tokens(tokenizer, source)),
        target_tokens=len(labels),
    )
    return [example]


def class_numbers(task: Task, document: DataRow) -> np.ndarray:
    """Returns the class indices of a document's labels; one, unless the task is multi-label.

    Raises:
        InputError: a label that is not in the task, or not exactly one label if
            one is required.
    """
    numbers = label_numbers(document, task.labels)
    if not task.multi_label and len(numbers) != 1:
        raise InputError(
            f'document "{document.id}" has {len(numbers)} labels, but the training documents have '
            "one each; give it one, or train with a list for each document"
        )
    return np.unique(numbers) if task.multi_label else numbers


def label_numbers(document: DataRow, names: Sequence[str]) -> np.ndarray:
    """Returns the indices of a document's labels, int32 [labels].

    Args:
        document: document whose label is a name or an index, or a tuple of
            these; indices are unchanged.
        names: names of all labels, in the order of their indices.

    Raises:
        InputError: a label that is not among the names.
    """
    numbers = [
        _number(label, names, document.id)
        for label in label_tuple(document.label)
    ]
    return np.array(numbers, np.int32)


def label_tuple(label: Label | None) -> tuple[int | str, ...]:
    """Returns a document's labels as a tuple, for one, several or no labels."""
    if label is None:
        return ()
    return label if isinstance(label, tuple) else (label,)


def _number(label: int | str, names: Sequence[str], document_id: str) -> int:
    if isinstance(label, int) and label < len(names):
        return label
    if label in names:
        return names.index(label)
    hint = f"there are {len(names)} labels"
    if len(names) <= _MAX_NAMES_LISTED:
        hint = did_you_mean(str(label), names)
    raise InputError(
        f'document "{document_id}": label {label!r} is not a label of the task; {hint}; correct '
        "it, or train with all labels in task.labels"
    )


def pair_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document paired with a claim, and their label; see ``base.Maker``.

    The longer of the two is cut at the task's maximum, as in FactCC and
    entailment models (in which document and claim are premise and hypothesis).

    Raises:
        InputError: a document without a claim, or a label that is not among the
            names.
    """
    del seed, auxiliary
    if not document.query:
        raise InputError(
            f'document "{document.id}" has no "{task.query_key}"; give each document a claim, or '
            "name its field with task.query_key"
        )
    ids = tokenizer.encode(task.prefix + document.document)
    claim = tokenizer.encode(document.query)
    pair = tokenizer.join_pair(ids, claim, task.max_source_length)
    labels = class_numbers(task, document)
    source_tokens = len(tokenizer.join_pair(ids, claim).ids)
    return [pair_example(document.id, pair, labels, source_tokens)]
