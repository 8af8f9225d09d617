"""Examples of a document and a label for each of its words, for models that label tokens."""

import re

import numpy as np

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.examples.classification import label_numbers
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import Document
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer, first_tokens
from longsum_jax.typing import IGNORED_LABEL

_WORD = re.compile(r"\S+")


def tag_examples(
    task: Task,
    tokenizer: Tokenizer,
    document: Document,
    *,
    seed: int = 0,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> list[Example]:
    """Makes the example of a document whose words have a label each; see ``base.Maker``.

    Words are separated by white space. The first token of a word has its label, as in BERT (Devlin
    et al. 2019, section 5.3); those of all other tokens are ignored.

    Raises:
        InputError: another number of labels than words, or a label that is not among the names.
    """
    del seed, auxiliary
    words = [match.span() for match in _WORD.finditer(document.document)]
    numbers = label_numbers(document, task.labels)
    if len(numbers) != len(words):
        raise InputError(
            f'document "{document.id}" has {len(words)} words and {len(numbers)} labels; give each '
            "word a label"
        )
    prefix = tokenizer.encode(task.prefix)
    ids = tokenizer.encode(document.document)
    source = add_special_tokens(tokenizer, prefix + ids, task.max_source_length)
    start = len(tokenizer.prefix_ids) + len(prefix)
    places = start + np.array(first_tokens(words, tokenizer.spans(document.document)), np.int32)
    num_around = len(add_special_tokens(tokenizer, []))
    is_read = places < len(source) - (num_around - len(tokenizer.prefix_ids))
    labels = np.full(len(source), IGNORED_LABEL, np.int32)
    labels[places[is_read]] = numbers[is_read]
    example = Example(
        id=document.id,
        input_ids=source,
        labels=labels,
        source_tokens=len(prefix) + len(ids) + num_around,
        target_tokens=len(labels),
    )
    return [example]
