"""Examples of pieces of a document, for masked language models."""

import numpy as np

from longsum_jax.data.examples.base import Example, closed
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import Document
from longsum_jax.tokenizers.base import Tokenizer


def piece_examples(task: Task, tokenizer: Tokenizer, document: Document) -> list[Example]:
    """Returns all tokens of a document in pieces of the task's maximum, for masked language models.

    Each piece begins with the task's prefix and is closed; none has labels, which come with the
    masks.

    Raises:
        InputError: prefix and special tokens leave no room for text.
    """
    prefix = tokenizer.encode(task.prefix)
    room = task.max_source_length - len(closed(tokenizer, prefix))
    if room < 1:
        raise InputError(
            f'task "{task.name}": max_source_length={task.max_source_length} leaves no room for text; raise it'
        )
    ids = tokenizer.encode(document.document)
    pieces = [closed(tokenizer, prefix + ids[i : i + room]) for i in range(0, len(ids), room)]
    nothing = np.zeros(0, np.int32)
    return [
        Example(
            id=f"{document.id}#{number}",
            input_ids=piece,
            labels=nothing,
            source_tokens=len(piece),
            target_tokens=0,
        )
        for number, piece in enumerate(pieces)
    ]
