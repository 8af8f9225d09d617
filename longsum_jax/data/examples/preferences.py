"""Examples of a document with a reference summary and a rejected one, for preference training."""

from longsum_jax.data.examples.base import Example, add_special_tokens
from longsum_jax.data.examples.summarization import make_example
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer


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
