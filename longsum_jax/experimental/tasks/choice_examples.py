"""Examples of a document, a question and several choices, for multiple-choice models."""

import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer


def choice_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes one example of a document and its choices (a ``base.Maker``).

    Each choice is a segment, labeled 1 if it is correct and otherwise 0. Its
    tokens are the document paired with the query and the choice; the longer of
    the two texts is cut at the task's maximum.

    Raises:
        InputError: fewer than two choices, more than ``max_parts``, or a label
            that is not one of them.
    """
    del seed, auxiliary
    choices = document.choices or ()
    count = len(choices)
    if not 2 <= count <= task.max_parts:
        raise InputError(
            f'document "{document.id}" has {count} choices; give 2 to task.max_parts='
            f"{task.max_parts} texts under task.choices_key, or raise the maximum"
        )
    text = tokenizer.encode(task.prefix + document.document)
    query = f"{document.query} " if document.query else ""
    options = tokenizer.encode_batch([query + choice for choice in choices])
    pairs = [
        tokenizer.join_pair(text, option, task.max_source_length)
        for option in options
    ]
    labels = np.zeros(count, np.int32)
    labels[right_choice(document)] = 1
    example = Example(
        id=document.id,
        input_ids=np.concatenate(
            [np.array(pair.ids, np.int32) for pair in pairs]
        ),
        token_type_ids=np.concatenate(
            [np.array(p.token_type_ids, np.int32) for p in pairs]
        ),
        labels=labels,
        source_tokens=sum(
            len(tokenizer.join_pair(text, option).ids) for option in options
        ),
        target_tokens=count,
        segment_lengths=np.array([len(pair.ids) for pair in pairs], np.int32),
    )
    return [example]


def right_choice(document: DataRow) -> int:
    """Returns the index, from 0, of the choice in a document's label.

    Raises:
        InputError: a label that is neither an index nor the text of a choice.
    """
    label, choices = document.label, document.choices or ()
    if isinstance(label, int) and label < len(choices):
        return label
    if isinstance(label, str) and label in choices:
        return choices.index(label)
    raise InputError(
        f'document "{document.id}": label {label!r} is not among its {len(choices)} choices; '
        f"{did_you_mean(str(label), choices)}, or give its number, counted from 0"
    )
