"""Examples of a document with a label for each word, for token classification."""

import re

import numpy as np
from jaxtyping import Int

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.examples.classification import label_numbers
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, counted
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import NO_TOKEN, Tokenizer, first_tokens
from longsum_jax.typing import IGNORED_LABEL

_WORD = re.compile(r"\S+")


def tag_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: DataRow,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document with a label for each word; see ``base.Maker``.

    Words are separated by white space. The first token of a word gets its
    label, as in BERT (Devlin et al. 2019, section 5.3); the labels of all other
    tokens are ignored.

    Raises:
        InputError: the numbers of labels and words differ, or a label is not
            among the names.
    """
    del seed, auxiliary
    positions = word_places(task, tokenizer, document)
    numbers = label_numbers(document, task.labels)
    if len(numbers) != len(positions):
        raise InputError(
            f'document "{document.id}" has {counted(len(positions), "word")} and '
            f"{counted(len(numbers), 'label')}; give each word a label"
        )
    ids = tokenizer.encode(task.prefix) + tokenizer.encode(document.document)
    source = add_special_tokens(tokenizer, ids, task.max_source_length)
    is_read = positions != NO_TOKEN
    labels = np.full(len(source), IGNORED_LABEL, np.int32)
    labels[positions[is_read]] = numbers[is_read]
    example = Example(
        id=document.id,
        input_ids=source,
        labels=labels,
        source_tokens=len(add_special_tokens(tokenizer, ids)),
        target_tokens=len(labels),
    )
    return [example]


def word_places(
    task: Task, tokenizer: Tokenizer, document: DataRow
) -> Int[np.ndarray, " words"]:
    """Returns the positions of the words' first tokens among the ids of an example.

    The position is ``NO_TOKEN`` for words that are not read: words beyond the
    task's maximum, and words for which the tokenizer produces no token.
    """
    words = [match.span() for match in _WORD.finditer(document.document)]
    firsts = np.array(
        first_tokens(words, tokenizer.spans(document.document)), np.int32
    )
    num_before = len(tokenizer.prefix_ids) + len(tokenizer.encode(task.prefix))
    num_after = len(tokenizer.add_special_tokens([])) - len(
        tokenizer.prefix_ids
    )
    is_read = (firsts != NO_TOKEN) & (
        num_before + firsts < task.max_source_length - num_after
    )
    return np.where(is_read, num_before + firsts, NO_TOKEN)
