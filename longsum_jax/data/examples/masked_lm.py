"""Examples of pieces of a document, for masked and causal language models."""

import numpy as np

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer


def masked_lm_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes examples of all tokens of a document, in pieces of the task's maximum length; see
    ``base.Maker``.

    Each piece begins with the task's prefix and has its own special tokens.
    Labels are empty: they are made with the masks during training, or are the
    tokens themselves.

    Raises:
        InputError: prefix and special tokens leave no room for text.
    """
    del seed, auxiliary
    prefix = tokenizer.encode(task.prefix)
    room = task.max_source_length - len(add_special_tokens(tokenizer, prefix))
    if room < 1:
        raise InputError(
            f'task "{task.name}": max_source_length={task.max_source_length} leaves no room for '
            "text; raise it"
        )
    ids = tokenizer.encode(document.document)
    examples = []
    for number, start in enumerate(range(0, len(ids), room)):
        piece = add_special_tokens(
            tokenizer, prefix + ids[start : start + room]
        )
        example = Example(
            id=f"{document.id}#{number}",
            input_ids=piece,
            labels=np.zeros(0, np.int32),
            source_tokens=len(piece),
            target_tokens=0,
        )
        examples.append(example)
    return examples
