"""Examples of a document, a claim about it and a label, for classifiers of pairs."""

import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.data.examples.classification import class_numbers
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer


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
    example = Example(
        id=document.id,
        input_ids=np.array(pair.ids, np.int32),
        token_type_ids=np.array(pair.token_type_ids, np.int32),
        labels=labels,
        source_tokens=len(tokenizer.join_pair(ids, claim).ids),
        target_tokens=len(labels),
    )
    return [example]
