"""Examples of a document and its labels."""

from longsum_jax.data.examples.base import Example, closed, source_of
from longsum_jax.data.labels import label_numbers
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document
from longsum_jax.tokenizers.base import Tokenizer


def classification_example(task: Task, tokenizer: Tokenizer, document: Document) -> Example:
    """Returns the document, cut at the task's maximum, with the numbers of its labels among
    ``task.labels``."""
    source = tokenizer.encode(source_of(task, document))
    input_ids = closed(tokenizer, source, task.max_source_length)
    labels = label_numbers(document, task.labels)
    return Example(
        id=document.id,
        input_ids=input_ids,
        labels=labels,
        source_tokens=len(closed(tokenizer, source)),
        target_tokens=len(labels),
    )
